"""One run of a study: build, look, change, train, score, look again. What differs between images and texts is below."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unsmooth.control.effect import effect
from unsmooth.control.penalty import spectral_sides
from unsmooth.models import view
from unsmooth.training.engine.precision import autocast
from unsmooth.training.finetuning.arms import Arm, fit, parameter_rates


class Job(ABC):
    """A data set or task on which one model is fine-tuned; everything is on the device."""

    name: str
    unit: str
    device: torch.device
    settings: dict[str, str]  # all that a run depends on besides model, data, arm and seed, as kept with it
    rates: dict[str, float]  # lr, head_lr, weight_decay
    precision: str
    clip: float = 1.0
    warmup: float = 0.1  # a share of the steps
    steps: int

    @abstractmethod
    def build(self, seed: int) -> nn.Module:
        """A copy of the pretrained model, its `encoder`, with a new head."""

    @abstractmethod
    def look(self) -> Any:
        """A few inputs of the encoder, to see how smooth it is."""

    @abstractmethod
    def stream(self, seed: int) -> Iterator[tuple[Tensor, ...]]:
        """Inputs of the model, and labels, without end."""

    @abstractmethod
    def score(self, model: nn.Module) -> dict[str, float]:
        """On data that were not trained on."""

    def run(self, arm: Arm, seed: int, deadline: float = math.inf) -> dict[str, float]:
        """Train to the end; scores, and smoothness and signs of eigenvalues before and after.

        Whatever the arm, a seed has the same head, order of data, augmentation and dropout.
        """
        model = self.build(seed).to(self.device).requires_grad_(True)
        encoder = model.encoder
        assert isinstance(encoder, nn.Module)
        pretrained, look = list(encoder.parameters()), [self.look()]
        before = effect(encoder, look, None) | _sides(encoder)
        arm.apply(encoder, seed)
        model.to(self.device)  # what a fix added
        groups = parameter_rates(model, encoder, pretrained, added_lr=arm.added_lr, **self.rates)
        stream = self.stream(seed)

        def loss(step: int) -> Tensor:
            *inputs, labels = next(stream)
            with self.autocast():
                logits = model(*inputs)
            return F.cross_entropy(logits.float(), labels)

        torch.manual_seed(seed)
        fitted = fit(
            model, groups, encoder, arm, loss, self.steps, clip=self.clip, warmup=self.warmup, deadline=deadline
        )
        with torch.no_grad():
            scores = self.score(model)
        after = effect(encoder, look, None) | _sides(encoder)
        seen = {
            f"{name}_{when}": v for when, found in (("before", before), ("after", after)) for name, v in found.items()
        }
        return {**scores, "train_loss": fitted, **seen}

    def autocast(self) -> Any:
        """As training and scoring compute."""
        return autocast(self.device, self.precision)


def _sides(encoder: nn.Module) -> dict[str, float]:
    """Signs of eigenvalues, of the bare weights and with folding (`acting_…`); both are one where nothing folds."""
    bare = spectral_sides(encoder)
    weights = [layer.weights() for layer in view(encoder).layers]
    folds = any(each.norm is not None or each.out_scale is not None for each in weights)
    acting = spectral_sides(encoder, folded=True) if folds else bare
    return bare | {f"acting_{name}": value for name, value in acting.items()}
