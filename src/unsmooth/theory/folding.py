"""What surrounds W_V and W_proj, folded into them: the H that acts on the residual stream (theory.md, section 5).

Exact, given each token's statistics: `LN(X) = D X C Γ + 1βᵀ`, so the sub-layer is

    X' = X + D_out (Σ_h A_h D X W̃_V^h W̃_proj^h + 1 cᵀ) + 1 bᵀ

with `W̃_V = C Γ W_V`, `W̃_proj = W_proj Γ_out · LayerScale`. `c` and `b` are the same for every token (each
`A_h 1 = 1`), so they reach LFC only. Approximate: the exponents replace `D` by its mean, the step size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.models import HeadWeights, Norm


@dataclass(frozen=True)
class Folded:
    """Weights with everything linear inside; `norm` and `out_norm` are kept for their statistics D."""

    w_v: Float[Tensor, "head dim key"]
    w_proj: Float[Tensor, "head key dim"]
    constant: Float[Tensor, " dim"]
    offset: Float[Tensor, " dim"]
    norm: Norm | None
    out_norm: Norm | None
    raw: HeadWeights

    @property
    def pair(self) -> tuple[Float[Tensor, "head dim key"], Float[Tensor, "head key dim"]]:
        """What `layer_exponent` and `simulate` take."""
        return self.w_v, self.w_proj

    @property
    def approximations(self) -> tuple[str, ...]:
        """What an exponent of this layer leaves out; a step of `frozen_step` leaves out nothing."""
        found = []
        if self.norm is not None:
            found.append(f"the {self.norm.kind} norm's statistics D are replaced by their mean over tokens")
        if self.out_norm is not None:
            found.append("the output norm's statistics are replaced by their mean over tokens")
        return tuple(found)


def fold(weights: HeadWeights, dtype: torch.dtype | None = None) -> Folded:
    """Norm weight, centring and bias, value and projection bias, output norm and LayerScale, into `Folded`."""
    raw = cast_weights(weights, dtype or weights.w_v.dtype)
    w_v = raw.w_v if raw.norm is None else centre_and_scale(raw.norm, raw.w_v)
    out = torch.ones_like(raw.w_proj[0, 0]) if raw.out_scale is None else raw.out_scale
    offset = torch.zeros_like(out)
    w_proj, constant = raw.w_proj, _constant(raw)
    if raw.out_norm is not None:
        w_proj, constant = _after(raw.out_norm, w_proj), _after(raw.out_norm, constant)
        offset = offset if raw.out_norm.bias is None else raw.out_norm.bias * out
    return Folded(w_v, w_proj * out, constant * out, offset, raw.norm, raw.out_norm, raw)


def centre_and_scale(norm: Norm, w_v: Float[Tensor, "head dim key"]) -> Float[Tensor, "head dim key"]:
    """`C Γ W_V`; an RMSNorm does not centre."""
    scaled = w_v if norm.weight is None else norm.weight[:, None] * w_v
    return scaled - scaled.mean(-2, keepdim=True) if norm.kind == "layer" else scaled


def statistics(norm: Norm | None, x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch token"]:
    """The diagonal of D: `1/σ_i` of every token, 1 without a norm."""
    if norm is None:
        return torch.ones_like(x[..., 0])
    centred = x - x.mean(-1, keepdim=True) if norm.kind == "layer" else x
    return torch.rsqrt(centred.square().mean(-1) + norm.eps)


def frozen_step(
    x: Float[Tensor, "batch token dim"],
    attention: Float[Tensor, "batch head token token"],
    folded: Folded,
    d: Float[Tensor, "batch token"],
    d_out: Float[Tensor, "batch token"] | None = None,
) -> Float[Tensor, "batch token dim"]:
    """The sub-layer as the linear map it is once its statistics are frozen; with X's own, it is the sub-layer."""
    values = (x * d[..., None])[:, None] @ folded.w_v
    added = ((attention @ values) @ folded.w_proj).sum(1) + folded.constant
    if d_out is not None:
        added = added * d_out[..., None]
    return x + added + folded.offset


def output_statistics(
    x: Float[Tensor, "batch token dim"],
    attention: Float[Tensor, "batch head token token"],
    folded: Folded,
    d: Float[Tensor, "batch token"],
) -> Float[Tensor, "batch token"] | None:
    """D of the norm on the attention's output (Gemma 2 and 3); `None` where there is none."""
    if folded.out_norm is None:
        return None
    values = (x * d[..., None])[:, None] @ folded.w_v
    inner = ((attention @ values) @ folded.raw.w_proj).sum(1) + _constant(folded.raw)
    return statistics(folded.out_norm, inner)


def step_size(
    d: Float[Tensor, "batch token"],
    d_out: Float[Tensor, "batch token"] | None,
    mask: Bool[Tensor, "batch token"] | None,
) -> Float[Tensor, " batch"]:
    """The one number that stands for D (and D_out) in an exponent: the mean over kept tokens."""
    kept = torch.ones_like(d) if mask is None else mask.to(d.dtype)

    def mean(values: Tensor) -> Tensor:
        return (torch.where(kept > 0, values, 0)).sum(-1) / kept.sum(-1)

    return mean(d) if d_out is None else mean(d) * mean(d_out)


def cast_weights(weights: HeadWeights, dtype: torch.dtype) -> HeadWeights:
    """A detached copy in another dtype; bfloat16 weights are folded in float32 or better."""

    def tensor(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.detach().to(dtype)

    def norm(value: Norm | None) -> Norm | None:
        return None if value is None else Norm(value.kind, tensor(value.weight), tensor(value.bias), value.eps)

    w = weights
    return HeadWeights(
        w.w_v.detach().to(dtype), w.w_proj.detach().to(dtype), tensor(w.b_v), tensor(w.b_proj), norm(w.norm),
        norm(w.out_norm), tensor(w.out_scale), norm(w.post_norm),
    )  # fmt: skip


def _constant(w: HeadWeights) -> Float[Tensor, " dim"]:
    """`Σ_h (β W_V^h + b_v^h) W_proj^h + b_proj`: what every token gets whatever it holds."""
    value = torch.zeros_like(w.w_v[:, 0]) if w.b_v is None else w.b_v
    if w.norm is not None and w.norm.bias is not None:
        value = value + w.norm.bias @ w.w_v
    total = (value[:, None] @ w.w_proj).sum(0)[0]
    return total if w.b_proj is None else total + w.b_proj


def _after(norm: Norm, rows: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
    """`rows · C Γ`, the linear part of a norm on the output side."""
    centred = rows - rows.mean(-1, keepdim=True) if norm.kind == "layer" else rows
    return centred if norm.weight is None else centred * norm.weight
