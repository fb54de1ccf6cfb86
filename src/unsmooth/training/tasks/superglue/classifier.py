"""An encoder with a head for pairs of texts: the mean of its features, a layer with tanh, and logits."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from unsmooth.errors import DataError, ForwardError, OptionError, UnknownModelError, first_line
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.training.engine.task import FastPath
from unsmooth.training.fast.encoder import FastEncoder
from unsmooth.training.tasks.superglue.examples import Example, SuperGlueTask

if TYPE_CHECKING:
    from unsmooth.sources import LoadedModel

HEAD, DROPOUT = 1024, 0.1  # the crammed BERT's
TOGETHER = 16  # tokens, as tensor cores like them


class PairClassifier(nn.Module):
    """Logits of pairs of texts: those of each pair, or of several choices side by side."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(
        self, ids: Int64[Tensor, "row choice token"], mask: Bool[Tensor, "row choice token"]
    ) -> Float[Tensor, "row label"]:
        """Padding counts in neither attention nor mean, and on a CPU what all texts of a batch lack is not computed."""
        if ids.device.type == "cpu":  # a captured step keeps its one shape
            longest = int(mask.any(1).any(0).sum())  # padding stands after the tokens
            ids, mask = ids[..., :longest], mask[..., :longest]
        flat = mask.flatten(0, 1)
        features = self.features(ids.flatten(0, 1), flat)
        weights = flat[..., None].to(features.dtype)
        mean = (features * weights).sum(1) / weights.sum(1)
        logits: Tensor = self.head(mean)
        return logits.view(len(ids), -1)

    def features(
        self, inputs: Int64[Tensor, "pair token"], mask: Bool[Tensor, "pair token"]
    ) -> Float[Tensor, "pair token dim"]:
        """The encoder's output."""
        found: Tensor = self.encoder(input_ids=inputs, attention_mask=mask.long()).last_hidden_state
        return found


class FastFeatures(FastPath):
    """Inside, a faster encoder computes the classifier's features."""

    def __init__(self, model: PairClassifier, encoder: FastEncoder) -> None:
        self.model, self.encoder, self.compiles = model, encoder, encoder.compiles

    def __enter__(self) -> None:
        self.model.features = self.encoder.features  # type: ignore[method-assign]

    def __exit__(self, *error: object) -> None:
        del self.model.features

    def describe(self) -> dict[str, Any]:
        """What is taken."""
        return self.encoder.describe()


def copied_encoder(model: nn.Module) -> nn.Module:
    """A copy of a model's encoder in float32, to be fine-tuned."""
    return copy.deepcopy(find_encoder(model)).float()


def find_encoder(model: nn.Module) -> nn.Module:
    """The Hugging Face model without the head of its task; of an encoder and a decoder (T5, BART), the encoder."""
    encoder: nn.Module = getattr(model, getattr(model, "base_model_prefix", "") or "", model)
    config = getattr(encoder, "config", None)
    if getattr(config, "is_encoder_decoder", False) and hasattr(encoder, "get_encoder"):
        encoder = encoder.get_encoder()  # type: ignore[operator]
    if not hasattr(config, "hidden_size"):
        raise UnknownModelError(
            f"{type(model).__name__} is no text encoder of Hugging Face: it cannot be fine-tuned here"
        )
    return encoder


def check_takes_text(loaded: LoadedModel) -> None:
    """UnknownModelError or DataError for what no text can be given to."""
    if loaded.modality != "text":
        raise UnknownModelError(
            f"{loaded.reference} takes {loaded.modality}: expected a text encoder of Hugging Face's"
        )
    if loaded.tokenizer is None:
        raise DataError(
            f"{loaded.reference} has no tokenizer beside its weights that can be used for English: put its files there"
        )


def check_positions(loaded: LoadedModel, task: SuperGlueTask, length: int) -> None:
    """OptionError for a task of texts that are longer than what the model has positions for."""
    limit = positions(loaded.model)
    if limit is not None and length > limit:
        raise OptionError(
            f"{loaded.reference} has {limit} positions, and {task.name} takes {length} tokens: leave it out "
            "(--tasks …), or in Python give FineTuning(length=…)"
        )


def features_width(encoder: nn.Module, *inputs: tuple[Tensor, Tensor]) -> int:
    """How wide an encoder's output is, which its layers need not be (OPT-350m); it is run to find out.

    ForwardError, which says why, where it cannot take the longest of the pairs, or the largest id.
    UnknownModelError where it has no output for each token.
    """
    width = 0
    for ids, mask in ((ids.flatten(0, 1), mask.flatten(0, 1)) for ids, mask in inputs):
        rows = torch.stack([mask.sum(1).argmax(), ids.amax(1).argmax()])
        with evaluating(encoder):
            found = call(encoder, to_model({"input_ids": ids[rows], "attention_mask": mask[rows].long()}, encoder))
        features = getattr(found, "last_hidden_state", None)
        if features is None or features.shape[:-1] != rows.shape + ids.shape[1:]:
            raise UnknownModelError(
                f"{type(encoder).__name__} gives no features of each token (last_hidden_state): it cannot be "
                "fine-tuned here"
            )
        width = features.shape[-1]
    return width


def check_trains(encoder: nn.Module, device: torch.device, ids: Tensor, mask: Tensor) -> None:
    """UnknownModelError for an encoder that runs on texts of any length, but learns from some lengths only: Reformer.

    On a CPU a batch is as long as its longest text; elsewhere all texts are padded to one length.
    """
    length = ids.shape[-1] if device.type != "cpu" else (int(mask.sum(-1).max()) - 1) | 1  # odd
    batch = {"input_ids": ids[:1, 0, :length], "attention_mask": mask[:1, 0, :length].long()}
    training = encoder.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            call(encoder.train(), to_model(batch, encoder))
    except ForwardError as error:
        raise UnknownModelError(
            f"{type(encoder).__name__} cannot be trained on texts of {length} tokens "
            f"({first_line(error.__cause__ or error)}): it cannot be fine-tuned here"
        ) from error
    finally:
        encoder.train(training)


def new_head(width: int, task: SuperGlueTask, seed: int) -> nn.Sequential:
    """A layer with tanh, and logits; drawn from the seed alone, and nobody else's draws move."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return nn.Sequential(nn.Linear(width, HEAD), nn.Tanh(), nn.Dropout(DROPOUT), nn.Linear(HEAD, task.outputs))


def encode(
    examples: Sequence[Example], tokenizer: Any, length: int
) -> tuple[Int64[Tensor, "row choice token"], Bool[Tensor, "row choice token"]]:
    """Ids and mask of all pairs, cut to `length` (longer text first) and padded to the longest: one shape for all.

    Padding stands after the tokens, whatever the tokenizer would do, so that it moves no position and `FastEncoder`
    finds it; a tokenizer of a decoder need not have a token for it, since it is hidden.
    """
    pairs = [pair for example in examples for pair in example.choices]
    found: list[list[int]] = tokenizer(
        [a for a, _ in pairs],
        [b for _, b in pairs],
        truncation="longest_first",
        max_length=length,
        return_token_type_ids=False,
    )["input_ids"]
    if [] in found:
        raise DataError(f"{pairs[found.index([])]} has no tokens: expected a text in each pair")
    lengths, together = torch.tensor([len(ids) for ids in found]), 1 if length % TOGETHER else TOGETHER
    mask = torch.arange(-(-int(lengths.max()) // together) * together) < lengths[:, None]
    padded = torch.full(mask.shape, tokenizer.pad_token_id or 0)
    padded[mask] = torch.tensor(list(chain.from_iterable(found)))
    shape = (len(examples), -1, mask.shape[-1])
    return padded.view(shape), mask.view(shape)


def positions(model: nn.Module) -> int | None:
    """How many tokens a model with a table of positions can take; None where it has none."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith(("position_embeddings", "embed_positions", "wpe")):
            unused = 0 if module.padding_idx is None else module.padding_idx + 1  # RoBERTa's begin after the padding's
            offset: int = getattr(module, "offset", 0)  # so many of BART's are never used
            return module.num_embeddings - unused - offset
    return None
