"""XᵀX over all tokens of the data: the one matrix behind an effective rank of the whole data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.errors import UnsmoothError
from unsmooth.metrics.features import keep
from unsmooth.metrics.processes import rendezvous
from unsmooth.metrics.spectrum import EigenProblem, symmetric_product
from unsmooth.metrics.statistics import chunk
from unsmooth.metrics.values import entropy

Key = TypeVar("Key", bound=tuple[str, ...])


@dataclass
class SecondMoment:
    """Σ x xᵀ in float64, the number of tokens and of samples; two of them add up, whatever data each has seen.

    Of features in 16 bits on a GPU the products are exact and those of one chunk are added in float32; all else is
    float64.
    """

    total: Float[Tensor, "dim dim"] | None = None
    tokens: int | Tensor = 0
    samples: int = 0

    def update(self, x: Float[Tensor, "batch token dim"], mask: Bool[Tensor, "batch token"] | None = None) -> None:
        """Add the tokens that the mask keeps; does not wait for the device."""
        self.samples += len(x)
        flat, narrow = x.detach().flatten(0, -2), x.is_cuda and x.element_size() == 2
        self.tokens = self.tokens + (len(flat) if mask is None else mask.sum())
        step = len(flat) if narrow and mask is None else max(1, chunk(x.device) // x.shape[-1])
        masks = [None] * -(-len(flat) // step) if mask is None else mask.expand(x.shape[:-1]).flatten().split(step)
        for part, own in zip(flat.split(step), masks, strict=True):
            kept = keep(part, own)
            if narrow:
                self._add(torch.mm(kept.mT, kept, out_dtype=torch.float32))
            else:
                self._add(symmetric_product(kept.to(torch.float64).mT))

    def merge(self, other: SecondMoment) -> SecondMoment:
        """What both have seen."""
        merged = SecondMoment(None if self.total is None else self.total.clone(), self.tokens, self.samples)
        if other.total is not None:
            merged._add(other.total)
        merged.tokens, merged.samples = merged.tokens + other.tokens, merged.samples + other.samples
        return merged

    def effective_rank(self) -> float:
        """exp(−Σ p log p), p = σ/Σσ of the matrix whose rows are all tokens."""
        assert self.total is not None
        problem = EigenProblem(self.total[None], self.total.new_zeros(1))
        if problem.by_determinants:
            total, logs = problem.root_sums(self.total.new_full((1,), min(float(self.tokens), len(self.total))))
            return float((total.log() - logs / total).exp())
        sigma = problem.singular_values()
        return float(entropy(sigma / sigma.sum(-1, keepdim=True)).exp())

    def _add(self, product: Tensor) -> None:
        if self.total is None:
            self.total = product.to(torch.float64)
        elif self.total.shape != product.shape:
            raise UnsmoothError(
                f"features of width {len(product)} cannot be added to those of width {len(self.total)} before them"
            )
        else:
            self.total += product.to(self.total.device)


def all_sum(found: Mapping[Key, SecondMoment]) -> dict[Key, SecondMoment]:
    """What all processes of torch.distributed have seen together: one sum for each (call it on all of them)."""
    device = rendezvous()
    if device is None:
        return dict(found)
    merged = {}
    for key in sorted(found):  # in one order, however each process met them
        mine = found[key]
        assert mine.total is not None
        total = mine.total.to(device, copy=True)
        counts = torch.tensor([int(mine.tokens), mine.samples], device=device)
        dist.all_reduce(total)
        dist.all_reduce(counts)
        merged[key] = SecondMoment(total, *(int(count) for count in counts))
    return {key: merged[key] for key in found}
