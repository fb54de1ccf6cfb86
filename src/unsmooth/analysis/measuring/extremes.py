"""Tokens of extreme norm along the residual stream: how far out the farthest one is, and where in the sequence.

A massive activation or an attention sink can carry a metric alone. The policy `no-outliers` leaves such tokens out;
this says which they are, so that a sentence can name them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.analysis.measuring.changes import BLOCK_STEPS
from unsmooth.analysis.policies import TokenKinds, log_ratios, mask_by_norms, outlying
from unsmooth.errors import CheckpointError
from unsmooth.metrics.moments import Moments, MomentsTable
from unsmooth.metrics.processes import everybodys, rendezvous
from unsmooth.models import split_point

LONGEST = 708.0  # e to this power is a number; the logarithm of a quotient by a median norm of 0 may be larger
SEVERAL = 1.5  # outliers of a sample, on average: more than one token is meant
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

    @property
    def alike(self) -> bool:
        """Whether every sample has an outlier, and the farthest are long in all of them, or short in all."""
        return self.outliers.min > 0 and self.log_ratio.min * self.log_ratio.max > 0

    @property
    def farthest(self) -> float:
        """How far out the token is: on average, or of the samples where it is farthest."""
        return abs(self.log_ratio.mean) if self.alike else max(self.log_ratio.max, -self.log_ratio.min)

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
        ratio, outliers = Moments.from_dict(found["log_ratio"]), Moments.from_dict(found["outliers"])
        if positions.total() != outliers.count:
            raise CheckpointError(f"{outliers.count} samples have a farthest token, at {positions.total()} positions")
        return cls(ratio, outliers, positions)


class Extremes:
    """Takes in one batch after another, all points together.

    Where no policy counts special tokens, these carry nothing, and the farthest is one of the others.
    """

    def __init__(self, policies: Sequence[str] = ("all",)) -> None:
        self._policy = policies[0] if {*policies} <= {"patches", "content"} else "all"
        self._positions: dict[str, Counter[int]] = {}
        self._ratio, self._outliers = MomentsTable(0), MomentsTable(0)

    def add(self, norms: Mapping[str, Float[Tensor, "batch token"]], kinds: TokenKinds) -> None:
        """The lengths of all tokens at each point; every batch has the same points."""
        if not self._positions:
            self._positions = {point: Counter() for point in norms}
            self._ratio, self._outliers = MomentsTable(len(norms)), MomentsTable(len(norms))
        found: dict[str, Tensor] = {}
        groups: dict[Any, list[str]] = {}
        for point, x in norms.items():
            groups.setdefault((x.shape, x.device), []).append(point)
        for points in groups.values():
            lengths = torch.stack([norms[point] for point in points])
            together = torch.stack(farthest(lengths, kinds, self._policy), 1).cpu()
            found.update(zip(points, together, strict=True))
        for point, (_, position, _) in found.items():
            self._positions[point].update(map(int, position.tolist()))
        if found:
            table = torch.stack([found[point] for point in self._positions]).numpy()
            self._ratio.update(table[:, 0])
            self._outliers.update(table[:, 2])

    def merge(self, other: Extremes) -> None:
        """Take in what another process saw at the same points."""
        self._ratio.merge(other._ratio)
        self._outliers.merge(other._outliers)
        self._positions = {point: seen + other._positions[point] for point, seen in self._positions.items()}

    def result(self) -> dict[str, Extreme]:
        """What was seen at each point."""
        rows = zip(self._ratio.rows(), self._outliers.rows(), self._positions.items(), strict=True)
        return {point: Extreme(ratio, outliers, Counter(positions)) for ratio, outliers, (point, positions) in rows}


def farthest(
    norms: Float[Tensor, "*point batch token"], kinds: TokenKinds, policy: str = "all"
) -> tuple[Float[Tensor, "*point batch"], Float[Tensor, "*point batch"], Float[Tensor, "*point batch"]]:
    """Of each sample: log(norm / median) of the token farthest out, its position, and how many tokens are outliers.

    Among the tokens that `policy` counts, but padding.
    """
    kept = torch.ones(norms.shape[-2:], dtype=torch.bool, device=norms.device)
    if kinds.padding is not None and kinds.padding.shape == kept.shape:
        kept = ~kinds.padding.to(norms.device)
    among = kept & mask_by_norms(policy, torch.zeros_like(kept, dtype=norms.dtype), kinds)
    ratios = log_ratios(norms, among)
    place = ratios.abs().nan_to_num(-1.0).argmax(-1, keepdim=True)
    position = (kept.cumsum(-1) - 1).expand(norms.shape).gather(-1, place)[..., 0]
    outside = (outlying(ratios) & among).sum(-1)
    return ratios.gather(-1, place)[..., 0], position.to(ratios), outside.to(ratios)


@dataclass(frozen=True)
class Outliers:
    """The token of extreme norm that most samples share.

    `layer` and `maker` (a kind of layer) are what changed its norm most, against the median norm, on the way to the
    point asked for, among those after which it is an outlier; layer None for what is there before the first layer.
    `ratio` is that quotient after it: the geometric mean over samples where all have an outlier, else of the sample
    where it is farthest out. `position` is where the token stands in at least two thirds of the samples, as far as that
    is known, else None.
    """

    ratio: float
    point: str  # where that is
    position: int | None
    everywhere: bool  # at that position in all samples
    layer: int | None
    maker: str
    in_all: bool = True  # every sample has an outlier, and the farthest are long in all of them, or short
    several: bool = False  # most samples have more than one
    makers: int = 1  # layers that make it anew: of the same kind, and at least half as far, by the logarithm


def find_outliers(extremes: Mapping[str, Extreme], placement: str, at: str | None = None) -> Outliers | None:
    """Which token is extreme at a point of the stream, and what made it; by default where it is most extreme.

    None where there is no outlier.
    """
    places, stream = list(extremes), list(extremes.values())
    sizes = [extreme.log_ratio.mean for extreme in stream]
    peak = places.index(at) if at in places else max(range(len(stream)), key=lambda k: stream[k].farthest, default=-1)
    if peak < 0 or not stream[peak].outliers.max > 0:
        return None
    counts, heights = stream[peak].outliers, stream[peak].log_ratio
    alike = stream[peak].alike
    if not alike:  # samples without an outlier, or with a short instead of a long one, would hide the others
        sizes = [e.log_ratio.max if heights.max >= -heights.min else e.log_ratio.min for e in stream]
    if not sizes[peak]:
        return None
    heading = math.copysign(1.0, sizes[peak])
    jumps = [(size - before) * heading for before, size in zip([0.0, *sizes], sizes[: peak + 1], strict=False)]
    # what brings a short token to an ordinary length makes no outlier yet
    extreme = [(e.outliers.min if alike else e.outliers.max) > 0 for e in stream]
    # of one that is far out, other long tokens may hide it from the rule in some samples
    far = [e.outliers.max > 0 and size * heading >= sizes[peak] * heading / 2
           for e, size in zip(stream, sizes, strict=True)]  # fmt: skip
    made = max((k for k in range(peak + 1) if extreme[k] or far[k]), key=jumps.__getitem__)
    layer, name = split_point(places[made])
    anew = [k for k, (was, now) in enumerate(pairwise([False, *extreme])) if now and not was
            and split_point(places[k])[1] == name and sizes[k] * heading >= sizes[made] * heading / 2]  # fmt: skip
    positions = stream[peak].positions
    position, count = positions.most_common(1)[0]
    # a place is that of the farthest token of each sample, which is no outlier in samples that have none
    common = 3 * count >= 2 * positions.total() and (alike or 3 * counts.mean >= 2 * counts.max)
    inside = layer is not None and name != "pre"
    maker = next((kind for _, end, kind in BLOCK_STEPS["residual", placement] if end == name), "")
    return Outliers(
        math.exp(max(-LONGEST, min(sizes[made], LONGEST))),
        places[made],
        position if common else None,
        count == positions.total() and alike,
        layer if inside else None,
        maker if inside else "",
        alike,
        counts.mean >= SEVERAL,
        len({made, *anew}),
    )


def all_gather(mine: Mapping[str, Extreme]) -> dict[str, Extreme]:
    """The samples of all processes, in the order of the ranks, on each."""
    if rendezvous() is None:
        return dict(mine)
    merged: dict[str, Extreme] = {}
    for table in everybodys({point: extreme.to_json() for point, extreme in mine.items()}):
        for point, found in table.items():
            merged[point] = merged.get(point, Extreme()).merge(Extreme.from_json(found))
    return merged
