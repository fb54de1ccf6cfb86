"""Measurements with a known course, and a reader that checks every claim of a sentence against the raw numbers.

Nothing here uses the code that writes the sentences: curves are arrays, tests are scipy's, claims are read back by
regular expressions.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product

import numpy as np
import numpy.typing as npt
import scipy.stats
import torch
from results import about_measured

from unsmooth.analysis import Measurement, Subject
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.changes import READINGS
from unsmooth.analysis.measuring.extremes import Extreme
from unsmooth.analysis.measuring.per_sample import PerSample
from unsmooth.metrics.moments import Moments

Array = npt.NDArray[np.float64]
TITLES = {"hfc_lfc": "HFC/LFC", "cosine_similarity": "cosine similarity", "effective_rank": "effective rank"}
SMOOTHER = {"hfc_lfc": -1, "cosine_similarity": 1, "effective_rank": -1}
WITHIN = {
    "pre": (("mid", "attention"), ("post", "the MLP")),
    "post": (
        ("attn_sum", "attention"),
        ("mid", "the normalisation"),
        ("mlp_sum", "the MLP"),
        ("post", "the normalisation"),
    ),
    "parallel-shared": (("post", "both"),),
}


@dataclass
class Known:
    """A model whose metrics are known sample by sample: `curves[policy][metric]` has a value for every depth.

    `parts` says which share of a layer's step each of its modules makes, in the order of the forward pass; a list of
    them has one row per layer.
    """

    name: str
    curves: Mapping[str, Mapping[str, Sequence[float]]]
    noise: float = 0.02  # of each sample at each depth, against the curve's range
    offset: float = 1.0  # how far whole samples lie apart, against the range: a paired test does not see it
    samples: int = 16
    placement: str = "pre"
    parts: Sequence[float] | None = None
    kept: bool = True
    extremes: Mapping[str, tuple[float, int | None, float]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    seed: int = 0
    partial: bool = False

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.values: dict[Cell, Array] = {}
        for policy, metrics in self.curves.items():
            for metric, curve in metrics.items():
                level = np.asarray(curve, dtype=np.float64)
                spread = (level.max() - level.min()) or abs(level[0]) or 1.0
                shift = self.offset * spread * rng.normal(size=(self.samples, 1))
                table = level + shift + self.noise * spread * rng.normal(size=(self.samples, len(level)))
                if self.samples > 1:  # the sample's mean is the curve itself, whatever was drawn
                    table += level - table.mean(0)
                else:
                    table = level[None]
                self._fill(policy, metric, table)

    def _fill(self, policy: str, metric: str, table: Array) -> None:
        names = [name for name, _ in WITHIN[self.placement]]
        parts = self.parts or [1 / len(names)] * len(names)
        for layer in range(table.shape[1] - 1):
            at, step = table[:, layer], table[:, layer + 1] - table[:, layer]
            self.values[Cell(f"blocks.{layer}.pre", metric, policy)] = at
            for name, part in zip(names, parts, strict=True):
                at = table[:, layer + 1] if name == "post" else at + part * step
                self.values[Cell(f"blocks.{layer}.{name}", metric, policy)] = at

    @property
    def layers(self) -> int:
        return 1 + max(int(cell.point.split(".")[1]) for cell in self.values)

    def depth(self, metric: str, policy: str) -> Array:
        """Samples × depths: before the first layer, after each."""
        points = ["blocks.0.pre", *(f"blocks.{i}.post" for i in range(self.layers))]
        return np.stack([self.values[Cell(point, metric, policy)] for point in points], axis=1)

    def made(self, metric: str, policy: str, first: int, last: int) -> dict[str, Array]:
        """By module, what it added over some layers, sample by sample."""
        found: dict[str, Array] = {}
        for layer in range(first, last + 1):
            before = self.values[Cell(f"blocks.{layer}.pre", metric, policy)]
            for name, who in WITHIN[self.placement]:
                after = self.values[Cell(f"blocks.{layer}.{name}", metric, policy)]
                found[who] = found.get(who, 0.0) + (after - before)
                before = after
        return found

    def subject(self) -> Subject:
        cells = {cell: moments(values) for cell, values in self.values.items()}
        metrics = list(dict.fromkeys(cell.metric for cell in cells))
        about = about_measured(
            model={"layers": self.layers, "placement": self.placement},
            data={"reference": "here", "batches": 1},
            settings={"metrics": metrics, "tokens": list(self.curves)},
            definitions={"metrics": dict.fromkeys(metrics, ""), "tokens": dict.fromkeys(self.curves, ""),
                         "changes": dict(READINGS)},
        )  # fmt: skip
        table = np.stack(list(self.values.values()))
        kept = PerSample(tuple(self.values), np.arange(self.samples), table) if self.kept else None
        extremes = {point: self._extreme(*found) for point, found in self.extremes.items()}
        found = Measurement(cells, {}, about, self.partial, list(self.notes), kept, extremes)
        return Subject(self.name, found)

    def _extreme(self, ratio: float, position: int | None, outliers: float) -> Extreme:
        places = range(self.samples) if position is None else [position] * self.samples
        sizes = np.full(self.samples, math.log(ratio))
        return Extreme(moments(sizes), moments(np.full(self.samples, outliers)), Counter(places))


def moments(values: Array) -> Moments:
    found = Moments()
    found.update(torch.from_numpy(values.copy()))
    return found


def plain(html: str) -> str:
    return re.sub(r"<[^>]*>", "", html).replace("&quot;", '"').strip()


def numbers(text: str) -> list[float]:
    """Every number of a paragraph, layer numbers included."""
    return [float(found.replace("−", "-")) for found in re.findall(r"−?\d+(?:\.\d+)?(?:e[−+-]?\d+)?", text)]


def moved(known: Known, metric: str, policy: str, first: int, last: int) -> int:
    """The clear direction of a metric over layers first … last, by scipy's paired test at the level of all pairs."""
    table = known.depth(metric, policy)
    change = table[:, last + 1] - table[:, first]
    others = table.shape[1] * (table.shape[1] - 1) // 2 - 1
    whole = (first, last + 2) == (0, table.shape[1])
    flipped = known.kept and len(change) >= 6 and not whole
    doubt = 0.05 if not others else 0.01 if whole else 0.04 if flipped else 0.04 / others
    size = max(np.abs(table.mean(0)[[first, last + 1]]).max(), 1.0 if metric == "hfc_lfc" else 0.0)
    if abs(change.mean()) <= 64 * np.finfo(np.float32).eps * size:  # rounding of features in float32
        return 0
    if not known.kept:  # the ends alone: their errors added
        error = sum(scipy.stats.sem(table[:, k]) for k in (first, last + 1))
        p = 2 * scipy.stats.t.sf(abs(change.mean()) / error, len(change) - 1)
    elif len(change) == 1 or np.ptp(change) == 0:
        p = 0.0
    else:
        p = doubt_of(metric, table[:, [first, last + 1]])
    if flipped and p < 1:
        p = flipped_p(metric, table, first, last + 1)
    return int(np.sign(change.mean())) if p < doubt else 0


def flipped_p(metric: str, table: Array, first: int, last: int) -> float:
    """How often samples with flipped signs give as large a |t| at any two depths but the ends: all flips, or 1,000."""
    count, depths = table.shape
    if metric != "cosine_similarity" and (table > 0).all():
        table = np.log(table)
    signs = np.array(list(product((1.0, -1.0), repeat=min(count, 10))))
    if count > 10:
        signs = np.random.default_rng(1).choice([1.0, -1.0], size=(1000, count))
    largest, here = np.zeros(len(signs)), 0.0
    for i, j in combinations(range(depths), 2):
        step = table[:, j] - table[:, i]
        sums = np.array([0.0]) if (i, j) == (0, depths - 1) or not step.any() else signs @ step / np.linalg.norm(step)
        largest = np.maximum(largest, np.abs(sums))
        here = abs(step.sum()) / np.linalg.norm(step) if (i, j) == (first, last) else here
    return float((largest >= here * (1 - 1e-9)).mean())


def doubt_of(metric: str, ends: Array) -> float:
    """p of the paired differences of (samples, [before, after]): of logarithms where a metric has a factor."""
    change = ends[:, 1] - ends[:, 0]
    if metric == "cosine_similarity" or (ends <= 0).any():
        return float(scipy.stats.ttest_1samp(change / np.abs(change).max(), 0).pvalue)
    factors = np.log(ends[:, 1]) - np.log(ends[:, 0])
    return float(scipy.stats.ttest_1samp(factors, 0).pvalue) if factors.mean() * change.mean() > 0 else 1.0


@dataclass(frozen=True)
class Claim:
    """What a clause says of layers first … last: +1 they smooth, −1 they sharpen, 0 no clear change."""

    way: int
    first: int
    last: int
    most: int | None = None
    uneven: bool = False  # "on the whole": it goes back on the way by a fifth of the curve's range or more


def read_course(text: str, layers: int) -> list[Claim]:
    """The claims of the first sentence of a model's paragraph."""
    verbs = {"smooths": 1, "sharpens": -1, "shows no clear change": 0, "does not clearly change": 0}
    claims: list[Claim] = []
    for clause in re.split(r", then ", text):
        way = next(value for verb, value in verbs.items() if verb in clause)
        first = claims[-1].last + 1 if claims else 0
        through, inside = re.search(r"through layer (\d+)", clause), re.search(r"(?<!most) in layer (\d+)", clause)
        most = re.search(r"most in layer (\d+)", clause)
        if inside:
            assert first == int(inside[1]), clause
        last = int(through[1]) if through else first if inside or "in its one layer" in clause else layers - 1
        claims.append(Claim(way, first, last, int(most[1]) if most else None, "on the whole " in clause))
    assert claims[-1].last == layers - 1, text
    return claims


def check_course(known: Known, text: str, metric: str, policy: str) -> list[Claim]:
    """Every claim of a course sentence against the raw curve; gives the claims."""
    claims = read_course(text, known.layers)
    mean = known.depth(metric, policy).mean(0)
    for claim in claims:
        assert moved(known, metric, policy, claim.first, claim.last) * SMOOTHER[metric] == claim.way, (claim, text)
        if claim.way:
            part = mean[claim.first : claim.last + 2] * SMOOTHER[metric] * claim.way
            back = max(a - b for a, b in combinations(part, 2))
            assert claim.uneven == (back >= 0.2 * np.ptp(mean)), (claim, text)
        if claim.most is not None:
            steps = {
                k: (mean[k + 1] - mean[k]) * SMOOTHER[metric] * claim.way for k in range(claim.first, claim.last + 1)
            }
            others = [size for layer, size in steps.items() if layer != claim.most]
            assert steps[claim.most] >= 1.25 * max(others), (claim, steps)
    for a, b in pairwise(claims):
        assert a.way != b.way  # neighbours that do the same are one
        if a.way and b.way:  # a turn is the farthest point of both
            both = mean[a.first : b.last + 2] * -SMOOTHER[metric] * a.way
            assert int(both.argmin()) == a.last + 1 - a.first, text
    if "in every layer" in text:
        assert (np.diff(mean) > 0).all() or (np.diff(mean) < 0).all()
    elif len(claims) == 1 and claims[0].way and known.layers > 1:
        assert np.diff(mean).min() < 0 < np.diff(mean).max(), text
    if ends := re.search(r"\(([^()]*?) (\S+) → (?:(\S+) → )?(\S+)\)", text):
        assert ends[1] == TITLES[metric]
        far = max(mean, key=lambda value: max(value - max(mean[[0, -1]]), min(mean[[0, -1]]) - value))
        for said, value in ((ends[2], mean[0]), (ends[3], far), (ends[4], mean[-1])):
            assert said is None or numbers(said)[0] == float(f"{value:.3g}"), text
        if metric != "cosine_similarity" and not claims[0].way:
            assert (ends[3] is not None) == (min(mean) > 0 and min(np.abs(np.log(far / mean[[0, -1]]))) >= np.log(1.1)
                                             and not min(mean[[0, -1]]) <= far <= max(mean[[0, -1]])), text  # fmt: skip
    return claims


WHOLE = r"(?:first |second )?(?:smoothing|sharpening)"


def check_makers(known: Known, text: str, claims: Sequence[Claim], metric: str, policy: str) -> None:
    """Who is said to make a stretch, or to work against it, did so clearly and by a quarter or more; no other did."""
    clear = [claim for claim in claims if claim.way]
    clauses = [c for c in re.split(r"; ", text.rstrip(".")) if re.search("comes? from|clearly makes", c)]
    about = {whole: clause for clause in clauses for whole in re.findall(WHOLE, clause.partition(" from ")[0])}
    assert len(about) == len(clear), text
    assert len(clauses) == len({c.partition(" from ")[2] or c for c in clauses}), text  # said once
    for claim in clear:
        word = {1: "smoothing", -1: "sharpening"}[claim.way]
        alike = [other for other in clear if other.way == claim.way]
        order = "" if len(alike) == 1 else ("first ", "second ")[alike.index(claim)]
        clause = about[f"{order}{word}"]
        toward = {}
        found = known.made(metric, policy, claim.first, claim.last)
        for who, change in found.items():
            doubt = 0.05 / len(found)
            sure = len(change) == 1 or scipy.stats.ttest_1samp(change, 0).pvalue < doubt
            if sure:
                toward[who] = float(change.mean()) * SMOOTHER[metric] * claim.way
        whole = sum(v for v in toward.values() if v > 0)
        expected = {who for who, v in toward.items() if v > 0 and v >= whole / 4}
        against = {who for who, v in toward.items() if v < 0 and -v >= whole / 4}
        said, _, opposed = clause.partition(", while ")
        named = {who for who in ("attention", "the MLP", "the normalisation") if who in said.partition(" from ")[2]}
        assert named == expected, (clause, toward)
        assert {who for who in ("attention", "the MLP", "the normalisation") if who in opposed} == against, clause
