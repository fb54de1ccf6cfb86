"""The paper's ImageNet and Pile columns: results of models that are too large to ship, kept as JSON.

`zoo/results/models` (or `--runs`) holds a folder for each: `record.json`, `measurement.json` at all points,
`superglue.json` for text. What is not there yet is an empty cell with the command that would fill it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unsmooth.analysis import Measurement, load_measurement
from unsmooth.errors import UnsmoothError
from unsmooth.paper.by_kind import KINDS, READINGS, Changes, summarised
from unsmooth.paper.item import Context, Table, Value
from unsmooth.paper.published import column
from unsmooth.paper.records import VARIANTS, short_variant
from unsmooth.sources.trained import zoo_folder
from unsmooth.training.engine.record import RECORD, TrainingRecord
from unsmooth.training.tasks import find_recipe

TABLES = {"table1": "hfc_lfc", "table2": "effective_rank", "table3": "cosine_similarity"}
WANTED = ("plain", "sharpening-split", "smoothing-split", "sharpening", "smoothing")
LOOKS = frozenset({"every", "held_out", "metric_sequences", "metric_images"})  # of a recipe: what changes no training


@dataclass(frozen=True, eq=False)
class Column:
    """A model of the paper, what it was trained on, our recipes for it (the nearest first), and how to run them."""

    data: str
    model: str
    recipes: dict[str, str]  # our recipe -> what ours was trained on
    command: str


COLUMNS = (
    Column(
        "ImageNet",
        "ViT-S",
        {
            "imagenet": "ImageNet",
            "imagenet-90": "ImageNet, by another recipe (90 epochs)",
            "tiny-imagenet": "Tiny-ImageNet (stand-in)",
        },
        "unsmooth train tiny-imagenet --variant NAME --data PATH --results zoo/results/models",
    ),
    Column(
        "The Pile",
        "Cram. Bert",
        {
            "crammed-bert": "Wikipedia and books (stand-in)",
            "small-text": "Wikipedia and books (stand-in); 2.2 M parameters",
        },
        "unsmooth train crammed-bert --variant NAME --budget 15m --data TEXTS --results zoo/results/models "
        "--superglue PATH",
    ),
)


@dataclass(frozen=True)
class Kept:
    """Results of one trained model."""

    folder: Path
    record: TrainingRecord

    def measurement(self) -> Measurement | None:
        """What `unsmooth measure` found, if it is there."""
        path = self.folder / "measurement.json"
        return load_measurement(path) if path.is_file() else None


@dataclass(frozen=True, eq=False)
class ColumnModels:
    """All seeds of one variant of a column's model."""

    column: Column
    recipe: str
    variant: str
    models: tuple[Kept, ...]

    @property
    def base(self) -> str:
        """The variant as the published tables name it."""
        return self.variant.partition("-")[0]

    @property
    def title(self) -> str:
        """As the published columns are called, with our form: `Cram. Bert (sharpening), split`; a small one by its own
        name."""
        return variant_title("small-text" if self.recipe == "small-text" else self.column.model, self.variant)

    @property
    def trained_on(self) -> str:
        """The data, or what stood in for it."""
        return self.column.recipes[self.recipe]

    def changes(self, table: str) -> Changes:
        """One of Tables 1 to 3 for it, in both readings; empty where nothing was measured."""
        measured = [m for kept in self.models if (m := kept.measurement()) is not None]
        return summarised(measured, TABLES[table])

    def published(self, table: str) -> dict[str, float]:
        """The column of the paper that it stands beside."""
        return column(table, self.column.data, self.column.model, self.base)

    def curves(self, metric: str) -> list[list[float]]:
        """The metric after every block at the end of training, one curve a seed."""
        ends = [kept.record.end.get("smoothing", {}) for kept in self.models]
        return [end[metric] for end in ends if metric in end]


def variant_title(model: str, variant: str) -> str:
    """A model's name with its variant.

    >>> variant_title("ViT-S", "plain"), variant_title("ViT-S", "smoothing-split")
    ('ViT-S', 'ViT-S (smoothing), split')
    """
    base, _, form = variant.partition("-")
    return model if base == "plain" else f"{model} ({base})" + (f", {form}" if form else "")


def results_folder(context: Context) -> Path:
    """`--runs`, or the results that ship with the project."""
    return context.runs or zoo_folder() / "results" / "models"


def kept_groups(context: Context, notes: list[str]) -> list[ColumnModels]:
    """Every group of which a model has results, in the order of the columns, recipes and variants."""
    found: dict[tuple[str, str], dict[str, Kept]] = {}
    short: dict[tuple[str, str], list[str]] = {}
    for path in sorted(results_folder(context).glob(f"**/{RECORD}")):
        try:
            record = TrainingRecord.load(path)
        except UnsmoothError as error:
            notes.append(f"left out: {error}")
            continue
        variant = short_variant(record.variant)
        if variant.partition("-")[0] not in VARIANTS or "@" in variant:
            continue  # of a study, not of the paper
        if changed := _changes(record):
            notes.append(f"{record.run} was not trained by its recipe as it stands, but with {', '.join(changed)}")
        if record.budget:
            short.setdefault((str(record.recipe.get("name")), record.budget), []).append(variant)
        kept = Kept(path.parent, replace(record, variant=variant))
        found.setdefault((str(record.recipe.get("name")), variant), {}).setdefault(record.run, kept)
    for (recipe, budget), variants in short.items():
        notes.append(f"{recipe}, {', '.join(variants)}: trained with --budget {budget}, not for the recipe's steps")
    groups = []
    for each in COLUMNS:
        for recipe in each.recipes:
            variants = [variant for name, variant in found if name == recipe]
            order = [v for v in WANTED if v in variants] + sorted(set(variants) - set(WANTED))
            groups += [ColumnModels(each, recipe, v, tuple(found[recipe, v].values())) for v in order]
    return groups


def _changes(record: TrainingRecord) -> list[str]:
    """What the record's recipe has that the one of its name has not."""
    try:
        standard = find_recipe(str(record.recipe.get("name")))
    except UnsmoothError:
        return []
    return [
        f"{key}={value}"
        for key, value in record.recipe.items()
        if key not in LOOKS and getattr(standard, key, value) != (tuple(value) if isinstance(value, list) else value)
    ]


def missing(groups: Sequence[ColumnModels]) -> dict[Column, list[str]]:
    """By column, the variants of which there is no result."""
    have = {(group.column.data, group.variant) for group in groups if group.recipe != "small-text"}
    return {each: lacking for each in COLUMNS if (lacking := [v for v in WANTED if (each.data, v) not in have])}


def _missing_rows(groups: Sequence[ColumnModels]) -> list[list[Value]]:
    """Empty cells for every variant of a column without any result."""
    return [
        [each.data, variant_title(each.model, variant), *[None] * 4, "missing"]
        for each, lacking in missing(groups).items()
        for variant in lacking
    ]


def missing_in_words(groups: Sequence[ColumnModels], data: str | None = None) -> list[str]:
    """The commands that would fill the empty cells, of all columns or those of one data set."""
    return [
        f"no results yet for {each.data}: {', '.join(lacking)}; `{each.command}` trains one and keeps its results"
        for each, lacking in missing(groups).items()
        if data in (None, each.data)
    ]


def changes_table(name: str, groups: Sequence[ColumnModels]) -> Table:
    """One of Tables 1 to 3 for the ImageNet and text models, in both readings, beside the published column."""
    form = "+.2f" if name == "table2" else "+.3f"
    rows: list[list[Value]] = []
    for group in groups:
        found, theirs = group.changes(name), group.published(name)
        if not any(found.values()):
            rows.append([group.column.data, group.title, *[None] * 4, "no measurement.json at all points is here"])
        for reading, kinds in found.items():
            for kind, ours in kinds.items():
                sign = "sign differs" if ours.mean * theirs[kind] < 0 else ""
                shown = [reading, kind, ours.show(form), f"{theirs[kind]:{form}}", sign]
                rows.append([group.column.data, group.title, *shown])
    columns = ["published data", "model", "reading", "kind", "ours", "published", "note"]
    trained = "; ".join(dict.fromkeys(f"{group.column.data}: {group.trained_on}" for group in groups))
    return Table(f"ImageNet and text{trained and f' ({trained})'}", columns, rows + _missing_rows(groups))


def nearest(groups: Sequence[ColumnModels], data: str, model: str) -> ColumnModels | None:
    """The group that stands beside a published column: of the nearest recipe, in the paper's form if there is one."""
    same = [g for g in groups if (g.column.data, variant_title(g.column.model, g.base)) == (data, model)]
    order = [(list(g.column.recipes).index(g.recipe), not g.variant.endswith("-split")) for g in same]
    return same[order.index(min(order))] if same else None


def signs(group: ColumnModels) -> dict[str, tuple[int, int]]:
    """By reading: how many of the cells of Tables 1 to 3 have the published sign, and how many there are."""
    found = dict.fromkeys(READINGS, (0, 0))
    for name in TABLES:
        theirs = group.published(name)
        for reading, kinds in group.changes(name).items():
            agree, count = found[reading]
            found[reading] = (
                agree + sum(kinds[kind].mean * theirs[kind] > 0 for kind in kinds),
                count + sum(kind in kinds for kind in KINDS),
            )
    return found


def signs_table(groups: Sequence[ColumnModels]) -> Table:
    """How many of each model's cells have the published sign."""
    found = [(group, signs(group)) for group in groups]
    rows: list[list[Value]] = [
        [group.title, group.trained_on, *(f"{agree} of {count}" for agree, count in (counts[r] for r in READINGS))]
        for group, counts in found
        if any(count for _, count in counts.values())
    ]
    title = "Cells of Tables 1 to 3 with the published sign, by reading (`residual` has no LayerNorm)"
    return Table(title, ["model", "trained on", *READINGS], rows)
