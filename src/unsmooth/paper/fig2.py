"""Figure 2: the three metrics by depth of plain, sharpening and smoothing models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from unsmooth.errors import DataError
from unsmooth.figures import Run, depth, runs_figure
from unsmooth.metrics.registry import METRICS
from unsmooth.paper.changes import FORMS, variant_of
from unsmooth.paper.columns import ColumnModels, kept_groups, missing_in_words
from unsmooth.paper.depth import about, chosen_models, data_names, ends_table, measured_models, shipped_models
from unsmooth.paper.effects import effects_table, said_in_words
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.records import TITLES, VARIANTS, Summary, load_records, percent, provenance
from unsmooth.training.engine.record import TrainingRecord

CLAIM = (
    "the paper says: on CIFAR-100 the sharpening model reduces smoothing in all metrics, the smoothing model "
    "increases it; it prints curves of models trained on all data, not numbers"
)
# Which way each metric goes when features become less smooth.
LESS_SMOOTH = {"hfc_lfc": 1, "cosine_similarity": -1, "effective_rank": 1}


def run(context: Context) -> Result:
    """From the records of our runs; measured now for named models, other data, or when asked."""
    if not (context.models or context.data or context.recompute):
        notes: list[str] = []
        records = [r for r in load_records(context, notes) if r.variant in VARIANTS and "smoothing" in r.end]
        others = [group for group in kept_groups(context, notes) if group.curves("hfc_lfc")]
        if others and not records:
            bare = Result("Figure 2 from the records of our ImageNet and text runs", notes=[CLAIM, FORMS, *notes])
            return _with_columns(bare, others, context)
        if records or context.runs:
            return _with_columns(from_records(records, notes), others, context)
    return _measured(context)


def from_records(records: list[TrainingRecord], notes: list[str]) -> Result:
    """Each metric after the first, the middle and the last block at the end of training, over seeds."""
    if not records:
        raise DataError("no record of a plain, sharpening or smoothing run with features: `unsmooth train cifar100 …`")
    shares = sorted({r.fraction for r in records}, reverse=True)
    groups: dict[Run, dict[str, list[list[float]]]] = {}
    for record in sorted(records, key=lambda r: (-r.fraction, VARIANTS.index(r.variant))):
        for metric in LESS_SMOOTH:
            run = Run(record.variant, record.fraction, f"{TITLES[record.variant]}, {percent(record.fraction)}")
            groups.setdefault(run, {}).setdefault(metric, []).append(record.end["smoothing"][metric])
    panels = {
        METRICS[metric].title: {
            run: (range(1, len(found[metric][0]) + 1), found[metric]) for run, found in groups.items()
        }
        for metric in LESS_SMOOTH
    }
    tables = [table_of(share, [r for r in records if r.fraction == share]) for share in shares]
    images = sorted({r.recipe["metric_images"] for r in records})
    return Result(
        label=f"Figure 2's CIFAR-100 column from the records of {len(records)} runs of ours: features of "
        f"{' or '.join(map(str, images))} test images at the end of training",
        tables=tables,
        figures={"fig2": runs_figure(panels, "depth: i is the output of layer i − 1", "Figure 2, CIFAR-100")},
        notes=[CLAIM, FORMS, *missing(r.variant for r in records), *notes],
        about=provenance(records),
    )


def _with_columns(result: Result, others: list[ColumnModels], context: Context) -> Result:
    """The ImageNet and text columns beside CIFAR-100's, and how far control moves each."""
    tables, figures = [*result.tables], {**result.figures}
    for recipe in dict.fromkeys(group.recipe for group in others):
        groups = [group for group in others if group.recipe == recipe]
        rows: list[list[Value]] = []
        panels: dict[str, dict[Run, tuple[range, list[list[float]]]]] = {}
        for metric in LESS_SMOOTH:
            for group in groups:
                curves = group.curves(metric)
                cells = [s.show(".3f") if s else None for s in along(curves)]
                rows.append([METRICS[metric].title, group.title, *cells])
                panel = panels.setdefault(METRICS[metric].title, {})
                panel[Run(group.variant, 1.0, group.title)] = (range(1, len(curves[0]) + 1), curves)
        title = f"{groups[0].column.data}: {recipe}, trained on {groups[0].trained_on}"
        tables.append(Table(title, ["metric", "model", "first", "middle", "last"], rows))
        figures[f"fig2-{recipe}"] = runs_figure(panels, "depth: i is the output of layer i − 1", f"Figure 2, {recipe}")
    said = [*said_in_words(others), *missing_in_words(others)]
    return replace(
        result,
        tables=[*tables, effects_table(others, context)],
        figures=figures,
        notes=[*result.notes, *said],
        about={**result.about, **provenance(kept.record for group in others for kept in group.models)},
    )


def table_of(share: float, records: list[TrainingRecord]) -> Table:
    """Runs of one share of the data; a variant whose last block stands on the wrong side of plain is marked."""
    rows: list[list[Value]] = []
    for metric, less in LESS_SMOOTH.items():
        by_variant = {v: [r.end["smoothing"][metric] for r in records if r.variant == v] for v in VARIANTS}
        plain = Summary.of([values[-1] for values in by_variant["plain"]])
        for variant, curves_ in by_variant.items():
            if not curves_:
                continue
            at = along(curves_)
            change = Summary.of([c[-1] - c[0] for c in curves_])
            wanted = {"sharpening": less, "smoothing": -less}.get(variant, 0)
            gap = 0.0 if plain is None or at[2] is None else at[2].mean - plain.mean
            mark = "order differs from ViT-Ti" if gap * wanted < 0 else None
            cells = [s.show(".3f") if s else None for s in at] + [change.show("+.3f") if change else None, mark]
            rows.append([METRICS[metric].title, TITLES[variant], *cells])
    title = f"After the first, the middle and the last block; trained on {percent(share)} of the data"
    return Table(title, ["metric", "model", "first", "middle", "last", "last − first", "note"], rows)


def along(curves: Sequence[Sequence[float]]) -> list[Summary | None]:
    """After the first, the middle and the last block, over curves by depth."""
    return [Summary.of([curve[i] for curve in curves]) for i in (0, (len(curves[0]) - 1) // 2, -1)]


def missing(variants: Iterable[str | None]) -> list[str]:
    """A sentence that names the variants without a model."""
    lacking = sorted({"plain", "sharpening", "smoothing"} - set(variants))
    return [f"no model of the variant {', '.join(lacking)} was given or ships yet"] if lacking else []


def _measured(context: Context) -> Result:
    named = bool(context.models)
    chosen = chosen_models(context, [text for text in shipped_models() if variant_of(text) is not None])
    measurements = measured_models(replace(context, models=chosen))
    kind = "models that you named" if named else "the models that ship with unsmooth (their names say on what share)"
    return Result(
        label=f"Figure 2's CIFAR-100 column with {kind}, on {data_names(measurements)}",
        tables=[ends_table(measurements, "Along the residual stream")],
        figures={"fig2": depth(measurements)},
        notes=[CLAIM, FORMS, *missing((variant_of(name) or "").partition("-")[0] for name in measurements)],
        about=about(measurements),
    )


ITEM = Item(
    "fig2",
    "paper",
    "Influencing smoothing: the three metrics by depth for plain, sharpening and smoothing models",
    needs="the records of training runs that ship with unsmooth, or --runs FOLDER; seconds. --recompute --data PATH "
    "measures the shipped models, --model NAME=REFERENCE your own. The ImageNet and text columns come from the records "
    "in zoo/results/models (or --runs).",
    run=run,
)
