"""One attention sub-layer on one batch: what theory says will happen, and what happened."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.analysis.attention_listener import mean_token
from unsmooth.analysis.explaining.facts import LayerFacts, alignment
from unsmooth.metrics.features import Features
from unsmooth.theory.constant import exponent_with_constant
from unsmooth.theory.exponent import both_exponents
from unsmooth.theory.folding import (
    after_norm,
    frozen_step,
    frozen_sum,
    linear_part,
    mean_statistic,
    output_statistics,
    statistics,
    step_size,
)
from unsmooth.theory.high_frequency import SeenLayer
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.mixing import Mixing, mixing_of
from unsmooth.theory.operator import high_frequency

Mask = Bool[Tensor, "batch token"] | None


@dataclass(frozen=True)
class Pass:
    """What one sub-layer was seen to do to one batch; `mask` says which tokens are no padding."""

    x: Float[Tensor, "batch token dim"]
    added: Float[Tensor, "batch token dim"]
    attention: HeadMatrices
    mask: Mask = None
    normed: Float[Tensor, "batch token dim"] | None = None  # after the norm that follows the sum, if one does

    @property
    def after(self) -> Float[Tensor, "batch token dim"]:
        """The stream after the sub-layer."""
        return self.x + self.added if self.normed is None else self.normed

    def prepared(self, dtype: torch.dtype) -> Pass:
        """In another dtype, and 0 where padding is: it may be NaN there, and no kept query looks at it."""

        def tokens(x: Tensor) -> Tensor:
            x = x.to(dtype)
            return x if self.mask is None else torch.where(self.mask[..., None], x, 0)

        normed = None if self.normed is None else tokens(self.normed)
        return Pass(tokens(self.x), tokens(self.added), self.attention.prepared(dtype, self.mask), self.mask, normed)


def log_parts(states: Sequence[Float[Tensor, "batch token dim"]], mask: Mask) -> Float[Tensor, "state 2 batch"]:
    """log ‖HFC‖ and log ‖LFC‖ of every state per input, in float64; brought to the CPU together."""
    squares = []
    for x in states:  # one after the other: each is widened
        features = Features(x, mask)
        squares.append(torch.stack([features.hfc_square, features.lfc_square]))
    return torch.stack(squares).log().cpu() / 2


def layer_rows(
    facts: LayerFacts, seen: Pass, policies: Mapping[str, Mask], folded: bool, krylov: dict[str, Any]
) -> tuple[list[dict[str, Any]], Mixing, Float[Tensor, " batch"]]:
    """One row per token policy and input (γ and its relatives beside the measured gains), what the matrices were seen
    to do, and the step sizes.

    The exponents are those of all tokens that are no padding, since every one of them is looked at; a policy chooses
    the tokens whose HFC and LFC are measured.
    """
    seen = seen.prepared(facts.folded.w_v.dtype)
    packed, x = facts.folded, seen.x
    d = statistics(packed.norm, x)
    mixing = mixing_of(seen.attention, x, d, packed, seen.mask)
    d_out = output_statistics(mixing.mixed, packed)
    steps = step_size(d, d_out, seen.mask) if folded else torch.ones_like(d[:, 0])
    exact = frozen_sum(x, mixing.mixed, packed, d_out)
    d_post = None if packed.post_norm is None else statistics(packed.post_norm, exact)
    flat = [None if each is None else mean_statistic(each, seen.mask)[:, None].expand_as(d) for each in (d_out, d_post)]
    states = {
        "before": x,
        "after": seen.after,
        "attended": x + seen.added,
        "exact": exact if packed.post_norm is None else after_norm(packed.post_norm, exact),
        "bare": frozen_step(x, mixing.mixed, packed, d_out, d_post, constant=False),
        "rounded": frozen_step(x, mixing.flat * mean_statistic(d, seen.mask)[:, None, None, None], packed, *flat),
        "field": frozen_step(x, mixing.mean_field, packed, d_out),
        "alone": frozen_step(x, mixing.mean_path, packed, d_out),
    }
    common = _exponents(facts, seen, mixing, steps, d_post, krylov)
    rows = []
    for policy, mask in policies.items():
        columns = {
            **common,
            **_constant(facts, seen, steps, d_out, d_post, mask),
            **_changes(states, mask),
            "direction_gain": _by_direction(facts, x, mask, steps, mixing.alpha),
            "alignment": torch.full((len(x),), math.nan)
            if facts.mean is None
            else alignment(x, facts.mean.leading, mask).cpu(),
            "tokens": torch.full((len(x),), x.shape[-2]) if mask is None else mask.sum(-1),
        }
        plain = {name: values.tolist() for name, values in columns.items()}
        rows += [
            {"layer": facts.index, "input": i, "policy": policy, **{name: plain[name][i] for name in plain}}
            for i in range(len(x))
        ]
    return rows, mixing, steps.double().cpu()


def _changes(states: Mapping[str, Tensor], mask: Mask) -> dict[str, Tensor]:
    """HFC/LFC before the sub-layer, and how the logarithms of HFC and HFC/LFC change to each state after it."""
    logs = dict(zip(states, log_parts(list(states.values()), mask), strict=True))
    # part by part, so that a sub-layer that adds nothing changes the ratio by exactly 0
    high = {name: parts[0] - logs["before"][0] for name, parts in logs.items()}
    ratio = {name: high[name] - (parts[1] - logs["before"][1]) for name, parts in logs.items()}
    norm = logs["after"] - logs["attended"]
    return {
        "hfc_lfc": (logs["before"][0] - logs["before"][1]).exp(),
        "measured_hfc": high["after"],
        "measured_ratio": ratio["after"],
        "attention_ratio": ratio["attended"],
        "norm_ratio": norm[0] - norm[1],
        "frozen_hfc": high["exact"],
        "frozen_ratio": ratio["exact"],
        "without_constant": ratio["bare"],
        "mean_step_hfc": high["rounded"],
        "mean_field": ratio["field"],
        "mean_path": ratio["alone"],
    }


def _exponents(
    facts: LayerFacts, seen: Pass, mixing: Mixing, steps: Tensor, d_post: Tensor | None, krylov: dict[str, Any]
) -> dict[str, Tensor]:
    """γ and what it is made of, the same for every policy."""
    steps, norm = steps.double().cpu(), facts.acting.post_norm
    fast, slow = both_exponents(
        SeenLayer(seen.attention, mixing.own, seen.mask), facts.acting.pair, steps,
        after=None if norm is None else lambda rows: linear_part(norm, rows),
        lfc_spectrum=None if facts.mean is None else facts.mean.values,
        small_spectrum=facts.effective.layer,
        **krylov,
    )  # fmt: skip
    shrunk = _post_step(d_post, seen.mask).log() if norm is not None else torch.zeros_like(steps)
    low, high = fast.rho_lfc.log() + shrunk, fast.rho_hfc.log() + shrunk
    return {
        "step": steps,
        "log_rho_lfc": low,
        "log_rho_hfc": high,
        "exponent": fast.exponent,
        "exponent_constant": exponent_with_constant(high, low) if facts.acting.has_constant else fast.exponent,
        "small_step": slow.exponent * steps,
        "small_step_hfc": slow.rho_hfc * steps,
        "converged": fast.converged & slow.converged,
    }


def _constant(
    facts: LayerFacts, seen: Pass, steps: Tensor, d_out: Tensor | None, d_post: Tensor | None, mask: Mask
) -> dict[str, Tensor]:
    """The row that every token gets, and the mean token's fixed point, both in units of the mean token's norm."""
    packed, size = facts.acting, mean_token(seen.x.double(), mask).norm(dim=-1).cpu()
    row = packed.constant.double().cpu().expand(len(seen.x), -1)
    if d_out is not None and packed.out_norm is not None:
        row = row * mean_statistic(d_out, seen.mask).double().cpu()[:, None]
    row, step = row + packed.offset.double().cpu(), steps.double().cpu()
    if packed.post_norm is not None:
        step = _post_step(d_post, seen.mask)
        bias = packed.post_norm.bias
        row = step[:, None] * linear_part(packed.post_norm, row.to(packed.w_v)).double().cpu()
        row = row if bias is None else row + bias.double().cpu()
    if facts.mean is None:  # where the mean token would stay is told by all eigenvalues only
        unknown = torch.full_like(size, math.nan)
        return {"constant": row.norm(dim=-1) / size, "fixed_point": unknown, "attracts": unknown}
    found = facts.mean.fixed_point(step, row)
    return {
        "constant": row.norm(dim=-1) / size,
        "fixed_point": found.point.norm(dim=-1) / size,
        "attracts": found.attracts,
    }


def _by_direction(facts: LayerFacts, x: Tensor, mask: Mask, steps: Tensor, alpha: Tensor) -> Float[Tensor, " batch"]:
    """The step by eigen-directions of ΣH_h, as far as these are known."""
    if facts.directions is None:
        return torch.full((len(x),), math.nan)
    x = x.double()
    return facts.directions.gain(high_frequency(x, mask), mean_token(x, mask), steps, alpha.mean(-1)).cpu()


def _post_step(d_post: Tensor | None, mask: Mask) -> Float[Tensor, " batch"]:
    assert d_post is not None
    return mean_statistic(d_post, mask).double().cpu()
