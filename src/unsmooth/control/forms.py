"""The three ways to build W_V and W_proj from eigenvectors and eigenvalues, and what each guarantees.

With all heads side by side W_V and W_proj are d×d, Σ_h W_V^h W_proj^h = W_V W_proj = Hᵀ, and head h owns
columns h·k … of W_V and the same rows of W_proj. Let V_h, Λ_h be head h's columns and eigenvalues.

| form | W_V | W_proj | H = (Σ_h W_h)ᵀ | head's H_h |
|---|---|---|---|---|
| eigen | V⁻ᵀ | Λ Vᵀ | V Λ V⁻¹: eigenvalues exactly Λ | exactly Λ_h and zeros, as (V⁻¹)_h V_h = I |
| split | V | Λ Vᵀ | V Λ Vᵀ: real, signs of Λ, size up to ‖V‖²·max\\|Λ\\| | the same with V_h |
| symmetric | Q | Λ Qᵀ | Q Λ Qᵀ: exactly Λ, orthogonal eigenvectors | exactly Λ_h and zeros |

What LayerNorm leaves of it (docs/control.md): a constant positive weight keeps the interval of `symmetric`
and the signs of `split`; nothing is kept by `eigen`, whose H is not normal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from unsmooth.control.factor import inverse, orthogonal
from unsmooth.errors import OptionError

Matrices = Float[Tensor, "*layer dim dim"]
Values = Float[Tensor, "*layer dim"]


@dataclass(frozen=True)
class Form:
    """A form: its default bound, and `assemble(Θ, Λ) -> (W_V, W_proj)` in the paper's orientation."""

    name: str
    bound: str
    assemble: Callable[[Matrices, Values], tuple[Matrices, Matrices]]

    def __reduce__(self) -> tuple[Callable[[str], Form], tuple[str]]:
        """Copies and pickles go by name."""
        return get_form, (self.name,)


def _eigen(v: Matrices, eigenvalues: Values) -> tuple[Matrices, Matrices]:
    # Putting V⁻ᵀ on the value side (rather than W_V = I, W_proj = Hᵀ) makes each head's own spectrum exact.
    return inverse(v).mT, eigenvalues[..., None] * v.mT


def _split(v: Matrices, eigenvalues: Values) -> tuple[Matrices, Matrices]:
    return v, eigenvalues[..., None] * v.mT


def _symmetric(theta: Matrices, eigenvalues: Values) -> tuple[Matrices, Matrices]:
    q = orthogonal(theta)
    return q, eigenvalues[..., None] * q.mT


FORMS: dict[str, Form] = {
    "eigen": Form("eigen", "clip", _eigen),  # section 4
    "split": Form("split", "clip", _split),  # footnote 2
    "symmetric": Form("symmetric", "square", _symmetric),  # the poster
}


def get_form(name: str) -> Form:
    """The form of this name, or an error that lists them."""
    if name not in FORMS:
        raise OptionError.unknown("form", name, FORMS)
    return FORMS[name]
