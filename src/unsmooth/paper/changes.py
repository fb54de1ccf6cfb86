"""Tables 1–3: change by kind of layer of our models, in both readings, beside all published columns."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from unsmooth.analysis import Measurement
from unsmooth.errors import DataError, UnsmoothError
from unsmooth.paper.by_kind import KINDS, READINGS, Changes, summarised
from unsmooth.paper.columns import ColumnModels, changes_table, kept_groups, missing_in_words, nearest, signs_table
from unsmooth.paper.depth import about, chosen_models, data_names, measured_models
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.pretrained import spelled_out
from unsmooth.paper.published import cifar100_column, published
from unsmooth.paper.records import OTHER_VARIANT, TITLES, VARIANTS, percent, share_of
from unsmooth.sources.trained import trained_folder

FORMS = (
    "form: the paper's reparametrised models have several heads, so footnote 2's `split` form; ours without a form in "
    "their name have the poster's `symmetric` one"
)
_ONE_SUM = "as their blocks add attention and MLP in one sum, which gives neither a change of its own"
COPYING_ERROR = (
    "the published sharpening column prints +0.418 for attention and for the MLP: a copying error would explain why "
    "its MLPs sharpen here and smooth in Tables 2 and 3"
)
NAMESAKES = frozenset({"ViT-S", "ViT-B", "DeiT-B", "ViT-L", "DeiT3-L", "Cram. Bert"})
CLEARLY = 0.8  # a mean gap below this share of the other one's is clearly smaller


class Group(NamedTuple):
    """Models of one variant that saw the same share of the data."""

    variant: str  # plain, or a mode with its form where that is not the poster's: sharpening-eigen
    share: float | None

    @property
    def base(self) -> str:
        """The variant that the published tables have."""
        return self.variant.partition("-")[0]

    @property
    def title(self) -> str:
        """ViT-Ti with its sign, and the form."""
        form = self.variant.partition("-")[2]
        return TITLES[self.base] + (f", {form}" if form else "")


def table_item(name: str, metric: str, title: str) -> Item:
    """One of the three tables."""
    return Item(
        name,
        "paper",
        f"Change in {title} by kind of layer (LayerNorm, Attention, MLP): all 13 columns, ours beside those we have",
        needs="the shipped models, measured now (records do not hold the norms' outputs), on the bundled pictures "
        "unless --data names CIFAR-100's test parquet; seconds. --model NAME=REFERENCE for your own, repeatable for "
        "several seeds (name or configuration must tell plain, sharpening or smoothing; or the name is a published "
        "column's, like ViT-B), or a RUN.json of `unsmooth measure`. --model published --data IMAGES needs the hub. "
        "The ImageNet and text columns come from results that were kept (zoo/results/models, or --runs).",
        run=lambda context: run_table(name, metric, context),
    )


def run_table(name: str, metric: str, context: Context) -> Result:
    """Measure the models and put the mean changes beside the published column of their variant."""
    named = bool(context.models)
    context = replace(context, models=spelled_out(chosen_models(context)))
    found = measured_models(context, metric, points="all")  # `chain` needs the norms' outputs
    kin = {model: found.pop(model) for model in set(found) & NAMESAKES}
    members, left_out = grouped(found)
    found |= kin
    if not (members or kin):
        known = "no model of a known variant: its name must contain plain, sharpening or smoothing"
        raise DataError(known if OTHER_VARIANT in left_out else f"no model is left: all are left out, {_ONE_SUM}")
    groups = {group: summarised(measurements, metric) for group, measurements in members.items()}
    columns = ["model", "trained on", "reading", "kind", "ours", "published (100 %)", "note"]
    notes = [better_reading(name, groups)] if groups else []
    if any(group.share != 1 for group in groups):
        notes.append("the published models were trained on all data, ours on the share in the column `trained on`")
    if any(group.base != "plain" for group in groups):
        notes.append(FORMS)
    notes += [f"left out, {reason}: {', '.join(names)}" for reason, names in left_out.items()]
    what = "models that you named" if named else "the shipped models"
    others = [] if named else kept_groups(context, notes)
    return Result(
        label=f"Ours beside the published: {what}, on {data_names(found)}",
        tables=[
            Table(published(name)["about"], columns, _rows(name, groups)),
            *([] if named else [changes_table(name, others)]),
            *([signs_table(others)] if others else []),
            all_columns(name, groups, {model: summarised([m], metric) for model, m in kin.items()}, others),
        ],
        notes=[
            *notes,
            *([] if named else missing_in_words(others)),
            "± is the standard deviation over models (seeds)",
            "of the 13 published columns, ours stand beside those of which a model is here, in the reading `chain`; "
            "--model ViT-B=REFERENCE puts a model beside the column of that name, --model published takes the four "
            "that the hub has",
            *([COPYING_ERROR] if name == "table1" else []),
        ],
        about=about(found),
    )


def grouped(found: dict[str, Measurement]) -> tuple[dict[Group, list[Measurement]], dict[str, list[str]]]:
    """Measurements by group, and the names of models that the table cannot show, by why."""
    members: dict[Group, list[Measurement]] = {}
    left_out: dict[str, list[str]] = {}
    for model, measurement in found.items():
        about_model = measurement.about.model
        variant, share = described(model, about_model.reference or "")
        if variant is None:
            left_out.setdefault(OTHER_VARIANT, []).append(model)
        elif about_model.placement.startswith("parallel"):
            left_out.setdefault(_ONE_SUM, []).append(model)
        else:
            members.setdefault(Group(variant, share), []).append(measurement)
    return members, left_out


def _rows(name: str, groups: dict[Group, Changes]) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for group in sorted(groups, key=lambda g: (-(g.share or 0), VARIANTS.index(g.base), g.variant)):
        theirs = cifar100_column(name, group.base)
        for reading in READINGS:
            for kind, ours in groups[group][reading].items():
                sign = "sign differs" if ours.mean * theirs[kind] < 0 else None
                cells = [reading, kind, ours.show("+.3f"), f"{theirs[kind]:+.3f}", sign]
                rows.append([group.title, percent(group.share), *cells])
    return rows


def all_columns(
    name: str, groups: dict[Group, Changes], kin: dict[str, Changes], others: Sequence[ColumnModels] = ()
) -> Table:
    """Every published column, ours beside it where there is a model: of several, the one that saw most data."""
    table = published(name)
    digits = 2 if name == "table2" else 3
    rows: list[list[Value]] = []
    for number, column in enumerate(table["columns"]):
        data, model = column_of(column)
        variant = model.partition("(")[2].rstrip(")") or "plain"
        mine, seen = kin.get(model), None
        if mine is None and (other := nearest(others, data, model)) is not None:
            mine, form = other.changes(name), other.variant.partition("-")[2]
            seen = other.trained_on + (f"; form: {form}" if form else "")
        if data == "CIFAR100":
            same = [group for group in groups if group.variant == variant]
            most = max(same, key=lambda g: g.share or 0, default=None)
            mine, seen = (None, None) if most is None else (groups[most], f"{percent(most.share)} of CIFAR100")
        cells: list[Value] = []
        for kind in KINDS:
            ours = mine["chain"].get(kind) if mine else None
            cells += [f"{table[kind][number]:+.{digits}f}", None if ours is None else f"{ours.mean:+.{digits}f}"]
        rows.append([data, model, *cells, seen])
    kinds = (title for kind in ("norm", "attn", "MLP") for title in (kind, f"ours, {kind}"))
    columns = ["data", "model", *kinds, "ours trained on"]
    return Table("All published columns", columns, rows)


def column_of(title: str) -> tuple[str, str]:
    """Data and model of a published column.

    >>> column_of("The Pile Cram. Bert (smoothing)"), column_of("ImageNet ViT-B")
    (('The Pile', 'Cram. Bert (smoothing)'), ('ImageNet', 'ViT-B'))
    """
    data = "The Pile" if title.startswith("The Pile ") else title.split()[0]
    return data, title.removeprefix(data).strip()


def variant_of(name: str) -> str | None:
    """The variant that a model's name tells; none for a mix of layers.

    >>> variant_of("cifar100-10pct-sharpening-seed1"), variant_of("smoothing-eigen"), variant_of("sharpening@:6")
    ('sharpening', 'smoothing-eigen', None)
    """
    word = r"(?<![a-z])(plain|(?:sharpening|smoothing)(?:-eigen|-split|-bounded2?)?)(?![a-z])"
    found = re.search(word, name)
    return found[0] if found and "@" not in name else None


def described(name: str, reference: str) -> tuple[str | None, float | None]:
    """Variant and share of the data of a model: from its own configuration, else from its name."""
    try:
        config = json.loads((trained_folder(reference) / "config.json").read_text(encoding="utf-8"))
    except (UnsmoothError, OSError, json.JSONDecodeError):
        config = {}
    told = reference if share_of(name) is None else name
    return variant_of(config.get("variant", name)), share_of(told, config.get("fraction"))


def better_reading(name: str, groups: dict[Group, Changes]) -> str:
    """Which reading of "change" lies nearer to the published attention and MLP numbers.

    Models that saw all data, like the published ones, decide alone where there are any.
    """
    alike = {group: changes for group, changes in groups.items() if group.share == 1} or groups
    whose = "our models on all data" if len(alike) < len(groups) else "our models"
    gaps, signs = {}, {}
    for reading in READINGS:
        pairs = [
            (changes[reading][kind].mean, cifar100_column(name, group.base)[kind])
            for group, changes in alike.items()
            for kind in ("Attention", "MLP")  # `residual` has no LayerNorm
            if kind in changes[reading]
        ]
        gaps[reading] = sum(abs(a - b) for a, b in pairs) / max(1, len(pairs))
        signs[reading] = f"{sum(a * b > 0 for a, b in pairs)} of {len(pairs)}"
    shown = f"{whose}; " + ", ".join(f"{r}: mean gap {gaps[r]:.3f}, {signs[r]} signs agree" for r in READINGS)
    low, high = sorted(READINGS, key=gaps.__getitem__)
    if gaps[low] > CLEARLY * gaps[high]:
        return f"neither reading of change clearly fits the published attention and MLP numbers ({shown})"
    return f"the reading `{low}` fits the published attention and MLP changes better ({shown})"
