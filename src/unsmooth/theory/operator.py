"""The map on the high-frequency part, `Y ↦ Σ_h P A_h Y W_h` (docs/theory.md, section 4), and its cheap twin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.stochastic import is_causal

Weights = Float[Tensor, "head dim dim"] | tuple[Float[Tensor, "head dim key"], Float[Tensor, "head key dim"]]


@dataclass(frozen=True)
class HeadMaps:
    """Weights arranged so that a product costs at most one attention layer.

    With `W_h = S_h T_h` the map is `Y ↦ Σ_h P A_h Y S_h T_h`. It shares its non-zero eigenvalues with
    `Z ↦ [P A_h (Z M)_h]_h`, `M = [T_g S_h]_gh`, which needs one dense product instead of two and is no wider
    when heads · key ≤ dim.
    """

    inner: Float[Tensor, "width out"]  # M, or [S_1 … S_h]
    outer: Float[Tensor, "out dim"] | None  # [T_1; …; T_h]; None when already inside M
    heads: int
    dim: int

    @property
    def width(self) -> int:
        """Columns of the state that the map acts on."""
        return self.inner.shape[0]

    @property
    def has_null_space(self) -> bool:
        """Whether the full map has the eigenvalue 0 that the twin on fewer columns lost."""
        return self.width < self.dim

    @property
    def total(self) -> Float[Tensor, "dim dim"]:
        """A matrix with the non-zero spectrum of `Σ_h W_h`."""
        return self.inner if self.outer is None else self.inner @ self.outer

    def product(
        self,
        matrices: HeadMatrices,
        state: Float[Tensor, "batch token width"],
        mask: Bool[Tensor, "batch token"] | None = None,
    ) -> Float[Tensor, "batch token width"]:
        """`Σ_h (P A_h) state W_h`, or its twin."""
        values = (state @ self.inner).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        mixed = matrices.mix(values).transpose(1, 2).flatten(2)
        return high_frequency(mixed if self.outer is None else mixed @ self.outer, mask)

    def own_product(
        self, own: Float[Tensor, "batch head token"], state: Float[Tensor, "batch token width"]
    ) -> Float[Tensor, "batch token width"]:
        """`y_t ↦ Σ_h A_h[t, t] y_t W_h` for every token by itself, or its twin."""
        values = (state @ self.inner).unflatten(-1, (self.heads, -1))
        mixed = (own.mT[..., None] * values).flatten(-2)
        return mixed if self.outer is None else mixed @ self.outer


def arrange(weights: Weights, *, twin: bool = True) -> HeadMaps:
    """Dense `(h, d, d)` or factored `(w_v, w_proj)` weights as `HeadMaps`; `twin=False` keeps the map on features."""
    if isinstance(weights, Tensor):
        if weights.ndim != 3 or weights.shape[1] != weights.shape[2]:
            raise WeightsError(
                f"weights must be (heads, dim, dim) or a pair (w_v, w_proj), got shape {tuple(weights.shape)}"
            )
        _check_finite(weights)
        heads, dim, _ = weights.shape
        eye = torch.eye(dim, dtype=weights.dtype, device=weights.device)
        return HeadMaps(weights.permute(1, 0, 2).reshape(dim, -1), eye.repeat(heads, 1), heads, dim)
    if len(weights) != 2 or not all(isinstance(w, Tensor) for w in weights):
        raise WeightsError(f"weights must be (heads, dim, dim) or a pair (w_v, w_proj), got {len(weights)} things")
    w_v, w_proj = weights
    heads, dim, key = w_v.shape if w_v.ndim == 3 else (0, 0, 0)
    if w_proj.shape != (heads, key, dim) or not heads:
        raise WeightsError(
            "w_v must be (heads, dim, key) and w_proj (heads, key, dim); got "
            f"{tuple(w_v.shape)} and {tuple(w_proj.shape)}"
        )
    _check_finite(w_v, w_proj)
    wide, tall = w_v.permute(1, 0, 2).reshape(dim, heads * key), w_proj.reshape(heads * key, dim)
    if twin and heads * key <= dim:
        return HeadMaps(tall @ wide, None, heads, dim)
    return HeadMaps(wide, tall, heads, dim)


def _check_finite(*weights: Tensor) -> None:
    if not all(bool(torch.isfinite(w).all()) for w in weights):
        raise WeightsError("w holds NaN or infinity; it has no exponent then")


def own_attention(attention: Float[Tensor, "batch head token token"]) -> Float[Tensor, "batch head token"] | None:
    """The diagonals of causal matrices; `None` for other matrices.

    `Σ_h A_h ⊗ W_h` is then block triangular with one block `Σ_h A_h[t, t] W_h` a token, and the first one's, `Σ_h W_h`,
    is the low-frequency part. The others have all eigenvalues of the high-frequency map without its coupling of tokens,
    which makes that map so far from normal that a small residual says little about an eigenvalue.
    """
    return attention.diagonal(dim1=-2, dim2=-1) if is_causal(attention) else None


def later_tokens(
    own: Float[Tensor, "batch head token"], mask: Bool[Tensor, "batch token"] | None
) -> Bool[Tensor, "batch token"]:
    """The kept tokens after the first: those whose blocks are the high-frequency map."""
    kept = torch.ones_like(own[:, 0], dtype=torch.bool) if mask is None else mask
    return kept & (kept.cumsum(-1) > 1)


def high_frequency(
    state: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"] | None
) -> Float[Tensor, "batch token width"]:
    """`P state`; with a mask, over the kept tokens, the others zero."""
    if mask is None:
        return state - state.mean(-2, keepdim=True)
    kept = mask[..., None]
    state = torch.where(kept, state, 0)
    return torch.where(kept, state - state.sum(-2, keepdim=True) / kept.sum(-2, keepdim=True), 0)


def random_start(count: int, token: int, width: int, like: Tensor) -> Float[Tensor, "batch token width"]:
    """A reproducible random state, the same for every input."""
    generator = torch.Generator().manual_seed(token * 1_000_003 + width)
    start = torch.randn(token, width, generator=generator, dtype=torch.float64).to(like)
    return start.expand(count, -1, -1)


def select(tensor: Tensor, rows: Int[Tensor, " batch"] | None) -> Tensor:
    """The rows asked for, without a copy when it is all of them."""
    return tensor if rows is None else tensor[rows]
