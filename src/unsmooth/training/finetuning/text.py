"""Fine-tuning a text encoder on a SuperGLUE task, by the settings of `evaluate --superglue`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.sources import LoadedModel
from unsmooth.training.engine.precision import precision_on
from unsmooth.training.finetuning.job import Job
from unsmooth.training.tasks.superglue.classifier import (
    PairClassifier,
    check_positions,
    check_takes_text,
    check_trains,
    copied_encoder,
    features_width,
    new_head,
)
from unsmooth.training.tasks.superglue.examples import find_task, read_examples
from unsmooth.training.tasks.superglue.finetune import FineTuning, Split, predict
from unsmooth.training.tasks.superglue.scores import score


class TextJob(Job):
    """One task, scored on its validation split."""

    unit = "score"

    def __init__(
        self, loaded: LoadedModel, folder: str | Path, task: str, how: FineTuning, device: torch.device
    ) -> None:
        how = replace(how, precision=precision_on(device, how.precision))
        self.loaded, self.device, self.task, self.precision = loaded, device, find_task(task), how.precision
        self.rates = {"lr": how.lr, "head_lr": how.lr, "weight_decay": how.weight_decay}
        length, epochs = how.length or self.task.length, how.epochs or self.task.epochs
        self.clip, self.warmup = how.clip_norm, how.warmup
        check_takes_text(loaded)
        check_positions(loaded, self.task, length)
        train, val = (
            Split.of(read_examples(folder, self.task, split), loaded.tokenizer, length) for split in ("train", "val")
        )
        encoder = copied_encoder(loaded.model)
        self.width = features_width(encoder, (train.ids, train.mask), (val.ids, val.mask))
        check_trains(encoder, device, train.ids, train.mask)
        self.train = tuple(t.to(device) for t in (train.ids, train.mask, train.labels))
        self.val, self.examples = (val.ids.to(device), val.mask.to(device)), val.examples
        self.size = min(how.batch_size, len(train.examples))
        self.steps = len(train.examples) // self.size * epochs
        self.settings = {k: str(v) for k, v in {**asdict(how), "length": length, "epochs": epochs}.items()}
        self.name = self.task.name

    def build(self, seed: int) -> nn.Module:
        """The encoder with the head of `evaluate --superglue`."""
        return PairClassifier(copied_encoder(self.loaded.model), new_head(self.width, self.task, seed))

    def look(self) -> dict[str, Tensor]:
        """The first texts of the validation split."""
        ids, mask = (t[:16, 0] for t in self.val)
        return {"input_ids": ids, "attention_mask": mask.long()}

    def stream(self, seed: int) -> Iterator[tuple[Tensor, ...]]:
        """In a new order every epoch; the last, smaller batch of an epoch is left out."""
        rng, count = torch.Generator().manual_seed(seed), len(self.train[0]) // self.size
        while True:
            order = torch.randperm(len(self.train[0]), generator=rng)[: count * self.size].view(count, self.size)
            for rows in order.to(self.device):
                yield tuple(t[rows] for t in self.train)

    def score(self, model: nn.Module) -> dict[str, Any]:
        """The task's official metrics."""
        with self.autocast():
            logits = predict(model, *self.val)
        return score(self.task, self.examples, logits.argmax(-1).tolist())
