"""The three ways to build W_V and W_proj from eigenvectors and eigenvalues, and what each guarantees.

First the ordinary case, as many value heads as query heads, of d features in all.

With all heads side by side W_V and W_proj are d×d, Σ_h W_V^h W_proj^h = W_V W_proj = Hᵀ, and head h owns
columns h·k … of W_V and the same rows of W_proj. Let V_h, Λ_h be head h's columns and eigenvalues.

| form | W_V | W_proj | H = (Σ_h W_h)ᵀ | head's H_h |
|---|---|---|---|---|
| eigen | V⁻ᵀ | Λ Vᵀ | V Λ V⁻¹: eigenvalues exactly Λ | exactly Λ_h and zeros, as (V⁻¹)_h V_h = I |
| split | V | Λ Vᵀ | V Λ Vᵀ: real, signs of Λ, size up to ‖V‖²·max\\|Λ\\| | the same with V_h |
| symmetric | Q | Λ Qᵀ | Q Λ Qᵀ: exactly Λ, orthogonal eigenvectors | exactly Λ_h and zeros |

What LayerNorm leaves of it (docs/control.md): a constant positive weight keeps the interval of `symmetric`
and the signs of `split`; nothing is kept by `eigen`, whose H is not normal.

Grouped queries: r query heads (i, 1) … (i, r) share value head i. V has a column per value feature, d × g·k; the heads
of a group share its columns V_i and have eigenvalues Λ_ij each: W_proj^ij = Λ_ij V_iᵀ, with V⁺ for V⁻¹ in `eigen`.
Every line above holds then, with zeros besides, and Σ_h W_h has Λ_i1 + … + Λ_ir. H has rank g·k at most: what V does
not span is left over, and `eigen` adds Φ(I − VV⁺) to W_proj there, which changes no eigenvalue, as no value reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from unsmooth.control.factor import inverse, orthogonal
from unsmooth.errors import OptionError

Matrices = Float[Tensor, "*layer dim value"]
Projections = Float[Tensor, "*layer feature dim"]
Values = Float[Tensor, "*layer feature"]


@dataclass(frozen=True)
class Form:
    """A form: its default bound, `factors(Θ) -> (W_V, V)`, and whether heads may write outside V's span (Φ)."""

    name: str
    bound: str
    factors: Callable[[Matrices], tuple[Matrices, Matrices]]
    outside: bool = False

    def assemble(
        self, theta: Matrices, eigenvalues: Values, groups: int = 1, phi: Projections | None = None
    ) -> tuple[Matrices, Projections]:
        """W_V and W_proj in the paper's orientation; more eigenvalues than columns are those of `groups` of heads."""
        w_v, v = self.factors(theta)
        w_proj = eigenvalues[..., None] * share(v.mT, groups, eigenvalues.shape[-1] // v.shape[-1])
        return w_v, w_proj if phi is None else w_proj + phi - phi @ w_v @ v.mT

    def __reduce__(self) -> tuple[Callable[[str], Form], tuple[str]]:
        """Copies and pickles go by name."""
        return get_form, (self.name,)


def share(rows: Float[Tensor, "*layer value dim"], groups: int, count: int) -> Projections:
    """The rows of each group `count` times, one query head after the other.

    >>> import torch
    >>> share(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), groups=2, count=2).flatten()
    tensor([1., 2., 1., 2., 3., 4., 3., 4.])
    """
    if count == 1:
        return rows
    per_group = rows.unflatten(-2, (groups, 1, -1))
    return per_group.expand(*per_group.shape[:-3], count, -1, -1).flatten(-4, -2)


def _eigen(v: Matrices) -> tuple[Matrices, Matrices]:
    # Putting V⁻ᵀ on the value side (rather than W_V = I, W_proj = Hᵀ) makes each head's own spectrum exact.
    return inverse(v).mT, v


def _split(v: Matrices) -> tuple[Matrices, Matrices]:
    return v, v


def _symmetric(theta: Matrices) -> tuple[Matrices, Matrices]:
    q = orthogonal(theta)
    return q, q


FORMS: dict[str, Form] = {
    "eigen": Form("eigen", "clip", _eigen, outside=True),  # section 4
    "split": Form("split", "clip", _split),  # footnote 2
    "symmetric": Form("symmetric", "square", _symmetric),  # the poster
}


def get_form(name: str) -> Form:
    """The form of this name, or an error that lists them."""
    if name not in FORMS:
        raise OptionError.unknown("form", name, FORMS)
    return FORMS[name]
