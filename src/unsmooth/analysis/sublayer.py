"""One attention sub-layer on one batch: what theory says will happen, and what happened."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.analysis.facts import LayerFacts, alignment
from unsmooth.metrics.features import Features
from unsmooth.theory.constant import exponent_with_constant
from unsmooth.theory.exponent import layer_exponent
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
from unsmooth.theory.heads import head_verdicts
from unsmooth.theory.operator import deviations_kept, high_frequency, mean_field, uniform
from unsmooth.theory.spectrum import spectrum_of_attention
from unsmooth.theory.stochastic import attention_entropy

Mask = Bool[Tensor, "batch token"] | None


@dataclass(frozen=True)
class Pass:
    """What one sub-layer was seen to do to one batch; `mask` says which tokens are no padding."""

    x: Float[Tensor, "batch token dim"]
    added: Float[Tensor, "batch token dim"]
    attention: Float[Tensor, "batch head token token"]
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

        attention = self.attention.to(dtype)
        if self.mask is not None:
            attention = torch.where(self.mask[:, None, :, None], attention, 0)
        normed = None if self.normed is None else tokens(self.normed)
        return Pass(tokens(self.x), tokens(self.added), attention, self.mask, normed)


def log_parts(x: Float[Tensor, "batch token dim"], mask: Mask) -> tuple[Tensor, Tensor]:
    """(log ‖HFC‖, log ‖LFC‖) per input, in float64."""
    features = Features(x, mask)
    return features.hfc_square.log().cpu() / 2, features.lfc_square.log().cpu() / 2


def mean_token(x: Float[Tensor, "batch token dim"], mask: Mask) -> Float[Tensor, "batch dim"]:
    """The mean over kept tokens."""
    if mask is None:
        return x.mean(-2)
    return torch.where(mask[..., None], x, 0).sum(-2) / mask.sum(-1, keepdim=True)


def layer_rows(
    facts: LayerFacts, seen: Pass, policies: Mapping[str, Mask], folded: bool, krylov: dict[str, Any]
) -> tuple[list[dict[str, Any]], Float[Tensor, " batch"]]:
    """One row per token policy and input, and the step sizes: γ and its relatives beside the measured gains.

    The exponents are those of all tokens that are no padding, since every one of them is looked at; a policy chooses
    the tokens whose HFC and LFC are measured.
    """
    seen = seen.prepared(facts.folded.w_v.dtype)
    packed, x, attention = facts.folded, seen.x, seen.attention
    d = statistics(packed.norm, x)
    d_out = output_statistics(x, attention, packed, d)
    steps = step_size(d, d_out, seen.mask) if folded else torch.ones_like(d[:, 0])
    exact = frozen_sum(x, attention, packed, d, d_out)
    d_post = None if packed.post_norm is None else statistics(packed.post_norm, exact)
    flat = [None if each is None else mean_statistic(each, seen.mask)[:, None].expand_as(d) for each in (d_out, d_post)]
    rounded = frozen_step(x, attention, packed, mean_statistic(d, seen.mask)[:, None].expand_as(d), *flat)
    bare = frozen_step(x, attention, packed, d, d_out, d_post, constant=False)
    values = x * d[..., None]
    alpha = deviations_kept(attention, values if packed.norm is None else linear_part(packed.norm, values), seen.mask)
    field = frozen_step(x, mean_field(attention, alpha, seen.mask), packed, d, d_out)
    alone = frozen_step(x, uniform(attention, seen.mask), packed, d, d_out)
    exact = exact if packed.post_norm is None else after_norm(packed.post_norm, exact)
    common = _exponents(facts, seen, steps, d_post, folded, krylov)
    rows = []
    for policy, mask in policies.items():
        before, after = log_parts(x, mask), log_parts(seen.after, mask)
        attended = log_parts(x + seen.added, mask)

        def ratio(state: Tensor, mask: Mask = mask, before: tuple[Tensor, Tensor] = before) -> Tensor:
            # part by part, so that a sub-layer that adds nothing changes the ratio by exactly 0
            high, low = log_parts(state, mask)
            return (high - before[0]) - (low - before[1])

        columns = {
            **common,
            **_constant(facts, seen, steps, d_out, d_post, mask),
            "hfc_lfc": (before[0] - before[1]).exp(),
            "measured_hfc": after[0] - before[0],
            "measured_ratio": (after[0] - before[0]) - (after[1] - before[1]),
            "attention_ratio": (attended[0] - before[0]) - (attended[1] - before[1]),
            "norm_ratio": (after[0] - attended[0]) - (after[1] - attended[1]),
            "frozen_hfc": log_parts(exact, mask)[0] - before[0],
            "frozen_ratio": ratio(exact),
            "without_constant": ratio(bare),
            "mean_step_hfc": log_parts(rounded, mask)[0] - before[0],
            "mean_field": ratio(field),
            "mean_path": ratio(alone),
            "direction_gain": _by_direction(facts, x, mask, steps, alpha),
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
    return rows, steps.double().cpu()


def _exponents(
    facts: LayerFacts, seen: Pass, steps: Tensor, d_post: Tensor | None, folded: bool, krylov: dict[str, Any]
) -> dict[str, Tensor]:
    """γ and what it is made of, the same for every policy."""
    steps, norm = steps.double().cpu(), facts.acting.post_norm
    after = None if norm is None else lambda rows: linear_part(norm, rows)
    fast = layer_exponent(
        seen.attention, facts.acting.pair, mask=seen.mask, scale=steps, after=after,
        lfc_spectrum=None if facts.mean is None else facts.mean.values,
        **krylov,
    )  # fmt: skip
    slow = layer_exponent(
        seen.attention, facts.acting.pair, mask=seen.mask, which="rightmost", lfc_spectrum=facts.effective.layer,
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


def head_rows(
    facts: LayerFacts,
    attention: Float[Tensor, "batch head token token"],
    steps: Float[Tensor, " batch"],
    mask: Mask,
    spectra: int,
) -> list[dict[str, Any]]:
    """One row per input and head: entropy for all inputs; spectrum of A and verdicts for the first `spectra`."""
    if mask is not None:
        attention = torch.where(mask[:, None, :, None], attention, 0)
    kept_queries = None if mask is None else mask[:, None]
    by_head = [attention_entropy(a.double(), kept_queries) for a in attention.split(1, dim=1)]  # few in float64
    entropy = torch.cat(by_head, 1).cpu()
    zeros = facts.effective.structural_zeros > 0
    rows: list[dict[str, Any]] = []
    for i, heads in enumerate(attention):
        kept = heads if mask is None else heads[:, mask[i]][:, :, mask[i]]
        columns: dict[str, Any] = {}
        if i < spectra:
            a = spectrum_of_attention(kept)
            acting = head_verdicts(facts.effective.heads * steps[i], a, zeros, attention.dtype)
            paper = head_verdicts(facts.raw.heads, a, False, attention.dtype)
            columns = {
                "gap": a.gap.tolist(),
                "smallest_real": a.others.real.amin(-1).tolist(),
                "complex": a.complex_share.tolist(),
                "exponent": acting.exponent.tolist(),
                "small_step": acting.small_step.tolist(),
                "kind": acting.kinds,
                "endpoint": acting.endpoints,
                "paper_exponent": paper.exponent.tolist(),
                "paper_kind": paper.kinds,
                "paper_endpoint": paper.endpoints,
            }
        for h in range(len(heads)):
            relative = float(entropy[i, h]) / torch.tensor(float(kept.shape[-1])).log().item()
            own = {name: values[h] for name, values in columns.items()}
            row = {"layer": facts.index, "head": h, "input": i, "entropy": float(entropy[i, h])}
            rows.append({**row, "relative_entropy": relative, **own})
    return rows
