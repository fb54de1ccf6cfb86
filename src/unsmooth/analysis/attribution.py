"""Who changed ln HFC/LFC: the shares of every part, with their tokens, as tidy frames and one JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from unsmooth.analysis.about import About
from unsmooth.analysis.token_view import pack, unpack
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.metrics.moments import Moments
from unsmooth.sources.files import write_result

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.figures import Drawing

SCHEMA = "unsmooth.attribution/1"
# The kinds of parts in the order of the forward pass, and what people call them.
NAMES = {
    "head": "heads",
    "mean": "mean path",
    "norm1": "norm after attention",
    "mlp": "MLP",
    "norm2": "norm after MLP",
}
KINDS = tuple(NAMES)
DEFINITIONS = {
    "mean": "share of the change of ln HFC/LFC (Frobenius, natural logarithm) between the first block's input and the "
    "last block's output, mean over inputs; all parts sum to that change (log-mean Divisia, docs/theory.md, section 7)",
    "hfc, lfc": "the part of a share through ln ‖HFC‖, and through −ln ‖LFC‖",
    "head": "A_h (Z − 1z̄) W_h: what a head makes of the deviations of the normalised tokens from their mean",
    "mean path": "1(z̄ Σ W_h + c), what attention gives every token alike: the mean of the normalised tokens, and all "
    "constants (norm bias, b_v, b_proj); it does not depend on where the model keeps its constants",
    "MLP": "what the MLP adds",
    "norm": "of a post-norm model: what a normalisation of the whole stream does",
    "negative, positive": "a head's share from the eigen-directions of H with Re λ < 0, and from the others",
    "direct, total": "a part's share, and by how much ln HFC/LFC after the last block is lower when the part is taken "
    "out and the model runs again: later layers answer, so the two may differ, also in sign",
    "position": "what is written to the token at that position (padding not counted); sums over positions are shares",
}
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
        """
        return f"{'' if self.head is not None else 'the '}{self.name} of layer {self.layer}"


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
        mean, count = new.mean(-1), new.shape[-1]
        square = np.square(new[:, 0] - mean[:, :1]).sum(-1)
        before, total = self.count, self.count + count
        if not before:
            self.parts, self.mean, self.square = list(parts), mean, square
        else:
            assert self.parts == list(parts)
            away = mean - self.mean
            self.square = self.square + square + np.square(away[:, 0]) * (before * count / total)
            self.mean = self.mean + away * (count / total)
        self.start.update(ratios[0])
        self.end.update(ratios[1])
        self.change.update(ratios[1] - ratios[0])

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
        found, new = keys[chosen], values[chosen]
        old = new[:0] if self.sums is None else self.sums
        self.keys, places = torch.cat([self.keys, found]).unique(return_inverse=True)
        counts = torch.cat([self.counts, torch.full((len(found),), float(times), dtype=torch.float64)])
        self.counts = torch.zeros(len(self.keys), dtype=torch.float64).index_add_(0, places, counts)
        self.sums = new.new_zeros(len(self.keys), *new.shape[1:]).index_add_(0, places, torch.cat([old, new]))

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


@dataclass(repr=False, eq=False)  # two results are compared by `compare`; == asks whether they are one object
class Attribution:
    """Shares of all parts by token policy, and of the tokens that they are written to.

    `positions` are arrays (position, layer, kind of part) of means over inputs, whose sums over positions are the
    shares; `tokens` the ids of the vocabulary that carry the most, for text.
    """

    shares: dict[str, Shares]
    positions: dict[str, NDArray[np.float32]]
    tokens: dict[str, list[dict[str, Any]]]
    about: About[AttributeSettings]
    partial: bool = False
    notes: list[str] = field(default_factory=list)
    totals: list[dict[str, Any]] = field(default_factory=list)  # direct and total effects of the strongest parts

    @property
    def policies(self) -> tuple[str, ...]:
        """The token policies."""
        return tuple(self.shares)

    @property
    def inputs(self) -> int:
        """Over how many inputs every share is a mean."""
        return self.under().count

    def under(self, tokens: str | None = None) -> Shares:
        """The shares under one token policy, the first by default."""
        chosen = self.policies[0] if tokens is None else tokens
        if chosen not in self.shares:
            raise OptionError.unknown("token policy", chosen, self.policies)
        return self.shares[chosen]

    def frame(self, tokens: str | None = None, full: bool = False) -> pd.DataFrame:
        """One row per part in the order of the forward pass; `full`: intervals, HFC and LFC, sides of H too."""
        import pandas as pd

        frame = pd.DataFrame(self.under(tokens).rows())
        shown = frame if full else frame[["layer", "part", "mean", "std"]]
        shown.attrs = {"inputs": self.inputs, "definitions": self.about.to_json()["definitions"]}
        return shown

    def strongest(self, count: int | None = 10, tokens: str | None = None) -> pd.DataFrame:
        """The parts with the largest shares, whatever their sign."""
        frame = self.frame(tokens, full=True)
        return frame.loc[frame["mean"].abs().sort_values(ascending=False, kind="stable").index[:count]]

    def by_layer(self, tokens: str | None = None) -> pd.DataFrame:
        """One row per layer: the shares of its heads together, its mean path, MLP and norms, and their sum."""
        frame = self.frame(tokens, full=True)
        table = frame.pivot_table(index="layer", columns="kind", values="mean", aggfunc="sum")
        table = table[[kind for kind in KINDS if kind in table]].rename(columns=NAMES)
        return table.assign(sum=table.sum(axis=1)).rename_axis(columns=None)

    def by_position(self, tokens: str | None = None, count: int | None = None) -> pd.DataFrame:
        """One row per position: what is written there by each kind of part, all layers together, and where most is.

        `count` leaves the positions with the largest shares of a single layer, the largest first.
        """
        import pandas as pd

        self.under(tokens)
        array = self.positions[self.policies[0] if tokens is None else tokens].astype(np.float64)
        flat = array.reshape(len(array), -1)
        most = np.abs(flat).argmax(-1)
        columns: dict[str, Any] = {NAMES[kind]: array[:, :, k].sum(-1) for k, kind in enumerate(KINDS)
                                   if np.any(array[:, :, k])}  # fmt: skip
        frame = pd.DataFrame({
            "position": np.arange(len(array)), "sum": flat.sum(-1), **columns, "layer": most // len(KINDS),
            "kind": [NAMES[KINDS[i]] for i in most % len(KINDS)], "there": flat[np.arange(len(flat)), most],
        })  # fmt: skip
        if count is None:
            return frame
        return frame.loc[frame["there"].abs().sort_values(ascending=False, kind="stable").index[:count]]

    def by_token(self, tokens: str | None = None) -> pd.DataFrame:
        """The tokens of the vocabulary that carry the most, for text; empty for pictures."""
        import pandas as pd

        self.under(tokens)
        return pd.DataFrame(self.tokens.get(self.policies[0] if tokens is None else tokens, []))

    def effects(self) -> pd.DataFrame:
        """Direct beside total effects, where they were asked for (`attribute(..., total=5)`)."""
        import pandas as pd

        return pd.DataFrame(self.totals, columns=["layer", "part", "direct", "total", "std", "tokens", "mode"])

    def plot(self, tokens: str | None = None) -> Drawing:
        """Shares by layer and part, as a notebook shows it; `.save("x.pdf")` writes SVG, PNG or PDF."""
        from unsmooth.figures import parts

        return parts(self, tokens)

    def save(self, path: str | Path) -> Path:
        """Write one JSON file, atomically."""
        return write_result(path, json.dumps(self.to_json(), allow_nan=False) + "\n")

    def to_json(self) -> dict[str, Any]:
        """The whole attribution as plain data; arrays compressed, in base64."""
        return {
            "schema": SCHEMA,
            "partial": self.partial,
            "inputs": self.inputs,
            **self.about.to_json(),
            "notes": self.notes,
            "shares": {policy: shares.to_json() for policy, shares in self.shares.items()},
            "positions": {
                policy: {"shape": list(array.shape), "values": pack(array.astype("<f4").tobytes())}
                for policy, array in self.positions.items()
            },
            "tokens": self.tokens,
            "totals": self.totals,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Attribution:
        """What `save` wrote, as plain data."""
        about = About.from_json(found, AttributeSettings)
        shares = {str(policy): Shares.from_json(each) for policy, each in found["shares"].items()}
        positions = {str(policy): _array(each) for policy, each in found["positions"].items()}
        named = set(about.settings.tokens)
        if not (shares and shares.keys() == positions.keys() == named):
            raise CheckpointError(f"shares are of the policies {sorted(shares)}, expected {sorted(named)}")
        tokens = {str(policy): [dict(row) for row in rows] for policy, rows in found["tokens"].items()}
        notes, totals = [str(note) for note in found["notes"]], [dict(row) for row in found["totals"]]
        return cls(shares, positions, tokens, about, bool(found["partial"]), notes, totals)

    def __repr__(self) -> str:
        about, shares = self.about, self.under()
        lines = [
            f"Attribution of {about.model.name} on {about.data.reference or 'data in memory'}: "
            f"{about.model.layers} layers, {self.inputs} inputs" + (" (partial)" if self.partial else ""),
            f"  ln HFC/LFC ({self.policies[0]}): {shares.start.mean:.3f} → {shares.end.mean:.3f}, "
            f"{shares.change.mean:+.3f} in {len(shares.parts)} parts",
        ]
        said = (f"{r['part']} of layer {r['layer']} {r['mean']:+.3f}" for r in self.strongest(3).to_dict("records"))
        lines.append(f"  the largest: {', '.join(said)}")
        lines += [f"  {len(self.notes)} notes: .notes"] if self.notes else []
        return "\n".join(
            [*lines, "  .frame(), .strongest(), .by_layer(), .by_position(), .plot(), .save(path), .about"]
        )


@dataclass(frozen=True)
class AttributeSettings:
    """What was asked of an attribution."""

    tokens: tuple[str, ...]
    spectrum: bool


def _array(found: Mapping[str, Any]) -> NDArray[np.float32]:
    shape = found["shape"]
    if not (isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and 0 <= n < 1 << 24 for n in shape)):
        raise CheckpointError(f"positions have the shape {shape!r}, expected three sizes")
    return np.frombuffer(unpack(found["values"], 4 * math.prod(shape)), "<f4").reshape(shape)


def parts_of(rows: Iterable[Mapping[Any, Any]]) -> list[Part]:
    """Rows of a frame as parts.

    >>> parts_of([{"layer": 1, "kind": "head", "head": 2.0}, {"layer": 1, "kind": "mlp", "head": None}])
    [Part(layer=1, kind='head', head=2), Part(layer=1, kind='mlp', head=None)]
    """
    return [
        Part(int(row["layer"]), str(row["kind"]), int(row["head"]) if row["kind"] == "head" else None) for row in rows
    ]
