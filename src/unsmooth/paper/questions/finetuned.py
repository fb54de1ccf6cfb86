"""Does control help a model that is pretrained already? Answered from the runs of `unsmooth finetune`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import product

from unsmooth.metrics.differences import Comparison
from unsmooth.paper.evidence import Evidence
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import records_folder
from unsmooth.training.finetuning import FineTuned, load_runs
from unsmooth.training.finetuning.arms import BARE, STRONG, Arm
from unsmooth.training.finetuning.study import compared

ENOUGH = 5  # pairs, below which an interval says little


@question(
    "Does control help when a pretrained model is fine-tuned (adapters and penalties of both signs, published fixes)?",
    "ours",
    "findings",
    "stronger doses (`--arms adapter-sharpening-strong,…`) that move HFC/LFC itself, and tasks larger than CB and COPA",
)
def fine_tuning(e: Evidence) -> Answer:
    """Every arm against plain fine-tuning, for each model and data set, corrected within it."""
    runs = [run for run in load_runs(records_folder(e.context).parent / "finetuned") if run.scores]
    places = list(dict.fromkeys((run.model, run.data) for run in runs))
    found = [(model, data, c) for model, data in places
             for c in compared([run for run in runs if run.model == model], data)]  # fmt: skip
    if not found:
        return Answer("open", "0 runs", "No run so far.")
    pairs = [c.difference.pairs for _, _, c in found]
    each = f"{min(pairs)} to {max(pairs)}" if min(pairs) < max(pairs) else f"{max(pairs)}"
    claimed = [f"{c.name} {c.difference.text()} ({model} on {data})" for model, data, c in found if c.differs]
    rest = [c.difference.mean for _, _, c in found if not c.differs]
    said = "" if any(c.differs and c.difference.mean > 0 for _, _, c in found) else "No gain was found. "
    said += f"Of {len(found)} comparisons with plain fine-tuning ({each} pairs each, in points) "
    said += (
        f"{len(claimed)} can be claimed after Holm's correction within a data set: {'; '.join(claimed)}."
        if claimed
        else "none can be claimed after Holm's correction within a data set."
    )
    if rest:
        said += f" {'The other differences' if claimed else 'Differences'} are {min(rest):+.2f} to {max(rest):+.2f}."
    said += _excluded(found)
    said += f" Plain reaches {'; '.join(_reached(runs, model, data) for model, data in places)}."
    said += _dose(runs) + _bare(runs)
    return Answer("leaning" if statistics.median(pairs) >= ENOUGH else "open", f"{each} pairs", said)


def _excluded(found: Sequence[tuple[str, str, Comparison]]) -> str:
    """How large a gain of an adapter or a penalty could be: the highest end of the 95 % intervals, by data set."""
    highest: dict[str, float] = {}
    for model, data, c in found:
        if c.name.startswith(("adapter-", "penalty-")) and not c.name.endswith(BARE) and c.difference.pairs >= ENOUGH:
            place = f"{model} on {data}"
            highest[place] = max(c.difference.high, highest.get(place, -math.inf))
    said = "; ".join(f"{high:+.1f} points ({place})" for place, high in highest.items())
    intervals = f"by the 95 % intervals of {ENOUGH} pairs"
    return f" A gain of an adapter or a penalty is at most {said}, {intervals}." if said else ""


def _reached(runs: Sequence[FineTuned], model: str, data: str) -> str:
    """What plain fine-tuning scores, in %."""
    scores = [100 * run.scores["score"] for run in runs if (run.model, run.data, run.arm) == (model, data, "plain")]
    return f"{statistics.mean(scores):.1f} ({model} on {data}, n = {len(scores)})" if scores else f"nothing on {data}"


def _dose(runs: Sequence[FineTuned]) -> str:
    """How far control moved what it is to move: HFC/LFC after fine-tuning, over plain's with the same seed."""
    plain = {(run.model, run.data, run.seed): run.scores["hfc_lfc_after"] for run in runs if run.arm == "plain"}
    said = []
    for mode, strong in product(("sharpening", "smoothing"), (False, True)):
        times = [run.scores["hfc_lfc_after"] / plain[key] for run in runs
                 if Arm(run.arm).mode == mode and run.arm.endswith(STRONG) == strong and not run.arm.endswith(BARE)
                 and (key := (run.model, run.data, run.seed)) in plain]  # fmt: skip
        if times:
            dose = f"{mode} in a larger dose" if strong else mode
            said.append(f"{statistics.geometric_mean(times):.2f} with {dose} ({min(times):.2f} to {max(times):.2f})")
    return (
        f" HFC/LFC after the last layer, divided by plain's with the same seed, is {', '.join(said)}." if said else ""
    )


def _bare(runs: Sequence[FineTuned]) -> str:
    """Models whose penalties all knew nothing of folding, and so of the side that acts."""
    penalised = {(run.model, run.arm.endswith(BARE)) for run in runs if run.arm.startswith("penalty-")}
    models = sorted({model for model, bare in penalised if bare and (model, False) not in penalised})
    if not models:
        return ""
    why = f"arms called `…{BARE}` penalise the weights alone, whose side need not be the one that acts"
    return f" Of {', '.join(models)} no penalty of the folded H was run: {why}."
