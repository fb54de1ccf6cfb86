"""The heads of one attention sub-layer on one batch: entropy, spectra of A, and what theory says of each."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.analysis.explaining.facts import LayerFacts
from unsmooth.theory.heads import head_verdicts
from unsmooth.theory.matrices import HeadMatrices
from unsmooth.theory.mixing import Mixing
from unsmooth.theory.spectrum import AttentionSpectrum, spectrum_of_attention, spectrum_of_causal


def head_rows(
    facts: LayerFacts,
    attention: HeadMatrices,
    mixing: Mixing,
    steps: Float[Tensor, " batch"],
    spectra: int,
) -> list[dict[str, Any]]:
    """One row per input and head: entropy for all inputs; spectrum of A and verdicts for the first `spectra`."""
    entropy, zeros, mask = mixing.entropy.cpu(), facts.effective.structural_zeros > 0, mixing.mask
    tokens = [mixing.values.shape[-2]] * len(entropy) if mask is None else mask.sum(-1).tolist()
    relative = (entropy / torch.tensor(tokens, dtype=torch.float64).log()[:, None]).tolist()
    found = attention_spectra(attention, mixing, min(spectra, len(entropy)))
    rows: list[dict[str, Any]] = []
    for i, of_input in enumerate(entropy.tolist()):
        columns: dict[str, Any] = {}
        if i < len(found):
            a = found[i]
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
        for h, value in enumerate(of_input):
            own = {name: values[h] for name, values in columns.items()}
            row = {"layer": facts.index, "head": h, "input": i, "entropy": value}
            rows.append({**row, "relative_entropy": relative[i][h], **own})
    return rows


def attention_spectra(matrices: HeadMatrices, mixing: Mixing, count: int) -> list[AttentionSpectrum]:
    """The eigenvalues of every head's A for the first inputs; kept tokens only."""
    own, mask, heads = mixing.own, mixing.mask, matrices.shape[1]
    if not count:
        return []
    if own is not None:
        return [spectrum_of_causal(own[i] if mask is None else own[i][:, mask[i]]) for i in range(count)]
    if matrices.held is not None and mask is None:  # all inputs together: every core has work to the end
        return [AttentionSpectrum(values) for values in spectrum_of_attention(matrices.held[:count]).eigenvalues]
    found = []
    for i in range(count):
        each = (
            [matrices.held]
            if matrices.held is not None
            else (matrices.form(slice(h, h + 1), slice(None)) for h in range(heads))
        )
        kept = (a[i] if mask is None else a[i][:, mask[i]][:, :, mask[i]] for a in each)
        found.append(AttentionSpectrum(torch.cat([spectrum_of_attention(a).eigenvalues for a in kept])))
    return found
