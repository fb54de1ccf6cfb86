"""What surrounds W_V and W_proj, folded into them: the H that acts on the residual stream (docs/theory.md, section 5).

Exact, given each token's statistics: `LN(X) = D X C Γ + 1βᵀ`, so the sub-layer is

    S  = X + D_out (Σ_h A_h D X W̃_V^h W̃_proj^h + 1 cᵀ) + 1 bᵀ         X' = S                              (pre-norm)
                                                                     X' = D_post S C Γ_post + 1 β_postᵀ  (post-norm)

with `W̃_V = C Γ W_V`, `W̃_proj = W_proj Γ_out · LayerScale`. Each `A_h 1 = 1`, so `b` and (without an output norm) `c`
are the same for every token and reach LFC only. `D_out c` and `D_post` differ between tokens: an output norm and a norm
after the sum carry constants into HFC. The exponents replace every D by its mean over tokens, and γ has no constants;
`unsmooth.theory.constant` says what those do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.errors import WeightsError


class Norm(Protocol):
    """A normalisation over features: `layer` centres, `rms` does not."""

    @property
    def kind(self) -> Literal["layer", "rms"]: ...
    @property
    def weight(self) -> Float[Tensor, " dim"] | None: ...
    @property
    def bias(self) -> Float[Tensor, " dim"] | None: ...
    @property
    def eps(self) -> float: ...


@dataclass(frozen=True)
class Folded:
    """Weights with everything linear inside; the norms are kept for their statistics D."""

    w_v: Float[Tensor, "head dim key"]
    w_proj: Float[Tensor, "head key dim"]
    constant: Float[Tensor, " dim"]
    offset: Float[Tensor, " dim"]
    norm: Norm | None
    out_norm: Norm | None
    post_norm: Norm | None
    inside: tuple[Float[Tensor, "head key dim"], Float[Tensor, " dim"]]  # W_proj and c as the output norm finds them

    @property
    def pair(self) -> tuple[Float[Tensor, "head dim key"], Float[Tensor, "head key dim"]]:
        """What `layer_exponent` and `simulate` take."""
        return self.w_v, self.w_proj

    @property
    def has_constant(self) -> bool:
        """Whether any token gets something that does not depend on the tokens."""
        after = None if self.post_norm is None else self.post_norm.bias
        return any(bool((c != 0).any()) for c in (self.constant, self.offset, after) if c is not None)

    @property
    def approximations(self) -> tuple[str, ...]:
        """What an exponent of this layer leaves out; a step of `frozen_step` leaves out nothing."""
        found = []
        if self.norm is not None:
            found.append(f"the {self.norm.kind} norm's statistics D are replaced by their mean over tokens")
        if self.out_norm is not None:
            found.append("the output norm's statistics are replaced by their mean over tokens")
        if self.post_norm is not None:
            found.append(
                "of the norm after the sum, centring and weight are folded into γ; its statistics are frozen and "
                "replaced by their mean over tokens; the small-step exponent and the verdicts of single heads are "
                "those of the sum before it"
            )
        if self.has_constant:
            found.append(
                "γ leaves out what every token gets (norm bias, b_v, b_proj): exponent_constant is γ with it, "
                "without_constant the step without it"
            )
        return tuple(found)


def fold(
    w_v: Float[Tensor, "head dim key"],
    w_proj: Float[Tensor, "head key dim"],
    *,
    b_v: Float[Tensor, "head key"] | None = None,
    b_proj: Float[Tensor, " dim"] | None = None,
    norm: Norm | None = None,
    out_norm: Norm | None = None,
    out_scale: Float[Tensor, " dim"] | None = None,
    post_norm: Norm | None = None,
) -> Folded:
    """Norm weight, centring and bias, value and projection bias, output norm and LayerScale, into `Folded`."""
    if norm is not None and post_norm is not None:
        raise WeightsError("a norm before attention and one after the sum: expected at most one of norm and post_norm")
    value = torch.zeros_like(w_v[:, 0]) if b_v is None else b_v
    if norm is not None and norm.bias is not None:
        value = value + norm.bias @ w_v
    constant = (value[:, None] @ w_proj).sum(0)[0]
    constant = constant if b_proj is None else constant + b_proj
    inside = (w_proj, constant)
    scale = torch.ones_like(constant) if out_scale is None else out_scale
    offset = torch.zeros_like(constant)
    if out_norm is not None:
        w_proj, constant = linear_part(out_norm, w_proj), linear_part(out_norm, constant)
        offset = offset if out_norm.bias is None else out_norm.bias * scale
    w_v = w_v if norm is None else centre_and_scale(norm, w_v)
    return Folded(w_v, w_proj * scale, constant * scale, offset, norm, out_norm, post_norm, inside)


def centre_and_scale(norm: Norm, w_v: Float[Tensor, "head dim key"]) -> Float[Tensor, "head dim key"]:
    """`C Γ W_V`; an RMSNorm does not centre."""
    scaled = w_v if norm.weight is None else norm.weight[:, None] * w_v
    return scaled - scaled.mean(-2, keepdim=True) if norm.kind == "layer" else scaled


def linear_part(norm: Norm, rows: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows dim"]:
    """`rows · C Γ`, what a norm does to features but for its statistics and bias."""
    centred = rows - rows.mean(-1, keepdim=True) if norm.kind == "layer" else rows
    return centred if norm.weight is None else centred * norm.weight


def statistics(norm: Norm | None, x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch token"]:
    """The diagonal of D: `1/σ_i` of every token, 1 without a norm."""
    if norm is None:
        return torch.ones_like(x[..., 0])
    centred = x - x.mean(-1, keepdim=True) if norm.kind == "layer" else x
    return torch.rsqrt(centred.square().mean(-1) + norm.eps)


def values_of(x: Float[Tensor, "batch token dim"], folded: Folded) -> Float[Tensor, "batch head token key"]:
    """`X W̃_V^h` of every head: one product, where a product a head would copy X for each of them."""
    heads, dim, key = folded.w_v.shape
    return (x @ folded.w_v.transpose(0, 1).reshape(dim, heads * key)).unflatten(-1, (heads, key)).transpose(1, 2)


def joined(
    mixed: Float[Tensor, "batch head token key"], w_proj: Float[Tensor, "head key dim"]
) -> Float[Tensor, "batch token dim"]:
    """`Σ_h Y_h W_proj^h`."""
    return mixed.transpose(1, 2).flatten(2) @ w_proj.flatten(0, 1)


def frozen_sum(
    x: Float[Tensor, "batch token dim"],
    mixed: Float[Tensor, "batch head token key"],
    folded: Folded,
    d_out: Float[Tensor, "batch token"] | None = None,
    *,
    constant: bool = True,
) -> Float[Tensor, "batch token dim"]:
    """`X` plus what attention adds, from `A_h D X W̃_V^h`; `constant=False` leaves out what every token gets."""
    added = joined(mixed, folded.w_proj)
    added = added + folded.constant if constant else added
    if d_out is not None:
        added = added * d_out[..., None]
    return x + (added + folded.offset if constant else added)


def frozen_step(
    x: Float[Tensor, "batch token dim"],
    mixed: Float[Tensor, "batch head token key"],
    folded: Folded,
    d_out: Float[Tensor, "batch token"] | None = None,
    d_post: Float[Tensor, "batch token"] | None = None,
    *,
    constant: bool = True,
) -> Float[Tensor, "batch token dim"]:
    """The sub-layer as the affine map it is once its statistics are frozen; with X's own, it is the sub-layer."""
    found = frozen_sum(x, mixed, folded, d_out, constant=constant)
    return found if folded.post_norm is None else after_norm(folded.post_norm, found, d_post, constant=constant)


def after_norm(
    norm: Norm,
    x: Float[Tensor, "batch token dim"],
    d: Float[Tensor, "batch token"] | None = None,
    *,
    constant: bool = True,
) -> Float[Tensor, "batch token dim"]:
    """`D X C Γ + 1βᵀ`, with x's own statistics unless given."""
    found = linear_part(norm, x) * (statistics(norm, x) if d is None else d)[..., None]
    return found if norm.bias is None or not constant else found + norm.bias


def output_statistics(
    mixed: Float[Tensor, "batch head token key"], folded: Folded
) -> Float[Tensor, "batch token"] | None:
    """D of the norm on the attention's output (Gemma 2 and 3); `None` where there is none."""
    if folded.out_norm is None:
        return None
    w_proj, constant = folded.inside
    return statistics(folded.out_norm, joined(mixed, w_proj) + constant)


def mean_statistic(
    d: Float[Tensor, "batch token"], mask: Bool[Tensor, "batch token"] | None
) -> Float[Tensor, " batch"]:
    """The one number that stands for D in an exponent: its mean over kept tokens."""
    if mask is None:
        return d.mean(-1)
    return torch.where(mask, d, 0).sum(-1) / mask.sum(-1)


def step_size(
    d: Float[Tensor, "batch token"],
    d_out: Float[Tensor, "batch token"] | None,
    mask: Bool[Tensor, "batch token"] | None,
) -> Float[Tensor, " batch"]:
    """The step s that multiplies what attention adds: the means of D and D_out."""
    step = mean_statistic(d, mask)
    return step if d_out is None else step * mean_statistic(d_out, mask)
