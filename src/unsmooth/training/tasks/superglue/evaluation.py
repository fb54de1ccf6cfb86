"""A model's SuperGLUE scores: every task with its seeds, kept after each run, so that interrupted work goes on."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unsmooth.errors import CheckpointError, DataError
from unsmooth.sources.files import read_json, validate_file, write_result
from unsmooth.sources.provenance import provenance
from unsmooth.training.engine.step import Speed
from unsmooth.training.tasks.superglue.classifier import classifier
from unsmooth.training.tasks.superglue.examples import TASKS, SuperGlueTask, read_examples
from unsmooth.training.tasks.superglue.finetune import FineTuneTask, FineTuning, Split, fine_tune
from unsmooth.training.tasks.superglue.scores import majority

if TYPE_CHECKING:
    from unsmooth.sources import LoadedModel

SCHEMA = "unsmooth-superglue/1"
NOTE = (
    "Fine-tuned on the train split and scored on the validation split; ReCoRD is left out. Where the pre-training text "
    "holds Wikipedia, it may hold the articles behind BoolQ's passages."
)
Progress = Callable[[str, int, dict[str, Any]], None]


@dataclass
class SuperGlue:
    """Scores by task and seed, what always guessing the most frequent label would score, and how it was done."""

    model: dict[str, Any]
    settings: dict[str, Any]
    scores: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    majority: dict[str, dict[str, float]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def mean(self, task: str) -> tuple[float, float, int]:
        """Mean, standard deviation over seeds and number of seeds of a task's score."""
        values = [found["score"] for found in self.scores[task].values()]
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else float("nan"), len(values)

    @property
    def average(self) -> float:
        """The mean over the tasks that have a score."""
        return statistics.fmean(self.mean(task)[0] for task in self.scores)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"schema": SCHEMA, "note": NOTE, **asdict(self)}

    def save(self, path: str | Path) -> Path:
        """As JSON, in one step."""
        return write_result(path, json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> SuperGlue:
        """What `save` wrote."""
        found = read_json(path, SCHEMA)
        with validate_file(path):
            scores = {
                str(task): {int(seed): {str(k): float(v) for k, v in each.items()} for seed, each in seeds.items()}
                for task, seeds in found["scores"].items()
            }
            return cls(found["model"], found["settings"], scores, found["majority"], found["about"])


def evaluate_superglue(
    loaded: LoadedModel,
    folder: str | Path,
    tasks: Sequence[SuperGlueTask] = tuple(TASKS.values()),
    *,
    how: FineTuning | None = None,
    seeds: int | None = None,
    out: str | Path | None = None,
    device: str | torch.device | None = None,
    speed: Speed | None = None,
    progress: Progress | None = None,
) -> SuperGlue:
    """Fine-tune a text encoder on each task with each seed; `seeds` replaces the tasks' own numbers (5 or 3).

    With `out` every finished run is kept there, and the same call goes on after the last one.
    """
    if loaded.tokenizer is None:
        raise DataError(f"{loaded.reference} has no tokenizer beside its weights: put its files there")
    how = how or FineTuning()
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    result = _begin(loaded, how, out)
    for task in tasks:
        count = task.seeds if seeds is None else seeds
        if len(result.scores.get(task.name, {})) >= count and task.name in result.majority:
            continue
        length = how.length or task.length
        train, val = (
            Split.of(read_examples(folder, task, split), loaded.tokenizer, length) for split in ("train", "val")
        )
        result.majority[task.name] = majority(task, train.examples, val.examples)
        for seed in range(count):
            done = result.scores.setdefault(task.name, {})
            if seed not in done:
                model = classifier(loaded.model, task, seed).to(device)
                done[seed] = fine_tune(FineTuneTask(task, model, train, val, how, seed), speed)
                if out is not None:
                    result.save(out)
            if progress is not None:
                progress(task.name, seed, done[seed])
    return result


def _begin(loaded: LoadedModel, how: FineTuning, out: str | Path | None) -> SuperGlue:
    model = {"reference": loaded.reference, "weights": loaded.weights_hash}
    new = SuperGlue(model, asdict(how), about=provenance().to_json())
    if out is None or not Path(out).exists():
        return new
    old = SuperGlue.load(out)
    if (old.model.get("weights"), old.settings) != (model["weights"], new.settings):
        raise CheckpointError(f"{out} holds scores of another model or other settings: choose another --out")
    return replace(old)
