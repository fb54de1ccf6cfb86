"""All records and saved results, read once, for the questions that are put to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, NamedTuple

from unsmooth.analysis import load_explanation
from unsmooth.control.variant import Variant
from unsmooth.metrics.differences import Comparison, compare_seeds
from unsmooth.paper.explains import rows_of
from unsmooth.paper.item import Context
from unsmooth.paper.records import (
    VARIANTS,
    Run,
    accuracies,
    json_files,
    load_failures,
    load_records,
    percent,
    records_folder,
    saved_result,
    with_start,
)
from unsmooth.prose import counted
from unsmooth.training.engine.record import TrainingRecord
from unsmooth.training.tasks import RECIPES, find_recipe

EXPLANATION = "explanation.json"
TEN = 0.1  # the share of the data that most runs saw
PAPERS = "cifar100"
# What sentences call the recipes that answer: the paper's, and two in which the list `study` takes less time.
NAMES = {PAPERS: "the paper's recipe", "cifar100-fast": "the short recipe", "cifar100-small": "the small recipe"}
DEPTH = 12  # layers of each
Metric = Literal["hfc_lfc", "cosine_similarity", "effective_rank"]


class Evidence:
    """Records of one recipe's runs by share of the data, draw of images, start and depth; results of other items."""

    def __init__(self, context: Context, recipe: str = PAPERS) -> None:
        self.context, self.recipe = context, recipe
        self.notes: list[str] = []
        self.records = load_records(context, self.notes, recipe, any_start=True, any_subset=True)

    @cached_property
    def others(self) -> list[Evidence]:
        """The same of every shorter recipe that has runs."""
        found = [Evidence(self.context, recipe) for recipe in NAMES if recipe != PAPERS]
        return [each for each in found if each.all_records or each.failures]

    @property
    def recipes(self) -> list[Evidence]:
        """Everyone who is asked: the shorter recipes, which have more of the variants, before the paper's."""
        return [*self.others, self]

    @property
    def name(self) -> str:
        """What sentences call the recipe."""
        return NAMES[self.recipe]

    @property
    def title(self) -> str:
        """What tables call the recipe and its data."""
        recipe: Any = find_recipe(self.recipe)
        what = f"`{self.recipe}`: patch {recipe.patch_size}, {recipe.epochs} epochs"
        return f"T{self.name[1:]} ({what}) on {percent(TEN)} of the images"

    @property
    def all_records(self) -> list[TrainingRecord]:
        """Those of the recipe and of its siblings of other depths."""
        deep = [r for layers, records in self.depths.items() if layers != DEPTH for r in records]
        return [*self.records, *deep]

    def runs(self, share: float | None = TEN, subset: int | None = 0) -> list[TrainingRecord]:
        """Runs that started as the paper says, on one share of the data and one draw of the images."""
        return [
            r for r in self.records
            if r.std is None and share in (None, r.fraction) and subset in (None, r.subset)
        ]  # fmt: skip

    def accuracy(self, share: float = TEN, subset: int | None = 0) -> dict[str, dict[Run, float]]:
        """Accuracy in % by variant and seed."""
        return accuracies(self.runs(share, subset))

    def by_seed(self, variant: str, value: Callable[[TrainingRecord], Any]) -> dict[int, float]:
        """A value of each run on 10 % that has it."""
        runs = [r for r in self.runs() if r.variant == variant]
        return {r.seed: float(value(r)) for r in runs if value(r) is not None}

    def against_plain(self, names: Iterable[str], share: float = TEN, subset: int | None = 0) -> list[Comparison]:
        """These variants against plain, corrected as one family."""
        found = self.accuracy(share, subset)
        return compare_seeds(found.get("plain", {}), {name: found[name] for name in names if name in found})

    def ratio(self, variant: str) -> str:
        """HFC/LFC of the last block at the end of training on 10 %, mean over seeds; nothing where none was logged."""
        ends = self.by_seed(variant, last_ratio).values()
        return f"{fmean(ends):.2f}" if ends else ""

    def by_variant(
        self, names: Iterable[str], value: Callable[[TrainingRecord], float | None]
    ) -> dict[str, dict[int, float]]:
        """A value of the runs on 10 % by variant, with its start of ψ (`with_start`), and seed, where it is known."""
        runs = [r for r in self.records if (r.fraction, r.subset) == (TEN, 0)]
        found: dict[str, dict[int, float]] = {name: {} for name in names}
        for record in runs:
            if (name := with_start(record)) in found and (v := value(record)) is not None:
                found[name][record.seed] = float(v)
        return {name: seeds for name, seeds in found.items() if seeds}

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        """Runs of this recipe that broke, at any depth."""
        names = re.compile(rf"{self.recipe}(-depth\d+)?")
        return [f for f in load_failures(self.context) if names.fullmatch(f.get("recipe", {}).get("name", self.recipe))]

    def broken(self, which: Callable[[dict[str, Any]], bool]) -> str:
        """The runs of a kind that broke, in a sentence; nothing where none did."""
        names = sorted({str(run.get("run")) for run in self.failures if which(run)})
        said = f"{counted(len(names), 'run')} broke and {'is' if len(names) == 1 else 'are'} in no mean"
        return f" {said}: {', '.join(names)}." if names else ""

    @cached_property
    def starts(self) -> dict[str, dict[Run, float]]:
        """Accuracy by variant and standard deviation of ψ at the start."""
        return accuracies((r for r in self.records if r.std is not None and r.fraction == TEN), with_start)

    @cached_property
    def depths(self) -> dict[int, list[TrainingRecord]]:
        """Runs on 10 % by the model's depth."""
        found: dict[int, list[TrainingRecord]] = {DEPTH: [r for r in self.runs() if r.variant in VARIANTS]}
        for name in RECIPES:
            if match := re.fullmatch(rf"{self.recipe}-depth(\d+)", name):
                found[int(match[1])] = load_records(self.context, [], recipe=name)
        return {depth: found[depth] for depth in sorted(found) if found[depth]}

    @cached_property
    def corruptions(self) -> dict[tuple[str, float], dict[int, list[float]]]:
        """Accuracy in % on clean images and at intensities 1 to 5, by variant and share, by seed."""
        found: dict[tuple[str, float], dict[int, list[float]]] = {}
        for _, content in json_files(records_folder(self.context), "*.corruptions.json", []):
            if {"variant", "fraction", "seed", "clean", "corruptions"} <= content.keys():
                shares = [content["clean"]["accuracy"], *(content["corruptions"]["mean"][s] for s in "12345")]
                seeds = found.setdefault((content["variant"], content["fraction"]), {})
                seeds[content["seed"]] = [100 * share for share in shares]
        return found

    def exponent(self, variant: str, std: float | None = None) -> Exponent | None:
        """What γ says of the steps of the explained models of a variant on 10 %, and how often it is right."""
        start = "" if std is None else f"-std{std:g}"
        name = re.compile(rf"{self.recipe}-10pct-{re.escape(variant + start)}-seed\d+")
        rows = [row for row in self._explained if name.fullmatch(row["model"])]
        if not rows:
            return None
        up, rises, right = ([100 * float(row[key]) for row in rows] for key in ("up", "rises", "right"))
        return Exponent(len(rows), fmean(up), fmean(rises), fmean(right))

    @cached_property
    def _explained(self) -> list[dict[str, Any]]:
        """What γ says of each explained model, under its run's name: kept results, and explanations in `--runs`."""
        if self.context.runs is None:
            rows = saved_result("explains", of="study").get("about", {}).get("explained", [])
        else:
            explanations = map(load_explanation, sorted(self.context.runs.glob(f"**/{EXPLANATION}")))
            rows = [row for e in explanations for row in rows_of(e.about.model.reference or "", e)]
        return [row for row in rows if (row["candidate"], row["tokens"]) == ("exponent", "all")]


class Exponent(NamedTuple):
    """Of some models' steps, layers by inputs: in how many γ is above 0, HFC/LFC rises, and both agree; in %."""

    models: int
    up: float
    rises: float
    right: float


def is_bounded(record: TrainingRecord) -> bool:
    """Whether the variant bounds its eigenvalues by the scale of the norm."""
    return Variant.parse(record.variant).reach is not None


def last(metric: Metric) -> Callable[[TrainingRecord], float | None]:
    """A metric of the last block at the end of training, where it was logged."""

    def value(record: TrainingRecord) -> float | None:
        return record.end.get("smoothing", {}).get(metric, [None])[-1]

    return value


last_ratio = last("hfc_lfc")


def points(record: TrainingRecord) -> float:
    """Accuracy in %."""
    return 100 * float(record.final["accuracy"])
