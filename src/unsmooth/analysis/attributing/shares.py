"""The shares of every part, and of every token that they are written to: sums over inputs, batch by batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from unsmooth.errors import CheckpointError
from unsmooth.metrics.moments import Moments

# The kinds of parts in the order of the forward pass, and what people call them.
NAMES = {
    "head": "heads",
    "mean": "mean path",
    "norm1": "norm after attention",
    "mlp": "MLP",
    "norm2": "norm after MLP",
}
KINDS = tuple(NAMES)
NEARLY_ALL = 0.8  # of a part's share at one position: it writes to one token
STRONGEST = 64  # tokens of the vocabulary that are kept


class Part(NamedTuple):
    """Something that adds to the stream."""

    layer: int
    kind: str
    head: int | None = None

    @property
    def name(self) -> str:
        """What it is called beside its layer."""
        return f"head {self.head}" if self.head is not None else NAMES[self.kind]

    @property
    def full_name(self) -> str:
        """What it is called in a sentence.

        >>> Part(11, "mlp").full_name, Part(3, "head", 2).full_name
        ('the MLP of layer 11', 'head 2 of layer 3')
        >>> Part(0, "norm2").full_name
        'the norm after the MLP of layer 0'
        """
        name = "norm after the MLP" if self.kind == "norm2" else self.name
        return f"{'' if self.head is not None else 'the '}{name} of layer {self.layer}"


def parts_of(rows: Iterable[Mapping[Any, Any]]) -> list[Part]:
    """Rows of a frame as parts.

    >>> parts_of([{"layer": 1, "kind": "head", "head": 2.0}, {"layer": 1, "kind": "mlp", "head": None}])
    [Part(layer=1, kind='head', head=2), Part(layer=1, kind='mlp', head=None)]
    """
    return [
        Part(int(row["layer"]), str(row["kind"]), int(row["head"]) if row["kind"] == "head" else None) for row in rows
    ]


@dataclass
class Shares:
    """Streaming means of every part's share over inputs, of the ratio at both ends, and of the whole change."""

    parts: list[Part] = field(default_factory=list)
    # share, through HFC, through LFC, from the negative side (nan where not asked for)
    mean: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 4)))
    square: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))  # Σ (share − mean)²
    start: Moments = field(default_factory=Moments)
    end: Moments = field(default_factory=Moments)
    change: Moments = field(default_factory=Moments)

    def add(
        self, parts: Sequence[Part], values: Float[Tensor, "part 3 batch"], ratios: Float[Tensor, "2 batch"]
    ) -> None:
        """Take in a batch: through HFC, LFC and the negative side, by part and input; ln HFC/LFC at both ends."""
        new = torch.cat([values[:, :2].sum(1, keepdim=True), values], 1).numpy()
        mean = new.mean(-1)
        square = np.square(new[:, 0] - mean[:, :1]).sum(-1)
        ends = [Moments(), Moments(), Moments()]
        for moments, seen in zip(ends, (ratios[0], ratios[1], ratios[1] - ratios[0]), strict=True):
            moments.update(seen)
        self.merge(Shares(list(parts), mean, square, *ends))

    def merge(self, other: Shares) -> None:
        """Take in what others saw: another batch, another process."""
        before, total = self.count, self.count + other.count
        if not before:
            self.parts, self.mean, self.square = other.parts, other.mean, other.square
        elif other.count:
            assert self.parts == other.parts
            away = other.mean - self.mean
            self.square = self.square + other.square + np.square(away[:, 0]) * (before * other.count / total)
            self.mean = self.mean + away * (other.count / total)
        for name in ("start", "end", "change"):
            getattr(self, name).merge(getattr(other, name))

    @property
    def count(self) -> int:
        """How many inputs."""
        return self.start.count

    def rows(self) -> list[dict[str, Any]]:
        """One row a part, in the order of the forward pass."""
        found = []
        for part, (share, hfc, lfc, negative), square in zip(self.parts, self.mean, self.square, strict=True):
            moments = Moments(self.count, float(share), float(square))
            low, high = moments.interval
            found.append({
                "layer": part.layer, "part": part.name, "mean": float(share), "std": moments.std, "low": low,
                "high": high, "kind": part.kind, "head": part.head, "hfc": float(hfc), "lfc": float(lfc),
                "negative": float(negative), "positive": float(share - negative),
            })  # fmt: skip
        return sorted(found, key=lambda row: (row["layer"], KINDS.index(row["kind"])))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        rows = [
            {"layer": part.layer, "kind": part.kind, "head": part.head, "square": float(square),
             **{name: float(v) for name, v in zip(("mean", "hfc", "lfc", "negative"), mean, strict=True)
                if math.isfinite(v)}}
            for part, mean, square in zip(self.parts, self.mean, self.square, strict=True)
        ]  # fmt: skip
        ends = {name: getattr(self, name).to_dict() for name in ("start", "end", "change")}
        return {**ends, "parts": rows}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Shares:
        """The inverse of to_json."""
        parts = [Part(int(r["layer"]), str(r["kind"]), r["head"]) for r in found["parts"]]
        if strange := [part.kind for part in parts if part.kind not in KINDS]:
            raise CheckpointError(f"parts hold the kind {strange[0]!r}, expected one of {', '.join(KINDS)}")
        mean = [[float(r[name]) for name in ("mean", "hfc", "lfc")] + [float(r.get("negative", math.nan))]
                for r in found["parts"]]  # fmt: skip
        square = np.array([float(r["square"]) for r in found["parts"]])
        ends = (Moments.from_dict(found[name]) for name in ("start", "end", "change"))
        return cls(parts, np.array(mean).reshape(-1, 4), square, *ends)


class TokenSums:
    """Sums of shares by a number that tokens have: their position, or their id in the vocabulary."""

    def __init__(self) -> None:
        self.keys = torch.zeros(0, dtype=torch.int64)
        self.counts = torch.zeros(0, dtype=torch.float64)
        self.sums: Tensor | None = None  # key, layer, kind

    def add(
        self, keys: Int[Tensor, "batch token"], values: Float[Tensor, "batch token layer kind"], kept: Tensor | None,
        times: int = 1,
    ) -> None:  # fmt: skip
        """Take in the tokens of a batch that count; each stands for so many inputs, over which it is summed already."""
        chosen = torch.ones_like(keys, dtype=torch.bool) if kept is None else kept
        found = keys[chosen]
        self._take_in(found, torch.full((len(found),), float(times), dtype=torch.float64), values[chosen])

    def merge(self, other: TokenSums) -> None:
        """Take in the sums of another process."""
        if other.sums is not None:
            self._take_in(other.keys, other.counts, other.sums)

    def _take_in(self, keys: Int[Tensor, " some"], counts: Float[Tensor, " some"], values: Tensor) -> None:
        old = values[:0] if self.sums is None else self.sums
        self.keys, places = torch.cat([self.keys, keys]).unique(return_inverse=True)
        self.counts = torch.zeros(len(self.keys), dtype=torch.float64).index_add_(
            0, places, torch.cat([self.counts, counts])
        )
        self.sums = values.new_zeros(len(self.keys), *values.shape[1:]).index_add_(0, places, torch.cat([old, values]))

    def by_position(self, inputs: int) -> NDArray[np.float32]:
        """Means over inputs, (position, layer, kind); a position that an input lacks counts as 0."""
        assert self.sums is not None
        table = self.sums.new_zeros(int(self.keys.max()) + 1, *self.sums.shape[1:])
        table[self.keys] = self.sums / inputs
        return table.float().numpy()

    def strongest(self, inputs: int, decode: Callable[[list[int]], str] | None) -> list[dict[str, Any]]:
        """The tokens of the vocabulary that carry the most, by the largest share that one kind of a layer has there."""
        if self.sums is None:
            return []
        flat = self.sums.flatten(1) / inputs
        order = flat.abs().amax(-1).argsort(descending=True, stable=True)[:STRONGEST]
        kinds = self.sums.shape[-1]
        rows = []
        for place in order.tolist():
            cell = int(flat[place].abs().argmax())
            token = int(self.keys[place])
            rows.append({
                "token": token, "text": None if decode is None else decode([token]),
                "per_input": float(self.counts[place]) / inputs, "share": float(flat[place].sum()),
                "layer": cell // kinds, "kind": KINDS[cell % kinds], "there": float(flat[place, cell]),
            })  # fmt: skip
        return rows


@dataclass
class AttributedSums:
    """All that is kept of the inputs that were attributed under one token policy."""

    shares: Shares = field(default_factory=Shares)
    positions: TokenSums = field(default_factory=TokenSums)
    ids: TokenSums = field(default_factory=TokenSums)

    def merge(self, other: AttributedSums) -> None:
        """Take in those of another process."""
        self.shares.merge(other.shares)
        self.positions.merge(other.positions)
        self.ids.merge(other.ids)
