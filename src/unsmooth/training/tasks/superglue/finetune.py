"""Fine-tuning an encoder on one task with one seed: an ordinary task of the training engine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from unsmooth.errors import ForwardError
from unsmooth.sources.trained import file_hash
from unsmooth.training.engine.precision import autocast
from unsmooth.training.engine.schedule import warmup_cosine
from unsmooth.training.engine.step import Speed, Trainer
from unsmooth.training.engine.task import FastPath, Optimisation, Rows, Task
from unsmooth.training.fast.encoder import FastEncoder, fits
from unsmooth.training.tasks.superglue.classifier import (
    FastFeatures,
    PairClassifier,
    check_trains,
    copied_encoder,
    encode,
    features_width,
    find_encoder,
    new_head,
)
from unsmooth.training.tasks.superglue.examples import Example, SuperGlueTask
from unsmooth.training.tasks.superglue.scores import score

EVALUATED = 64  # examples at once


@dataclass(frozen=True)
class FineTuning:
    """How an encoder is fine-tuned; epochs and length are the task's own unless given."""

    lr: float = 4e-5
    batch_size: int = 16
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float = 1.0
    precision: str = "bf16"
    epochs: int | None = None
    length: int | None = None


@dataclass(frozen=True)
class Split:
    """Examples and their tokens, on the host."""

    examples: list[Example]
    ids: Tensor
    mask: Tensor

    @classmethod
    def of(cls, examples: list[Example], tokenizer: Any, length: int) -> Split:
        """Tokenised once, for all seeds."""
        return cls(examples, *encode(examples, tokenizer, length))

    @property
    def labels(self) -> Tensor:
        return torch.tensor([example.label for example in self.examples])


@torch.no_grad()
def predict(
    model: nn.Module, ids: Int64[Tensor, "row choice token"], mask: Bool[Tensor, "row choice token"]
) -> Float[Tensor, "row label"]:
    """Logits of all examples, on the host; ForwardError where they are no numbers: a label would still be guessed."""
    device = next(model.parameters()).device
    batches = zip(ids.split(EVALUATED), mask.split(EVALUATED), strict=True)
    logits = torch.cat([model(*(t.to(device) for t in batch)).float() for batch in batches]).cpu()
    if not logits.isfinite().all():
        raise ForwardError(
            "the fine-tuned model gives NaN or infinity: expected finite numbers; check its weights before "
            "fine-tuning, or take a lower lr or float32 (--precision float32)"
        )
    return logits


class FineTuneTask(Task):
    """Examples in a new order every epoch; the last, smaller batch of an epoch is left out."""

    unit = "epoch"
    model: PairClassifier

    def __init__(
        self, task: SuperGlueTask, model: PairClassifier, train: Split, val: Split, how: FineTuning, seed: int
    ) -> None:
        self.task, self.model, self.train, self.val, self.how, self.seed = task, model, train, val, how, seed
        self.size = min(how.batch_size, len(train.examples))
        self.chunk = self.per_unit = self.every = len(train.examples) // self.size
        self.total = self.chunk * (how.epochs or task.epochs)
        self.data_hash = ""
        self.optimisation = Optimisation(how.weight_decay, clip_norm=how.clip_norm, precision=how.precision)
        self.device = next(model.parameters()).device

    def stream(self, step: int) -> Iterator[Rows]:
        """Epoch after epoch."""
        labels = self.train.labels
        for epoch in itertools.count(step // self.chunk):
            rng = torch.Generator().manual_seed(1_000_003 * self.seed + epoch)
            order = torch.randperm(len(labels), generator=rng)[: self.chunk * self.size].view(self.chunk, self.size)
            order, step = order[step % self.chunk :], 0
            yield {"ids": self.train.ids[order], "mask": self.train.mask[order], "labels": labels[order]}

    def loss(self, *batch: Tensor) -> Float[Tensor, ""]:
        """Cross-entropy of the labels or choices."""
        ids, mask, labels = batch
        return F.cross_entropy(self.model(ids, mask).float(), labels)

    def fast_path(self, speed: Speed, half: bool) -> FastPath:
        """Kernels and short cuts for ModernBERT in bfloat16; other encoders are captured as they are."""
        short = FastEncoder(self.model.encoder, Speed()) if half and fits(self.model.encoder) else None
        return FastPath() if short is None else FastFeatures(self.model, short)

    def rates(self, total: int) -> Float32[Tensor, step]:
        """Warm-up and half a cosine."""
        return warmup_cosine(self.how.lr, total, round(self.how.warmup * total))

    def evaluate(self, model: nn.Module, final: bool = False) -> dict[str, Any]:
        """The official metrics on the validation split."""
        training = model.training
        with autocast(self.device, "float32" if final else self.how.precision):
            logits = predict(model.eval(), self.val.ids, self.val.mask)
        model.train(training)
        loss = F.cross_entropy(logits, self.val.labels)
        return {"loss": float(loss), **score(self.task, self.val.examples, logits.argmax(-1).tolist())}

    def save(self, model: nn.Module, folder: Path, about: dict[str, Any]) -> str:
        """The fine-tuned encoder as a Hugging Face folder, without the head."""
        del about
        model.encoder.save_pretrained(folder)  # type: ignore[union-attr, operator]
        return file_hash(folder / "model.safetensors") or ""


class FineTuner:
    """One task, seed after seed: the model is put back to its start, the compiled and captured step stays."""

    def __init__(
        self, model: nn.Module, task: SuperGlueTask, train: Split, val: Split, how: FineTuning, device: torch.device,
        speed: Speed | None = None,
    ) -> None:  # fmt: skip
        self.source, encoder = find_encoder(model), copied_encoder(model)
        self.width = features_width(encoder, (train.ids, train.mask), (val.ids, val.mask))
        check_trains(encoder, device, train.ids, train.mask)
        begun = PairClassifier(encoder, new_head(self.width, task, 0)).to(device)
        self.task = FineTuneTask(task, begun, train, val, how, seed=0)
        # as a whole it is not compiled, which would take longer than these runs: the captured step is what pays
        self.trainer = Trainer(self.task, speed or Speed(compile_mode=None))
        self.milliseconds = 0.0  # a step of the last run, all but its first epoch if it has another
        self.seconds = 0.0  # what a run takes once all is compiled

    def run(self, seed: int) -> dict[str, Any]:
        """Train to the end and score."""
        task, trainer = self.task, self.trainer
        self.task.seed = seed
        task.model.encoder.load_state_dict(self.source.state_dict())
        task.model.head.load_state_dict(new_head(self.width, task.task, seed).state_dict())
        trainer.restart()
        rates, begun, untimed = task.rates(task.total), time.monotonic(), 0
        for rows in itertools.islice(task.stream(0), task.total // task.chunk):
            loss = trainer.run_chunk(rows, rates[trainer.done : trainer.done + task.chunk], seed=seed + trainer.done)
            if trainer.done == task.chunk < task.total:
                float(loss)  # waits for the first epoch, which compiles
                begun, untimed = time.monotonic(), trainer.done
        float(loss)
        stepped = time.monotonic()
        self.milliseconds = 1e3 * (stepped - begun) / (trainer.done - untimed)
        scores = task.evaluate(task.model)
        self.seconds = self.milliseconds * task.total / 1e3 + time.monotonic() - stepped
        return scores
