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
    places = list(dict.fromkeys((run.model, run.data) for run in runs))
    found = [(model, data, c) for model, data in places
             for c in compared([run for run in runs if run.model == model], data)]  # fmt: skip
    if not found:
        return "open", "0 runs", "No run so far."
    pairs = [c.difference.pairs for _, _, c in found]
    each = f"{min(pairs)} to {max(pairs)}" if min(pairs) < max(pairs) else f"{max(pairs)}"
    claimed = [f"{c.name} {c.difference.text()} ({model} on {data})" for model, data, c in found if c.differs]
    rest = [c.difference.mean for _, _, c in found if not c.differs]
    said = f"Of {len(found)} comparisons with plain fine-tuning ({each} pairs each, in points) "
    said += (
        f"{len(claimed)} can be claimed after Holm's correction within a data set: {'; '.join(claimed)}."
        if claimed
        else "none can be claimed after Holm's correction within a data set."
    )
    if rest:
        said += f" The other differences are {min(rest):+.2f} to {max(rest):+.2f}."
    return "leaning" if min(pairs) >= 5 else "open", f"{each} pairs", said
