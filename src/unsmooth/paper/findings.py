"""Ours: every open question of the paper, its poster and their readers, with what the records say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unsmooth.errors import DataError
from unsmooth.figures import Drawing, Run, runs_figure
from unsmooth.figures.gains import gains
from unsmooth.metrics.differences import compare_seeds
from unsmooth.paper.evidence import PAPERS, TEN, Evidence, last_ratio, points
from unsmooth.paper.item import Context, Item, Result, Section, Table
from unsmooth.paper.questions import QUESTIONS, SURE, Finding, found
from unsmooth.paper.records import VARIANTS, provenance
from unsmooth.prose import counted
from unsmooth.training.engine.record import TrainingRecord


def run(context: Context) -> Result:
    """Every question that the records or the saved results say something about."""
    e = Evidence(context)
    if not (e.records or e.others):
        raise DataError("no record of a run of the recipe cifar100: `unsmooth train cifar100 …`, or --runs FOLDER")
    answered = sorted(((q, found(q, e)) for q in QUESTIONS), key=lambda pair: SURE.index(pair[1].status))
    numbered = [(f"{n}. ", q, f) for n, (q, f) in enumerate(answered, 1)]
    return Result(
        label=f"What is settled, leaning or open, from the records of {_counted(e)}, and from saved results",
        tables=[
            Table("Open questions", ["question", "status", "n"], [[n + q.asked, f.status, f.n] for n, q, f in numbered])
        ],
        figures={name: figure for each in (e, *e.others) for name, figure in _figures(each).items()},
        sections=[Section(n + q.asked, f"{f.status}, {f.n}", _answer(f), f.command, f.tables) for n, q, f in numbered],
        notes=[
            "intervals are 95 %, Student's, paired by seed; ± is the standard deviation over seeds",
            *dict.fromkeys(note for each in (e, *e.others) for note in each.notes),
        ],
        about={
            "findings": [{"name": q.name, "question": q.asked, "asked by": q.by, **f.to_json()} for q, f in answered],
            "runs": provenance(record for each in (e, *e.others) for record in each.all_records),
        },
    )


def _counted(e: Evidence) -> str:
    """How many runs of which recipe."""
    counts = [f"{counted(len(each.all_records), 'run')} of {each.name}" for each in (e, *e.others) if each.all_records]
    return ", ".join(counts)


def _answer(found: Finding) -> str:
    return found.answer + (f" What would settle it: {found.settle}." if found.settle else "")


def figure_of(recipe: str) -> str:
    """What the figure of a recipe's runs is called.

    >>> figure_of("cifar100"), figure_of("cifar100-small")
    ('findings', 'findings-small')
    """
    return recipe.replace(PAPERS, "findings")


def _figures(e: Evidence) -> dict[str, Drawing]:
    """What every variant gains over plain in one recipe, and its course along depth; nothing without runs."""
    name = figure_of(e.recipe)
    groups = e.accuracy() | e.starts
    plain = groups.pop("plain", {})
    comparisons = compare_seeds(plain, groups)
    found = _by_depth(e.depths, f"{name}-depth", f"Accuracy and HFC/LFC by depth, {e.name}")
    if any(c.difference.pairs for c in comparisons):
        title = f"accuracy on 10 % of CIFAR-100 minus plain's, points ({e.name})"
        found[name] = gains(plain, groups, comparisons, title)
    return found


def _by_depth(depths: Mapping[int, Sequence[TrainingRecord]], name: str, title: str) -> dict[str, Drawing]:
    """Accuracy and HFC/LFC over the number of layers, of seeds that were run at every depth; nothing of one depth."""
    panels: dict[str, dict[Run, tuple[list[float], list[list[float]]]]] = {title: {} for title in QUANTITIES}
    for variant in VARIANTS:
        found = {layers: {r.seed: r for r in records if r.variant == variant} for layers, records in depths.items()}
        found = {layers: seeds for layers, seeds in found.items() if seeds}
        if len(found) < 2 or not (common := set.intersection(*map(set, found.values()))):
            continue
        run = Run(variant, TEN, f"{variant} (n = {len(common)})")
        for title, quantity in QUANTITIES.items():
            values = [[quantity(seeds[seed]) for seeds in found.values()] for seed in sorted(common)]
            known = [[v for v in row if v is not None] for row in values]
            if known == values:
                panels[title][run] = [*map(float, found)], known
    panels = {title: lines for title, lines in panels.items() if lines}
    return {name: runs_figure(panels, "layers", title)} if panels else {}


QUANTITIES: dict[str, Callable[[TrainingRecord], float | None]] = {
    "accuracy in %": points,
    "HFC/LFC, last block": last_ratio,
}
ITEM = Item(
    "findings",
    "ours",
    "Every open question of the paper, the poster and their readers: settled, leaning or open",
    needs="the records of training runs and the saved results that ship with unsmooth, or --runs FOLDER; seconds.",
    run=run,
)
