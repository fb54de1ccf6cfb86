"""What our own runs reached: the records in `zoo/records`, or those of a folder of runs."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unsmooth.control.variant import STANDARD_DEVIATION, Variant
from unsmooth.errors import CheckpointError, DataError, OptionError
from unsmooth.metrics.differences import welch_interval
from unsmooth.paper.item import Context, Value
from unsmooth.prose import counted
from unsmooth.sources.trained import zoo_folder
from unsmooth.training import find_recipe
from unsmooth.training.engine.record import FAILURE_SCHEMA, SCHEMA, TrainingRecord

Run = tuple[int, int]  # the draw of the images and the seed
VARIANTS = ("plain", "smoothing", "sharpening")
TITLES = {"plain": "ViT-Ti", "smoothing": "ViT-Ti⁺ (smoothing)", "sharpening": "ViT-Ti⁻ (sharpening)"}
OTHER_VARIANT = "of a variant that the table does not have"
LOGGING = frozenset({"every", "metric_images"})  # how often a run looked at itself does not change what it trained


def records_folder(context: Context) -> Path:
    """`--runs`, or the records that ship with the project."""
    folder = Path(context.runs or zoo_folder() / "records")
    if context.runs is not None and not folder.is_dir():
        raise DataError(f"no folder of runs at {folder}: expected what `unsmooth train --out` or zoo/records holds")
    return folder


def json_files(folder: Path, pattern: str, notes: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of these files and the objects in them; a file that is cut short is named in the notes and left out."""
    for path in sorted(folder.glob(f"**/{pattern}")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError, OSError):
            notes.append(f"left out, not readable as JSON: {path.name}")
            continue
        if isinstance(content, dict):
            yield path.name, content


def saved_result(item: str, of: str = "") -> dict[str, Any]:
    """What `unsmooth reproduce ITEM --out zoo/results/OF/ITEM.json` wrote; empty where it is not there."""
    path = zoo_folder() / "results" / of / f"{item}.json"
    return _read_result(path, item) if path.is_file() else {}


def earlier_result(reference: str, item: str) -> dict[str, Any]:
    """What `unsmooth reproduce ITEM --out` says its models gave; empty if another verb wrote it, or it is no file."""
    try:
        content = json.loads(Path(reference).read_text(encoding="utf-8")) if reference.endswith(".json") else None
    except (json.JSONDecodeError, UnicodeDecodeError, OSError):
        return {}  # what reads explanations says what is wrong
    if not isinstance(content, dict) or content.get("name") != item:
        return {}
    about: dict[str, Any] = _read_result(Path(reference), item)["about"]
    return about


def _read_result(path: Path, item: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if missing := {"tables", "notes", "about"} - found.keys():
            raise KeyError(*missing)
    except (json.JSONDecodeError, KeyError, AttributeError) as error:
        raise DataError(
            f"{path} is not what `unsmooth reproduce {item} --out` writes ({error!r}): write it again"
        ) from None
    return found


def short_variant(variant: str) -> str:
    """The poster's form under its short name: `sharpening` and `sharpening-symmetric` are one."""
    return variant.removesuffix("-symmetric")


def load_records(
    context: Context, notes: list[str], recipe: str = "cifar100", any_start: bool = False, any_subset: bool = False
) -> list[TrainingRecord]:
    """Each finished run of exactly this recipe, once; `notes` gets what was left out, and the runs that broke.

    Runs whose ψ started with another standard deviation than the form's own are others, unless `any_start`; so are
    those on another draw of a share's images, unless `any_subset`.
    """
    standard = find_recipe(recipe).as_dict()
    found: dict[tuple[Any, ...], TrainingRecord] = {}
    changed = elsewhere = 0
    for name, content in json_files(records_folder(context), "*.json", notes):
        if content.get("schema") == FAILURE_SCHEMA:
            how = str(content.get("failed", "nothing says how")).partition(": expected")[0]
            notes.append(f"the run {content.get('run', name)} broke: {how}")
        if content.get("schema") != SCHEMA:
            continue
        try:
            record = _own_start(TrainingRecord.from_json(content, name))
        except (CheckpointError, OptionError) as error:
            notes.append(f"left out: {error}")
            continue
        if record.recipe.get("name") != recipe:
            continue
        differs = [k for k, v in record.recipe.items() if k not in LOGGING and standard.get(k) != v]
        if differs or record.same_steps or record.budget or (record.std is not None and not any_start):
            changed += 1
        elif record.subset != 0 and not any_subset:
            elsewhere += 1
        else:  # a run's folder and its copy in zoo/records count once
            found.setdefault((record.variant, record.std, record.fraction, record.subset, record.seed), record)
    if elsewhere:
        notes.append(
            f"left out: {counted(elsewhere, 'run')} on other draws of the images (--subset), which `findings` reads"
        )
    if changed:
        notes.append(
            f"left out: {counted(changed, 'run')} with a changed recipe (--set, --std, --same-steps, --budget)"
        )
    return list(found.values())


def _own_start(record: TrainingRecord) -> TrainingRecord:
    """A record by its variant's short name, and without a standard deviation of ψ that is the form's own."""
    variant = short_variant(record.variant)
    own = record.std is not None and record.std == STANDARD_DEVIATION[Variant.parse(variant).form]
    return replace(record, variant=variant, std=None if own else record.std)


def with_start(record: TrainingRecord) -> str:
    """A run's variant, and how its ψ started where that is not the form's own way."""
    return record.variant + ("" if record.std is None else f" (ψ's std {record.std:g})")


def load_failures(context: Context) -> list[dict[str, Any]]:
    """What is known of each run that broke: the run, its variant and ψ's start, how it ended."""
    files = json_files(records_folder(context), "*.json", [])
    return [content for _, content in files if content.get("schema") == FAILURE_SCHEMA]


def accuracies(
    records: Iterable[TrainingRecord], name: Callable[[TrainingRecord], str] = lambda record: record.variant
) -> dict[str, dict[Run, float]]:
    """Accuracy in % by variant, or what `name` calls it, and by subset and seed."""
    found: dict[str, dict[Run, float]] = {}
    for record in records:
        found.setdefault(name(record), {})[record.subset, record.seed] = 100 * record.final["accuracy"]
    return found


def share_of(name: str, known: float | None = None) -> float | None:
    """The share of the training data that a model saw: what is `known` of it, or what its name says.

    >>> share_of("mine", 0.5), share_of("zoo:cifar100-10pct-plain"), share_of("mine")
    (0.5, 0.1, None)
    """
    if known is not None:
        return float(known)
    if match := re.search(r"-(\d+(?:\.\d+)?)pct", name):
        return float(match[1]) / 100
    return 1.0 if re.search(r"(^|[/:])cifar100-", name) else None  # a run on all data has no share in its name


def percent(share: float | None) -> str:
    """A share in words.

    >>> percent(0.1), percent(None)
    ('10 %', '?')
    """
    return "?" if share is None else f"{100 * share:g} %"


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation over seeds; no deviation for one seed."""

    mean: float
    std: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary | None:
        """Of no values, nothing.

        >>> str(Summary.of([1.0, 3.0])), str(Summary.of([2.0]))
        ('2.00 ± 1.41 (n=2)', '2.00 (n=1)')
        """
        if not values:
            return None
        std = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), std, len(values))

    def show(self, form: str = ".2f") -> str:
        """With the mean in another format; the deviation has as many digits."""
        spread = "" if self.std is None else f" ± {self.std:{form.lstrip('+')}}"
        return f"{self.mean:{form}}{spread} (n={self.count})"

    def __str__(self) -> str:
        return self.show()


def beside(ours: dict[str, Summary | None], theirs: dict[str, Sequence[float]]) -> dict[str, list[Value]]:
    """For one column: ours, published, difference, and a mark where two variants stand in another order."""
    rows: dict[str, list[Value]] = {}
    for variant in VARIANTS:
        mean, spread = theirs[variant]
        mine = ours.get(variant)
        gap = None if mine is None else f"{mine.mean - mean:+.2f}"
        swapped = _swapped(variant, ours, theirs)
        mark = f"order differs from {', '.join(swapped)}" if swapped else None
        rows[variant] = [None if mine is None else str(mine), f"{mean:.2f} ± {spread:g}", gap, mark]
    return rows


def _swapped(variant: str, ours: dict[str, Summary | None], theirs: dict[str, Sequence[float]]) -> list[str]:
    found = []
    for other in VARIANTS:
        a, b = ours.get(variant), ours.get(other)
        if a is None or b is None or other == variant:
            continue
        if (a.mean - b.mean) * (theirs[variant][0] - theirs[other][0]) < 0:
            found.append(TITLES[other] + _doubt(a, b))
    return found


def _doubt(a: Summary, b: Summary) -> str:
    """What keeps a difference of two means from being claimed: too few seeds, or an interval that holds zero."""
    if a.std is None or b.std is None:
        return " (one seed: no claim)"
    half, _ = welch_interval((a.std / a.count**0.5, b.std / b.count**0.5), (a.count, b.count))
    return " (interval holds 0: no claim)" if abs(a.mean - b.mean) <= half else ""


def provenance(records: Iterable[TrainingRecord]) -> dict[str, Any]:
    """Where the numbers come from, run by run."""
    keys = ("command", "commit", "seed", "hardware", "date", "minutes", "speed")
    return {record.run: {key: getattr(record, key) for key in keys} for record in records}
