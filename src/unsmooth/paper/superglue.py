"""SuperGLUE after fine-tuning. The paper says that it fine-tunes its text models on it, and prints no scores.

Our models read little text, so scores near chance are expected of them. A pretrained encoder that was fine-tuned in the
same way shows whether the fine-tuning is to blame: `zoo/results/superglue` holds its scores.
"""

from __future__ import annotations

import math
import statistics

from unsmooth.errors import UnsmoothError
from unsmooth.metrics.student import student_95
from unsmooth.paper.columns import ColumnModels, kept_groups, missing_in_words
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.published import published
from unsmooth.paper.records import Summary, provenance
from unsmooth.sources.trained import zoo_folder
from unsmooth.training.tasks.superglue.evaluation import NOTE, SuperGlue
from unsmooth.training.tasks.superglue.examples import TASKS

FILE = "superglue.json"
KNOWN = "superglue"  # in zoo/results, and of the published scores: encoders whose strength is known


def run(context: Context) -> Result:
    """Every task's score of each text model with results, beside the best constant guess."""
    notes: list[str] = []
    groups = [group for group in kept_groups(context, notes) if group.column.data == "The Pile"]
    found = {group: scores for group in groups if (scores := _scores(group, notes))}
    rows: list[list[Value]] = []
    for task, about in TASKS.items():
        guesses = [s.majority[task]["score"] for each in found.values() for s in each if task in s.majority]
        cells = [_cell(each, task) for each in found.values()]
        metric = ", ".join(about.metrics)
        rows.append([task, metric, *cells, f"{100 * guesses[0]:.1f}" if guesses else None])
    names = [f"{group.recipe}, {group.variant}" for group in found]
    tried = [task for task in TASKS if any(len(_values(each, task)) > 1 for each in found.values())]
    chance = [task for task in tried if not any(_above(each, task) for each in found.values())]
    untried = [task for task in TASKS if found and task not in tried]
    known = _known(notes)
    label = f"SuperGLUE, validation, in %: {len(found)} of our text models; the paper prints no scores"
    return Result(
        label=label,
        tables=[Table("After fine-tuning", ["task", "metric", *names, "constant guess"], rows), *known],
        notes=[
            *notes,
            *([f"BERT-large: {published(KNOWN)['about']}; {published(KNOWN)['source']}"] if known else []),
            *([f"near chance, no model clearly above the best constant guess: {', '.join(chance)}"] if chance else []),
            *([f"not run, or with one seed only: {', '.join(untried)}"] if untried else []),
            "± is the standard deviation over seeds of fine-tuning; clearly above: the 95 % interval of the mean over "
            "seeds (Student's t) lies above it",
            NOTE,
            *missing_in_words(list(found), "The Pile"),
        ],
        about=provenance(kept.record for group in found for kept in group.models),
    )


def _known(notes: list[str]) -> list[Table]:
    """Pretrained encoders by the same protocol, beside what is published of one."""
    found: dict[str, list[SuperGlue]] = {}
    for path in sorted((zoo_folder() / "results" / KNOWN).glob("*.json"), key=lambda path: path.stem):
        try:
            found[path.stem] = [SuperGlue.load(path)]
        except UnsmoothError as error:
            notes.append(f"left out: {error}")
    if not found:
        return []
    rows = [
        [task, *(_cell(each, task) for each in found.values()), f"{published(KNOWN)['BERT-large'][task]:.1f}"]
        for task in TASKS
    ]
    columns = ["task", *(f"{name}, ours, validation" for name in found), "BERT-large, published, test"]
    return [Table("Pretrained encoders by the same protocol", columns, rows)]


def _scores(group: ColumnModels, notes: list[str]) -> list[SuperGlue]:
    found = []
    for kept in group.models:
        try:
            found += [SuperGlue.load(kept.folder / FILE)] if (kept.folder / FILE).is_file() else []
        except UnsmoothError as error:
            notes.append(f"left out: {error}")
    return found


def _values(scores: list[SuperGlue], task: str) -> list[float]:
    return [each["score"] for found in scores for each in found.scores.get(task, {}).values()]


def _cell(scores: list[SuperGlue], task: str) -> str | None:
    found = Summary.of([100 * value for value in _values(scores, task)])
    return None if found is None else found.show(".1f")


def _above(scores: list[SuperGlue], task: str) -> bool:
    """Whether the interval of the mean over seeds lies above the best constant guess."""
    values = _values(scores, task)
    if len(values) < 2 or task not in scores[0].majority:
        return False
    error = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values) - scores[0].majority[task]["score"] > student_95(len(values) - 1) * error


ITEM = Item(
    "superglue",
    "ours",
    "SuperGLUE after fine-tuning of plain, sharpening and smoothing text models (Appendix A; no scores are printed)",
    needs="results in zoo/results/models (superglue.json beside record.json), or --runs FOLDER; seconds. `unsmooth "
    "evaluate MODEL --superglue PATH --out FOLDER/superglue.json` writes one.",
    run=run,
)
