"""One attention sub-layer on one batch: what theory says will happen, and what happened."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.analysis.facts import LayerFacts, alignment
from unsmooth.theory.exponent import layer_exponent
from unsmooth.theory.folding import frozen_step, output_statistics, statistics, step_size
from unsmooth.theory.heads import head_verdicts
from unsmooth.theory.operator import high_frequency
from unsmooth.theory.spectrum import spectrum_of_attention
from unsmooth.theory.stochastic import attention_entropy

Mask = Bool[Tensor, "batch token"] | None


def log_parts(x: Float[Tensor, "batch token dim"], mask: Mask) -> tuple[Tensor, Tensor]:
    """(log ‖HFC‖, log ‖LFC‖) per input, in float64."""
    x = x.double()
    high = high_frequency(x, mask).norm(dim=(-2, -1))
    count = torch.full_like(high, x.shape[-2]) if mask is None else mask.sum(-1).double()
    kept = x if mask is None else torch.where(mask[..., None], x, 0)
    low = kept.sum(-2).norm(dim=-1) / count.sqrt()
    return high.log().cpu(), low.log().cpu()


def layer_rows(
    facts: LayerFacts,
    x: Float[Tensor, "batch token dim"],
    added: Float[Tensor, "batch token dim"],
    attention: Float[Tensor, "batch head token token"],
    mask: Mask,
    folded: bool,
    krylov: dict[str, Any],
) -> tuple[list[dict[str, Any]], Float[Tensor, " batch"]]:
    """One row per input, and the step sizes: γ and its relatives beside the measured gains."""
    wide = facts.folded.w_v.dtype
    x, added, attention = x.to(wide), added.to(wide), attention.to(wide)
    if mask is not None:  # what a padded token holds may be NaN, and no kept query looks at it
        x, added = torch.where(mask[..., None], x, 0), torch.where(mask[..., None], added, 0)
        attention = torch.where(mask[:, None, :, None], attention, 0)
    d = statistics(facts.folded.norm, x)
    d_out = output_statistics(x, attention, facts.folded, d)
    steps = step_size(d, d_out, mask).double().cpu()
    if not folded:
        steps = torch.ones_like(steps)
    raw = facts.folded.raw
    pair = facts.folded.pair if folded else (raw.w_v, raw.w_proj)
    common = {"mask": mask, "lfc_spectrum": facts.effective.layer, **krylov}
    fast = layer_exponent(attention, pair, scale=steps, **common)
    slow = layer_exponent(attention, pair, which="rightmost", **common)
    before, after = log_parts(x, mask), log_parts(x + added, mask)
    exact = log_parts(frozen_step(x, attention, facts.folded, d, d_out), mask)
    flat = steps.to(x)[:, None].expand_as(d)
    mean_field = log_parts(frozen_step(x, attention, facts.folded, flat), mask)
    columns = {
        "step": steps,
        "log_rho_lfc": fast.rho_lfc.log(),
        "log_rho_hfc": fast.rho_hfc.log(),
        "exponent": fast.exponent,
        "small_step": slow.exponent * steps,
        "small_step_hfc": slow.rho_hfc * steps,
        "hfc_lfc": (before[0] - before[1]).exp(),
        "measured_hfc": after[0] - before[0],
        # part by part, so that a sub-layer that adds nothing changes the ratio by exactly 0
        "measured_ratio": (after[0] - before[0]) - (after[1] - before[1]),
        "frozen_hfc": exact[0] - before[0],
        "frozen_ratio": (exact[0] - before[0]) - (exact[1] - before[1]),
        "mean_step_hfc": mean_field[0] - before[0],
        "alignment": alignment(x, facts.leading, mask).double().cpu(),
    }
    columns["converged"] = fast.converged & slow.converged
    columns["tokens"] = torch.full((len(x),), x.shape[-2]) if mask is None else mask.sum(-1)
    plain = {name: values.tolist() for name, values in columns.items()}
    rows = [{"layer": facts.index, "input": i, **{name: plain[name][i] for name in plain}} for i in range(len(x))]
    return rows, steps


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
    entropy = attention_entropy(attention.double(), None if mask is None else mask[:, None]).cpu()
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
