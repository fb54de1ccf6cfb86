"""The poster's Table 2: accuracy on CIFAR-100 by share of the training data."""

from __future__ import annotations

import math
from statistics import fmean

from unsmooth.metrics.differences import Difference, compare_seeds, paired_difference
from unsmooth.paper import evaluated
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.published import published
from unsmooth.paper.records import (
    OTHER_VARIANT,
    TITLES,
    VARIANTS,
    Run,
    Summary,
    accuracies,
    beside,
    load_records,
    percent,
    provenance,
)
from unsmooth.training import Evaluation
from unsmooth.training.engine.record import TrainingRecord


def run(context: Context) -> Result:
    """Ours beside the published: from the records of our runs, or computed now from models."""
    notes: list[str] = []
    if evaluated.wanted(context):
        models = evaluated.evaluations(context)
        notes += evaluated.image_note(e.clean.images for e in models)
        notes += without_a_cell(models)
        records = [as_record(e, -1 - number) for number, e in enumerate(models)]
        what = f"Accuracy computed now, on {', '.join(dict.fromkeys(context.data))}"
    else:
        records = load_records(context, notes)
        what = "Our runs of the recipe cifar100"
    table = published("poster-table2")
    rows: list[list[Value]] = []
    used: list[TrainingRecord] = []
    for number, share in enumerate(table["columns"]):
        mine = [r for r in records if r.fraction == float(share) and r.variant in VARIANTS]
        ours = {v: Summary.of([100 * r.final["accuracy"] for r in mine if r.variant == v]) for v in VARIANTS}
        cells = beside(ours, {v: table[v][number] for v in VARIANTS})
        rows += [[percent(float(share)), TITLES[v], *cells[v]] for v in VARIANTS]
        notes += differences(percent(float(share)), mine)
        used += mine
    draws = over_subsets(load_records(context, [], any_subset=True)) if not evaluated.wanted(context) else None
    there = sum(row[2] is not None for row in rows)
    return Result(
        label=f"{what}, beside the poster's; {there} of {len(rows)} cells have runs",
        tables=[
            Table(table["about"], ["data kept", "model", "ours", "published", "difference", "note"], rows),
            *([] if draws is None else [draws]),
        ],
        notes=[
            *notes,
            "± is the standard deviation over seeds (n − 1) for ours; the poster does not say what its ± is",
            "intervals are Student's for differences paired by seed: they hold for this recipe and one draw of the "
            "images",
            "signs: ViT⁺ has positive eigenvalues (smoothing), ViT⁻ negative ones (sharpening)",
        ],
        about=provenance(used),
    )


def over_subsets(records: list[TrainingRecord]) -> Table | None:
    """Means of each draw of the images, and their spread: the seeds of several draws are not seeds of one.

    None where every run saw the first draw.
    """
    rows: list[list[Value]] = []
    for share in sorted({r.fraction for r in records if r.subset}, reverse=True):
        found = accuracies(r for r in records if r.fraction == share and r.variant in VARIANTS)
        for variant, seeds in found.items():
            draws = {draw: [v for (d, _), v in seeds.items() if d == draw] for draw in sorted({d for d, _ in seeds})}
            over = Summary.of([fmean(values) for values in draws.values()])
            each = ", ".join(f"{fmean(values):.2f} (n={len(values)})" for values in draws.values())
            gap = draws_against_plain(found.get("plain", {}), seeds) if variant != "plain" else None
            shown = None if over is None else over.show().replace("n=", "draws=")
            rows.append([percent(share), TITLES[variant], each, shown, None if gap is None else gap.text()])
    columns = ["data kept", "model", "each draw", "± over draws", "minus plain (95 %, over draws)"]
    return Table("Over the choice of images (--subset), accuracy in %", columns, rows) if rows else None


def draws_against_plain(plain: dict[Run, float], other: dict[Run, float]) -> Difference | None:
    """The mean difference of each draw, paired by seed, and its interval over draws; None without a common run."""
    common = plain.keys() & other.keys()
    draws = sorted({draw for draw, _ in common})
    gaps = [fmean(other[run] - plain[run] for run in sorted(common) if run[0] == draw) for draw in draws]
    return paired_difference([0.0] * len(gaps), gaps) if gaps else None


def as_record(evaluation: Evaluation, number: int) -> TrainingRecord:
    """A run of which only the evaluation is known; one that does not tell its seed is paired with none."""
    e = evaluation
    share = evaluated.share(e)
    return TrainingRecord(
        run=e.model, variant=e.variant or "", seed=number if e.seed is None else e.seed,
        fraction=math.nan if share is None else share, command=e.command, minutes=math.nan,
        final={"accuracy": e.clean.accuracy}, recipe={}, rows=[], date=e.date, commit=e.commit, hardware=e.hardware,
    )  # fmt: skip


def without_a_cell(models: list[Evaluation]) -> list[str]:
    """Sentences that name the models of another variant, or of a share of the data that nobody published."""
    shares = {float(share) for share in published("poster-table2")["columns"]}
    other = [e.model for e in models if e.variant not in VARIANTS]
    strange = [e.model for e in models if e.variant in VARIANTS and evaluated.share(e) not in shares]
    reasons = {OTHER_VARIANT: other, "of a share of the data that the table does not have": strange}
    return [f"left out, {reason}: {', '.join(names)}" for reason, names in reasons.items() if names]


def differences(share: str, records: list[TrainingRecord]) -> list[str]:
    """What the seeds allow one to say of each controlled variant against plain."""
    found = accuracies(records)
    plain, others = found.pop("plain", {}), {v: found[v] for v in VARIANTS[1:] if v in found}
    return [f"{share}: {comparison.claim()}" for comparison in compare_seeds(plain, others)] if plain else []


ITEM = Item(
    "poster-table2",
    "poster",
    "Data efficiency: accuracy on CIFAR-100 with 100, 50 and 10 % of the training data",
    needs="the records of training runs that ship with unsmooth, seconds; --runs FOLDER for your own (`unsmooth train "
    "cifar100 --fraction …`, about 18, 9 and 2 minutes each on one H200). --recompute --data CIFAR100 computes the "
    "accuracy of the shipped models now, --model REFERENCE of any. Cells without a run stay empty.",
    run=run,
)
