"""Tokens that carry a metric: massive activations, the MLP that writes them, and the heads that attend to them.

One forward pass gives norms, kurtosis and the attention that goes to the first and to the outlying tokens; `account`
joins them by more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.analysis.attention_listener import BatchTokens
from unsmooth.analysis.measuring.extremes import Extremes, Outliers, find_outliers
from unsmooth.analysis.policies import mask_by_norms, norms_of
from unsmooth.errors import CheckpointError
from unsmooth.models import split_point
from unsmooth.theory.divisia import Mask, State
from unsmooth.theory.matrices import HeadMatrices

if TYPE_CHECKING:
    import pandas as pd

SINK = 0.3  # of a head's attention on these tokens: it is a sink (Gu et al. 2024)
DEFINITIONS = {
    "norm, times": "median norm of the tokens, and how many times that the token farthest from it has (geometric mean)",
    "outliers": "how many tokens an input has that the policy no-outliers leaves out at this point",
    "kurtosis": "of a token's features, E (x − μ)⁴ / σ⁴ over its dimensions (3 for a normal distribution), mean over "
    "the tokens that are no outliers; kurtosis_token: of the token farthest out",
    "activation": "the largest |x| of an input over the median |x|; feature: the dimension where that is most often",
    "first, outlying": "share of a head's attention on the first token, and on the outliers of the layer's input: mean "
    "over the queries that are none of these; a head with 0.3 or more is counted as a sink; first_uniform, "
    "outlying_uniform: the same shares if heads attended alike to every token that a mask lets them see",
    "account": "ln HFC/LFC of all tokens, without those that are outliers where they are written, and both again in a "
    "run that leaves out what one MLP writes to them; attention on them in both runs",
}


class CarrierPass:
    """What one forward pass shows of its tokens, on the model's device; `sinks` fixes the tokens that are attended."""

    def __init__(self, tokens: BatchTokens, sinks: Mask = None) -> None:
        self.tokens, self.sinks = tokens, sinks
        self.norms: dict[str, Float[Tensor, "batch token"]] = {}  # by point
        self.features: list[Float[Tensor, "4 batch"]] = []  # kurtoses, ln activation and feature, at the ends of layers
        self.attention: dict[int, Float[Tensor, "batch head 2"]] = {}  # on the first token, and on outliers
        self.uniform: dict[int, Float[Tensor, "batch 2"]] = {}  # on them where a mask alone chooses
        self.ratios: list[Float[Tensor, "2 batch"]] = []  # ln HFC/LFC with and without `sinks`

    def receive(self, point: str, x: Tensor) -> None:
        """A state of the stream."""
        _, name = split_point(point)
        if name == "mlp":
            return
        self.norms[point] = norms_of(x)
        if point != "blocks.0.pre" and name != "post":
            return
        if self.sinks is None:
            self.features.append(self._features(point, x, self.kept(x)))
            return
        kept, sinks = self.kept(x), self.sinks.to(x.device)
        self.ratios.append(torch.stack([State.of(x, mask).ratio.cpu() for mask in (kept, kept & ~sinks)]))

    def attended(self, index: int, matrices: HeadMatrices) -> None:
        """The matrices of a layer, whose input is known."""
        batch, heads, tokens, _ = matrices.shape
        kept = self.kept(torch.empty(batch, tokens, 0, device=matrices.device))
        first = kept & (kept.cumsum(-1) == 1)
        sinks = (self.outlying(f"blocks.{index}.pre") if self.sinks is None else self.sinks).to(matrices.device)
        attended = torch.stack([first, sinks], -1)  # which tokens
        asking = kept[..., None] & ~attended
        found = torch.zeros(2, batch, heads, 2, dtype=matrices.dtype, device=matrices.device)
        for some, queries, a in matrices.parts():
            shown = a > 0
            for i in range(2):
                here = attended[:, None, None, :, i]
                alike = (shown & here).sum(-1) / shown.sum(-1).clamp_min(1)
                for table, given in zip(found, (torch.where(here, a, 0).sum(-1), alike), strict=True):
                    # the row of a padded query may be NaN
                    table[:, some, i] += torch.where(asking[:, None, queries, i], given, 0).sum(-1)
        found = (found / asking.sum(1).clamp_min(1)[:, None]).double().cpu()
        self.attention[index], self.uniform[index] = found[0], found[1].mean(1)

    def outlying(self, point: str) -> Bool[Tensor, "batch token"]:
        """The outliers at a point."""
        norms = self.norms[point]
        return ~mask_by_norms("no-outliers", norms, self.tokens.kinds) & self.kept(norms[..., None])

    def kept(self, x: Tensor) -> Bool[Tensor, "batch token"]:
        """The tokens that are no padding."""
        mask = self.tokens.kept(x, 0)
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask

    def _features(self, point: str, x: Tensor, kept: Bool[Tensor, "batch token"]) -> Float[Tensor, "4 batch"]:
        x = torch.where(kept[..., None], x, 0).double()
        centred = x - x.mean(-1, keepdim=True)
        square = centred.square()
        kurtosis = square.square().mean(-1) / square.mean(-1).square().clamp_min(torch.finfo(torch.float64).tiny)
        usual = (kept & ~self.outlying(point)).double()
        norms = self.norms[point].clamp_min(torch.finfo(torch.float64).tiny).log()
        middle = norms.masked_fill(~kept, math.nan).nanmedian(-1, keepdim=True).values
        place = (norms - middle).abs().masked_fill(~kept, -1).argmax(-1, keepdim=True)
        size = x.abs()
        typical = size.masked_fill(~kept[..., None], math.nan).flatten(1).nanmedian(-1).values
        typical = typical.clamp_min(1e-12 * size.amax((1, 2)).clamp_min(1e-300))
        most = size.amax(1).max(-1)
        return torch.stack([
            (kurtosis * usual).sum(-1) / usual.sum(-1).clamp_min(1), kurtosis.gather(-1, place)[:, 0],
            (most.values.clamp_min(1e-300) / typical).log(), most.indices.double(),
        ]).cpu()  # fmt: skip


@dataclass
class Account:
    """Two runs on the same inputs: as the model is, and without what the MLP of `layer` writes to the outliers.

    Curves are means over `inputs`, one value at the input and one after each layer, of ln HFC/LFC: of all tokens, and
    `others`, of those that are no outliers; `sink` is the attention on the outliers in each layer, mean over heads.
    """

    layer: int
    point: str  # where the outliers are those meant
    ratio: float  # their norm there, in medians
    position: int | None  # where most inputs have theirs
    everywhere: bool  # all of them have
    inputs: int
    curves: dict[str, list[float]]
    sink: dict[str, list[float]]
    makers: int = 1  # layers that make them anew, this one included
    in_all: bool = True  # every input has one
    several: bool = False  # most inputs have more than one
    uniform: list[float] | None = None  # what `sink` would be if heads looked alike at every token they may look at


AS_IT_IS, LEFT_OUT = "as it is", "left out"


@dataclass(repr=False, eq=False)
class Carriers:
    """Rows by state of the stream (layer −1: the input of the first), heads' attention, and the account, if any."""

    layers: list[dict[str, Any]]
    heads: list[list[list[float]]]  # layer, head, (on the first token, on outliers)
    account: Account | None = None

    @property
    def sinks(self) -> int:
        """How many heads give the first token, or outliers, so much of their attention that they are sinks."""
        return int((np.array(self.heads).max(-1) >= SINK).sum())

    @property
    def first_uniform(self) -> float | None:
        """What uniform attention would give the first token, mean over layers; older files do not say."""
        shares = [row["first_uniform"] for row in self.layers if "first_uniform" in row]
        return sum(shares) / len(shares) if shares else None

    def frame(self) -> pd.DataFrame:
        """One row per layer: norms, kurtosis, massive activations after it, and what its heads attend to."""
        import pandas as pd

        return pd.DataFrame(self.layers)

    def sink_frame(self) -> pd.DataFrame:
        """One row per layer and head: shares of attention on the first token and on outliers."""
        import pandas as pd

        rows = [(i, h, *pair) for i, layer in enumerate(self.heads) for h, pair in enumerate(layer)]
        return pd.DataFrame(rows, columns=["layer", "head", "first", "outlying"])

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        account = None if self.account is None else asdict(self.account)
        return {"layers": self.layers, "heads": self.heads, "account": account}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Carriers:
        """The inverse of to_json."""
        try:
            account = None if found["account"] is None else Account(**found["account"])
            layers = [{str(k): v for k, v in row.items()} for row in found["layers"]]
            heads = [[[float(v) for v in pair] for pair in layer] for layer in found["heads"]]
        except (TypeError, AttributeError, ValueError) as error:
            raise CheckpointError(f"carriers are damaged ({error})") from error
        return cls(layers, heads, account)


class CarrierSums:
    """Takes in one pass after another; what is kept are sums."""

    def __init__(self, placement: str) -> None:
        self.placement = placement
        self.account: Account | None = None
        self._extremes = Extremes()
        self._count = 0
        self._states = torch.zeros(0)
        self._norms = torch.zeros(0)
        self._heads: list[Tensor] = []
        self._uniform: list[Tensor] = []
        self._places: list[Counter[int]] = []

    def add(self, seen: CarrierPass) -> None:
        """The tokens of a batch."""
        stream = {p: x for p, x in seen.norms.items() if not p.endswith(".pre") or p == "blocks.0.pre"}
        self._extremes.add(stream, seen.tokens.kinds)
        ends = [x for p, x in stream.items() if p.endswith((".pre", ".post"))]
        kept = [seen.kept(x[..., None]) for x in ends]
        tiny = torch.finfo(torch.float64).tiny
        middle = [x.masked_fill(~k, math.nan).nanmedian(-1).values.clamp_min(tiny).log().sum().cpu()
                  for x, k in zip(ends, kept, strict=True)]  # fmt: skip
        features = torch.stack(seen.features)
        heads, uniform = ([x[i].sum(0) for i in sorted(x)] for x in (seen.attention, seen.uniform))
        if not self._count:
            self._states, self._norms = features.new_zeros(len(features), 3), features.new_zeros(len(features))
            self._heads, self._places = [torch.zeros_like(h) for h in heads], [Counter() for _ in features]
            self._uniform = [torch.zeros_like(u) for u in uniform]
        self._states += features[:, :3].sum(-1)
        self._norms += torch.stack(middle)
        self._heads = [old + new for old, new in zip(self._heads, heads, strict=True)]
        self._uniform = [old + new for old, new in zip(self._uniform, uniform, strict=True)]
        for counter, row in zip(self._places, features[:, 3], strict=True):
            counter.update(int(v) for v in row.tolist())
        self._count += features.shape[-1]

    def merge(self, other: CarrierSums) -> None:
        """Take in those of another process."""
        self._extremes.merge(other._extremes)
        self._states, self._norms = self._states + other._states, self._norms + other._norms
        self._heads = [old + new for old, new in zip(self._heads, other._heads, strict=True)]
        self._uniform = [old + new for old, new in zip(self._uniform, other._uniform, strict=True)]
        self._places = [old + new for old, new in zip(self._places, other._places, strict=True)]
        self._count += other._count

    def outliers(self) -> Outliers | None:
        """The outliers that most inputs share, and what made them, as far as is known."""
        return find_outliers(self._extremes.result(), self.placement)

    def result(self) -> Carriers:
        """What was seen so far."""
        extremes = self._extremes.result()
        ends = [point for point in extremes if point.endswith((".pre", ".post"))]
        heads = [(h / self._count).tolist() for h in self._heads]
        rows = []
        for i, point in enumerate(ends):
            usual, token, activation = (self._states[i] / self._count).tolist()
            extreme = extremes[point]
            row: dict[str, Any] = {
                "layer": i - 1, "norm": math.exp(float(self._norms[i]) / self._count),
                "times": math.exp(extreme.log_ratio.mean), "outliers": extreme.outliers.mean,
                "position": _most_often(extreme.positions), "kurtosis": usual, "kurtosis_token": token,
                "activation": math.exp(activation), "feature": _most_often(self._places[i]),
            }  # fmt: skip
            if i:
                pairs = np.array(heads[i - 1])
                row |= {"first": float(pairs[:, 0].mean()), "outlying": float(pairs[:, 1].mean()),
                        "sinks": int((pairs.max(1) >= SINK).sum())}  # fmt: skip
                row["first_uniform"], row["outlying_uniform"] = (self._uniform[i - 1] / self._count).tolist()
            rows.append(row)
        return Carriers(rows, heads, self.account)


def _most_often(counts: Counter[int]) -> int:
    """The key that was counted most often: of several the smallest, whichever came first."""
    return min(counts, key=lambda key: (-counts[key], key))
