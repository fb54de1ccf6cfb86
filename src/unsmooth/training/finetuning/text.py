"""Fine-tuning a text encoder on a SuperGLUE task, by the settings of `evaluate --superglue`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsmooth.control.effect import effect
from unsmooth.sources import LoadedModel
from unsmooth.training.engine.step import autocast
from unsmooth.training.finetuning.arms import Arm, fit
from unsmooth.training.tasks.superglue.classifier import classifier
from unsmooth.training.tasks.superglue.examples import find_task, read_examples
from unsmooth.training.tasks.superglue.finetune import EVALUATED, FineTuning, Split
from unsmooth.training.tasks.superglue.scores import score


class TextJob:
    """One task: `run(arm, seed)` fine-tunes and scores on the validation split."""

    unit = "score"

    def __init__(
        self, loaded: LoadedModel, folder: str | Path, task: str, how: FineTuning, device: torch.device
    ) -> None:
        self.loaded, self.how, self.device, self.task = loaded, how, device, find_task(task)
        length = how.length or self.task.length
        self.train, self.val = (
            Split.of(read_examples(folder, self.task, split), loaded.tokenizer, length) for split in ("train", "val")
        )
        self.name = self.task.name

    def run(self, arm: Arm, seed: int) -> dict[str, Any]:
        """Train to the end; the task's official metrics, and smoothness of the last layer before and after."""
        torch.manual_seed(seed)
        model = classifier(self.loaded.model, self.task, seed).to(self.device).requires_grad_(True)
        encoder: nn.Module = model.encoder
        rows = slice(0, 16)
        look = [{"input_ids": self.val.ids[rows, 0].to(self.device),
                 "attention_mask": self.val.mask[rows, 0].long().to(self.device)}]  # fmt: skip
        before = effect(encoder, look, None)
        arm.apply(encoder, seed)
        size = min(self.how.batch_size, len(self.train.examples))
        per_epoch = len(self.train.examples) // size
        stream = self._stream(seed, size, per_epoch)

        def loss(step: int) -> Tensor:
            ids, mask, labels = (t.to(self.device) for t in next(stream))
            with autocast(self.device, self.how.precision):
                logits = model(ids, mask)
            return F.cross_entropy(logits.float(), labels)

        steps = per_epoch * (self.how.epochs or self.task.epochs)
        fitted = fit(
            model, encoder, arm, loss, steps, lr=self.how.lr, head_lr=self.how.lr, weight_decay=self.how.weight_decay,
            clip=self.how.clip_norm,
        )  # fmt: skip
        scores = self._score(model)
        after = effect(encoder, look, None)
        smooth = {f"{k}_before": v for k, v in before.items()} | {f"{k}_after": v for k, v in after.items()}
        return {**scores, "train_loss": fitted, **smooth}

    def _stream(self, seed: int, size: int, per_epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        rng, labels = torch.Generator().manual_seed(seed), self.train.labels
        while True:
            for rows in torch.randperm(len(labels), generator=rng)[: per_epoch * size].view(per_epoch, size):
                yield self.train.ids[rows], self.train.mask[rows], labels[rows]

    @torch.no_grad()
    def _score(self, model: nn.Module) -> dict[str, float]:
        guesses: list[int] = []
        for start in range(0, len(self.val.examples), EVALUATED):
            here = slice(start, start + EVALUATED)
            with autocast(self.device, self.how.precision):
                logits = model(self.val.ids[here].to(self.device), self.val.mask[here].to(self.device))
            guesses += logits.float().argmax(-1).tolist()
        return score(self.task, self.val.examples, guesses)
