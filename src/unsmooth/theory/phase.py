"""Which regime one head is in, over the range of H's eigenvalues and the temperature of its attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.theory.heads import head_verdicts
from unsmooth.theory.scenario import random_attention
from unsmooth.theory.spectrum import AttentionSpectrum, spectrum_of_attention


def phase_grid(
    centres: Sequence[float],
    temperatures: Sequence[float],
    width: float = 0.5,
    tokens: int = 48,
    dim: int = 32,
    seeds: Iterable[int] = range(4),
) -> Float[Tensor, "temperature centre"]:
    """Mean γ over seeds, for real λ_H evenly spread over `[centre − width/2, centre + width/2]`.

    By Lemma 1 the spectra decide alone, so no H is formed; A is `softmax(scores / temperature)` of random tokens.
    """
    spread = torch.linspace(-width / 2, width / 2, dim, dtype=torch.float64)
    lambda_h = (torch.tensor(centres, dtype=torch.float64)[:, None] + spread).to(torch.complex128)
    total = torch.zeros(len(temperatures), len(centres), dtype=torch.float64)
    count = 0
    for seed in seeds:
        for row, temperature in enumerate(temperatures):
            generator = torch.Generator().manual_seed(seed)
            x = torch.randn(tokens, dim, generator=generator, dtype=torch.float64)
            a = spectrum_of_attention(random_attention(x, generator, temperature))
            same = AttentionSpectrum(a.eigenvalues.expand(len(centres), -1))
            total[row] += head_verdicts(lambda_h, same, False, torch.float64).exponent
        count += 1
    return total / max(count, 1)
