"""All records and saved results, read once, for the questions that are put to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property
from statistics import fmean
from typing import Any

from unsmooth.analysis import load_explanation
from unsmooth.figures.text import counted
from unsmooth.metrics.differences import Comparison, compare_seeds
from unsmooth.paper.columns import results_folder
from unsmooth.paper.explains import rows_of
from unsmooth.paper.item import Context
from unsmooth.paper.records import (
    VARIANTS,
    Run,
    accuracies,
    json_files,
    load_failures,
    load_records,
    records_folder,
    saved_result,
    with_start,
)
from unsmooth.training.engine.record import TrainingRecord
from unsmooth.training.tasks import RECIPES

EXPLANATION = "explanation.json"
TEN = 0.1  # the share of the data that most runs saw


class Evidence:
    """Records of training runs by share of the data, draw of the images, start and depth; results of other items."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.notes: list[str] = []
        self.records = load_records(context, self.notes, any_start=True, any_subset=True)

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

    @cached_property
    def failures(self) -> list[dict[str, Any]]:
        """Runs that broke, of any recipe."""
        return load_failures(self.context)

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
        found: dict[int, list[TrainingRecord]] = {12: [r for r in self.runs() if r.variant in VARIANTS]}
        for name in RECIPES:
            if match := re.fullmatch(r"cifar100-depth(\d+)", name):
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

    def exponent_right(self, variant: str) -> float | None:
        """How often γ has the sign of the measured step, in a kept explanation of a run on 10 % or in the zoo's."""
        for path in sorted(results_folder(self.context).glob(f"**/{EXPLANATION}")):
            explanation = load_explanation(path)
            if re.fullmatch(rf"cifar100-10pct-{variant}-seed\d+", explanation.about.model.reference or ""):
                (row,) = (r for r in rows_of("", explanation) if (r["candidate"], r["tokens"]) == ("exponent", "all"))
                return row["right"]
        for row in saved_result("explains").get("about", {}).get("explained", []):
            if (row["model"], row["candidate"], row["tokens"]) == (f"CIFAR-100 10 %, {variant}", "exponent", "all"):
                return float(row["right"])
        return None


def last_ratio(record: TrainingRecord) -> float | None:
    """HFC/LFC of the last block at the end of training."""
    smoothing = record.end.get("smoothing")
    return smoothing["hfc_lfc"][-1] if smoothing else None
