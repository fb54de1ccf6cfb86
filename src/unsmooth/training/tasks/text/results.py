"""What stays of a text model that is too large to keep: its record, what analysis says of it, fine-tuning scores."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from unsmooth.analysis import Origin, attribute, explain, measure
from unsmooth.errors import UnsmoothError, WeightsError
from unsmooth.sources import load_model
from unsmooth.training.engine.record import RECORD, TrainingRecord
from unsmooth.training.engine.results import SCORES, check_results
from unsmooth.training.tasks.superglue.evaluation import SuperGlue, evaluate_superglue
from unsmooth.training.tasks.superglue.finetune import FineTuning
from unsmooth.training.tasks.text.corpus import Corpus
from unsmooth.training.tasks.text.recipe import TextRecipe
from unsmooth.training.tasks.text.task import open_texts

MEASURED, EXPLAINED, BATCH = 128, 16, 16  # held-out sequences, the first ones, nothing hidden
Say = Callable[[str], None]


def write_results(
    folder: Path,
    data: str | Path,
    target: Path,
    *,
    device: torch.device | str = "cpu",
    superglue: str | Path | None = None,
    minutes: float | None = None,
    say: Say = print,
) -> None:
    """Measure, explain, attribute and fine-tune the model in a run's folder; what `target` has is not made again.

    `superglue` is the folder of its tasks, and `minutes` is what they may take.
    """
    gc.collect()  # what training held on the device
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    record = TrainingRecord.load(folder)
    recipe = TextRecipe.from_dict(record.recipe)
    check_results(target, folder)
    target.mkdir(parents=True, exist_ok=True)
    loaded = load_model(folder, device=device)
    made: dict[str, tuple[Callable[..., Any], int]] = {
        "measurement.json": (measure, MEASURED),
        "explanation.json": (explain, EXPLAINED),
        "attribution.json": (attribute, EXPLAINED),
    }
    failed: list[str] = []
    missing = {name: how for name, how in made.items() if not (target / name).exists()}
    if missing:
        corpus = open_texts(recipe, data)
        about = f"held-out text of {recipe.name}, sequences of {recipe.length} tokens"
        origin = Origin(record.run, record.weights, about, "text", record.command)
        for name, (function, count) in missing.items():
            say(f"{name.partition('.')[0]} of {min(count, len(corpus.validation))} held-out sequences")
            try:
                function(loaded, _batches(corpus, count, device), origin=origin).save(target / name)
            except UnsmoothError as error:  # what can be made is made first: the weights may not stay
                failed.append(f"{name}: {error}")
    if superglue is not None:
        named = replace(loaded, reference=record.run)  # a folder's path says nothing elsewhere
        scores = evaluate_superglue(
            named, superglue, how=FineTuning(), minutes=minutes, out=target / SCORES, device=device,
            progress=lambda task, seed, found: say(f"{task}, seed {seed}: {100 * found['score']:.1f}"),
        )  # fmt: skip
        say(_said(scores))
    if failed:
        raise WeightsError(f"the results of {record.run} are not complete: {'; '.join(failed)}")
    shutil.copyfile(folder / RECORD, target / RECORD)


def _batches(corpus: Corpus, count: int, device: torch.device | str) -> list[dict[str, torch.Tensor]]:
    rows = corpus.validation.rows(torch.arange(min(count, len(corpus.validation)))).to(device)
    return [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in rows.split(BATCH)]


def _said(scores: SuperGlue) -> str:
    if not scores.scores:
        return "SuperGLUE: the time given is too short for any task"
    mean, kept = 100 * scores.average, scores.protocol["said"]
    return (
        f"SuperGLUE: {mean:.1f} on average of {len(scores.scores)} tasks; {kept}; {scores.protocol['minutes']} minutes"
    )
