"""Does control help a model that is pretrained already? Answered from the runs of `unsmooth finetune`."""

from __future__ import annotations

from unsmooth.paper.evidence import Evidence
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import records_folder


@question(
    "Does control help when a pretrained model is fine-tuned (adapters and penalties of both signs, published fixes)?",
    "ours",
    "findings",
    "`unsmooth finetune MODEL --data PATH --out zoo/finetuned` (or --superglue PATH), five seeds of each arm",
)
def fine_tuning(e: Evidence) -> Answer:
    """Every arm against plain fine-tuning, for each model and data set, corrected within it."""
    from unsmooth.training.finetuning import load_runs
    from unsmooth.training.finetuning.study import compared

    runs = [run for run in load_runs(records_folder(e.context).parent / "finetuned") if run.scores]
    said, pairs, claimed = [], [0], 0
    for model, data in dict.fromkeys((run.model, run.data) for run in runs):
        found = compared([run for run in runs if run.model == model], data)
        pairs += [c.difference.pairs for c in found]
        claimed += sum(c.differs for c in found)
        differences = "; ".join(f"{c.name} {c.difference.text()}{' *' if c.differs else ''}" for c in found)
        if differences:
            said.append(f"{model} on {data}, minus plain in points: {differences}")
    if not said:
        return "open", "0 runs", "No run so far."
    note = (
        " (* differs from plain after Holm's correction within the data set)." if claimed else ". None can be claimed."
    )
    return "leaning" if max(pairs) >= 5 else "open", f"{max(pairs)} pairs", ". ".join(said) + note
