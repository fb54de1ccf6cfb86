"""An encoder with a head for pairs of texts: the mean of its features, a layer with tanh, and logits."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from unsmooth.errors import UnknownModelError
from unsmooth.training.engine.task import FastPath
from unsmooth.training.fast.encoder import FastEncoder
from unsmooth.training.tasks.superglue.examples import Example, SuperGlueTask

HEAD, DROPOUT = 1024, 0.1  # the crammed BERT's
TOGETHER = 16  # tokens, as tensor cores like them


class PairClassifier(nn.Module):
    """Logits of pairs of texts: `outputs` for each, or of several choices one each, side by side."""

    def __init__(self, encoder: nn.Module, width: int, task: SuperGlueTask) -> None:
        super().__init__()
        self.encoder = encoder
        self.short: FastEncoder | None = None  # computes the encoder's output instead of it
        self.head = nn.Sequential(nn.Linear(width, HEAD), nn.Tanh(), nn.Dropout(DROPOUT), nn.Linear(HEAD, task.outputs))

    def forward(
        self, ids: Int64[Tensor, "row choice token"], mask: Bool[Tensor, "row choice token"]
    ) -> Float[Tensor, "row label"]:
        """Padding counts in neither attention nor mean."""
        flat, rows = mask.flatten(0, 1), ids.flatten(0, 1)
        if self.short is not None:
            features = self.short.features(rows, flat)
        else:
            features = self.encoder(input_ids=rows, attention_mask=flat.long()).last_hidden_state
        weights = flat[..., None].to(features.dtype)
        mean = (features * weights).sum(1) / weights.sum(1)
        logits: Tensor = self.head(mean)
        return logits.view(len(ids), -1)


class Instead(FastPath):
    """Inside, a faster encoder computes what the classifier's own would."""

    def __init__(self, model: PairClassifier, short: FastEncoder) -> None:
        self.model, self.short, self.compiles = model, short, short.compiles

    def __enter__(self) -> None:
        self.model.short = self.short

    def __exit__(self, *error: object) -> None:
        self.model.short = None

    def describe(self) -> dict[str, Any]:
        """What is taken."""
        return self.short.describe()


def classifier(model: nn.Module, task: SuperGlueTask, seed: int) -> PairClassifier:
    """A copy of a Hugging Face encoder with a new head; the same seed gives the same head."""
    encoder: Any = getattr(model, getattr(model, "base_model_prefix", "") or "", model)
    config = getattr(encoder, "config", None)
    if config is None or getattr(config, "is_encoder_decoder", False) or not hasattr(config, "hidden_size"):
        raise UnknownModelError(
            f"{type(model).__name__} is no text encoder of Hugging Face: it cannot be fine-tuned here"
        )
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        return PairClassifier(copy.deepcopy(encoder).float(), config.hidden_size, task)
    finally:
        torch.random.set_rng_state(state)


def encode(
    examples: Sequence[Example], tokenizer: Any, length: int
) -> tuple[Int64[Tensor, "row choice token"], Bool[Tensor, "row choice token"]]:
    """Ids and mask of all pairs, cut to `length` (longer text first) and padded to the longest: one shape for all."""
    pairs = [pair for example in examples for pair in example.choices]
    found = tokenizer(
        [a for a, _ in pairs],
        [b for _, b in pairs],
        truncation="longest_first",
        max_length=length,
        padding="longest",
        pad_to_multiple_of=None if length % TOGETHER else TOGETHER,
        return_tensors="pt",
        return_token_type_ids=False,
    )
    shape = (len(examples), -1, found["input_ids"].shape[-1])
    return found["input_ids"].view(shape), found["attention_mask"].bool().view(shape)


def positions(model: nn.Module) -> int | None:
    """How many tokens a model with learned positions can take; None where positions are computed."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith(("position_embeddings", "wpe")):
            unused = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa's begin after the padding's
            return module.num_embeddings - unused
    return None
