"""One image, one bin, one step at a time."""

from __future__ import annotations

import torch
from torch import Tensor


def expected_calibration_error(confidence: list[float], right: list[bool], bins: int = 15) -> float:
    """Sum over bins (k/bins, (k+1)/bins] of share × |mean confidence − accuracy|; 0 belongs to the first."""
    total = 0.0
    for k in range(bins):
        low, high = k / bins, (k + 1) / bins
        inside = [i for i, c in enumerate(confidence) if low < c <= high or (k == 0 and c == 0)]
        if inside:
            gap = sum(confidence[i] for i in inside) / len(inside) - sum(right[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(gap)
    return total


def plain_training(
    model: torch.nn.Module,
    groups: list[dict[str, object]],
    batches: list[tuple[Tensor, Tensor]],
    rates: list[float],
    clip_norm: float,
) -> list[float]:
    """The usual eager loop: forward, soft cross-entropy, backward, clip, AdamW with this step's rate."""
    # fused as the engine's: AdamW blows another kernel's rounding up along Θ's directions that have no gradient
    optimizer = torch.optim.AdamW(groups, lr=rates[0], fused=True)
    losses = []
    for (x, target), rate in zip(batches, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
