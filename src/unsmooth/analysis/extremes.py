"""Tokens of extreme norm along the residual stream: how far out the farthest one is, and where in the sequence.

A massive activation or an attention sink can carry a metric alone. The policy `no-outliers` leaves such tokens out;
this says which they are, so that a sentence can name them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from unsmooth.analysis.policies import TokenKinds, log_ratios, outlying
from unsmooth.metrics.moments import Moments, rendezvous

STREAM = ("embed", "pre", "attn_sum", "mid", "mlp_sum", "post")


@dataclass
class Extreme:
    """One point, over samples: the token of each sample whose norm is farthest from the median, by its logarithm.

    `log_ratio` is log(norm / median norm) of that token, `outliers` how many tokens `no-outliers` leaves out, and
    `positions` how many samples have that token at each position (padding is not counted).
    """

    log_ratio: Moments = field(default_factory=Moments)
    outliers: Moments = field(default_factory=Moments)
    positions: Counter[int] = field(default_factory=Counter)

    def update(self, found: Float[Tensor, "3 batch"]) -> None:
        """Add what `farthest` gave for one batch."""
        ratio, position, count = found
        self.log_ratio.update(ratio)
        self.outliers.update(count)
        self.positions.update(int(p) for p in position.tolist())

    def merge(self, other: Extreme) -> Extreme:
        """The samples of both."""
        return Extreme(
            Moments().merge(self.log_ratio).merge(other.log_ratio),
            Moments().merge(self.outliers).merge(other.outliers),
            self.positions + other.positions,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        positions = {str(position): count for position, count in sorted(self.positions.items())}
        return {"log_ratio": self.log_ratio.to_dict(), "outliers": self.outliers.to_dict(), "positions": positions}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Extreme:
        """The inverse of to_json."""
        positions = Counter({int(position): int(count) for position, count in found["positions"].items()})
        return cls(Moments.from_dict(found["log_ratio"]), Moments.from_dict(found["outliers"]), positions)


def farthest(x: Float[Tensor, "batch token dim"], kinds: TokenKinds) -> Float[Tensor, "3 batch"]:
    """Of each sample: log(norm / median) of the token farthest out, its position, and how many tokens are outliers."""
    among = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
    if kinds.padding is not None and kinds.padding.shape == among.shape:
        among = ~kinds.padding.to(x.device)
    ratios = log_ratios(x, among)
    place = ratios.abs().nan_to_num(-1.0).argmax(-1, keepdim=True)
    position = among.cumsum(-1).gather(-1, place)[..., 0] - 1
    outside = (outlying(ratios) & among).sum(-1)
    return torch.stack([ratios.gather(-1, place)[..., 0], position.to(ratios), outside.to(ratios)])


def all_gather(mine: Mapping[str, Extreme]) -> dict[str, Extreme]:
    """The samples of all processes, in the order of the ranks, on each."""
    if rendezvous() is None:
        return dict(mine)
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, {point: extreme.to_json() for point, extreme in mine.items()})
    merged: dict[str, Extreme] = {}
    for table in everyone:
        for point, found in table.items():
            merged[point] = merged.get(point, Extreme()).merge(Extreme.from_json(found))
    return merged
