"""Who changed ln HFC/LFC: the shares of every part, with their tokens, as tidy frames and one JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unsmooth.analysis.about import About
from unsmooth.analysis.attributing.carriers import Carriers
from unsmooth.analysis.attributing.shares import KINDS, NAMES, Shares
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.prose import counted
from unsmooth.sources.files import write_result
from unsmooth.sources.packed import pack, unpack

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.figures import Drawing

SCHEMA = "unsmooth.attribution/1"
STRONGEST, PASSES = 3, 32  # parts whose total effect is found unless told otherwise, and forward passes for it at most
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
    "out and the model runs again on the first batches: later layers answer, so the two may differ, also in sign",
    "position": "what is written to the token at that position (padding not counted); sums over positions are shares",
}


def affordable(total: int, passes: int = PASSES) -> int:
    """On how many batches the total effects of so many parts are found with so many forward passes; one at least.

    A part takes one pass, and one more where a single token has nearly all of it.

    >>> affordable(3, 32), affordable(20, 32), affordable(0)
    (4, 1, 0)
    """
    return max(1, passes // (1 + 2 * total)) if total else 0


@dataclass(repr=False, eq=False)  # two results are compared by `compare`; == asks whether they are one object
class Attribution:
    """What `attribute` returns: the share of every part in the change of ln HFC/LFC, by token policy.

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
    carriers: Carriers | None = None  # the tokens that carry it, where that was asked for

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
        return self.shares[self._policy(tokens)]

    def _policy(self, tokens: str | None) -> str:
        chosen = self.policies[0] if tokens is None else tokens
        if chosen not in self.shares:
            raise OptionError.unknown("token policy", chosen, self.policies)
        return chosen

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
        return _largest(frame, "mean", count)

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

        array = self.positions[self._policy(tokens)].astype(np.float64)
        flat = array.reshape(len(array), -1)
        most = np.abs(flat).argmax(-1)
        columns: dict[str, Any] = {NAMES[kind]: array[:, :, k].sum(-1) for k, kind in enumerate(KINDS)
                                   if np.any(array[:, :, k])}  # fmt: skip
        frame = pd.DataFrame({
            "position": np.arange(len(array)), "sum": flat.sum(-1), **columns, "layer": most // len(KINDS),
            "kind": [NAMES[KINDS[i]] for i in most % len(KINDS)], "there": flat[np.arange(len(flat)), most],
        })  # fmt: skip
        return frame if count is None else _largest(frame, "there", count)

    def by_token(self, tokens: str | None = None) -> pd.DataFrame:
        """The tokens of the vocabulary that carry the most, for text; empty for pictures."""
        import pandas as pd

        return pd.DataFrame(self.tokens.get(self._policy(tokens), []))

    def effects(self) -> pd.DataFrame:
        """Direct effects (of all inputs) beside total ones (of the first) of the strongest parts."""
        import pandas as pd

        return pd.DataFrame(
            self.totals, columns=["layer", "part", "direct", "total", "std", "inputs", "tokens", "mode"]
        )

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
            **self.about.heading(SCHEMA, self.partial, self.notes, inputs=self.inputs),
            "shares": {policy: shares.to_json() for policy, shares in self.shares.items()},
            "positions": {
                policy: {"shape": list(array.shape), "values": pack(array, "<f4")}
                for policy, array in self.positions.items()
            },
            "tokens": self.tokens,
            "totals": self.totals,
            **({} if self.carriers is None else {"carriers": self.carriers.to_json()}),
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
        notes = [str(note) for note in found["notes"]]
        totals = [{"inputs": int(found["inputs"]), **row} for row in found["totals"]]  # once they were of all inputs
        carriers = Carriers.from_json(found["carriers"]) if found.get("carriers") else None
        return cls(shares, positions, tokens, about, bool(found["partial"]), notes, totals, carriers)

    def __repr__(self) -> str:
        about, shares = self.about, self.under()
        lines = [
            f"Attribution of {about.model.name} on {about.data.reference or 'data in memory'}: "
            f"{counted(about.model.layers, 'layer')}, {counted(self.inputs, 'input')}"
            + (" (partial)" if self.partial else ""),
            f"  ln HFC/LFC ({self.policies[0]}): {shares.start.mean:.3f} → {shares.end.mean:.3f}, "
            f"{shares.change.mean:+.3f} in {counted(len(shares.parts), 'part')}",
        ]
        said = (f"{r['part']} of layer {r['layer']} {r['mean']:+.3f}" for r in self.strongest(3).to_dict("records"))
        lines.append(f"  the largest: {', '.join(said)}")
        lines += [f"  {counted(len(self.notes), 'note')}: .notes"] if self.notes else []
        return "\n".join(
            [*lines, "  .frame(), .strongest(), .by_layer(), .by_position(), .plot(), .save(path), .about"]
        )


@dataclass(frozen=True)
class AttributeSettings:
    """What was asked of an attribution."""

    tokens: tuple[str, ...]
    spectrum: bool


def _largest(frame: pd.DataFrame, column: str, count: int | None) -> pd.DataFrame:
    """The rows with the largest numbers in a column, whatever their sign."""
    return frame.loc[frame[column].abs().sort_values(ascending=False, kind="stable").index[:count]]


def _array(found: Mapping[str, Any]) -> NDArray[np.float32]:
    shape = found["shape"]
    if not (isinstance(shape, list) and len(shape) == 3 and all(type(n) is int and 0 <= n < 1 << 24 for n in shape)):
        raise CheckpointError(f"positions have the shape {shape!r}, expected three sizes")
    return unpack(found["values"], "<f4", math.prod(shape)).reshape(shape)
