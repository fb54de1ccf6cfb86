"""Calling somebody's model without leaving a trace: mode restored, no gradients, inputs where the weights are."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.utils.data import DataLoader

from unsmooth.errors import DataError, FeatureError, ForwardError, UnsmoothError
from unsmooth.metrics.dense import require_dense
from unsmooth.models.registry import towers
from unsmooth.models.sound import SOUND, padding_of_sound
from unsmooth.models.storage import home, refuse_without_values

NOT_PASSED = ("special_tokens_mask", "labels")
_INPUTS = ("input_ids", "pixel_values", "bbox", "input_features", "input_values", "decoder_input_ids")


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Evaluation mode without gradients; every submodule's own mode is restored, also after an exception."""
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.no_grad():
            yield model
    finally:
        for module, mode in modes.items():
            module.training = mode


def each_batch(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches one by one; a single batch where several were meant is refused with the slip it is.

    >>> list(each_batch([torch.ones(1, 2)]))
    [tensor([[1., 1.]])]
    """
    if isinstance(batches, Tensor):
        raise DataError(
            f"expected a list (or loader) of batches, got one tensor of shape {tuple(batches.shape)}, over whose first "
            "dimension a loop would run: give [x]"
        )
    if isinstance(batches, Mapping):
        raise DataError(
            "expected a list (or loader) of batches, got one batch of keyword inputs "
            f"({', '.join(map(str, batches))}), as a tokenizer or processor makes it: give [batch]"
        )
    if isinstance(batches, str | bytes):
        raise DataError(f"expected a list (or loader) of batches, got text {batches[:40]!r}: tokenise it first")
    if not isinstance(batches, Iterable):
        kind = type(batches).__name__
        wrap = ": give DataLoader(dataset, batch_size=8)" if hasattr(batches, "__getitem__") else ""
        raise DataError(f"expected a list (or loader) of batches, got {kind}{wrap}")
    yield from batches


def call(model: nn.Module, batch: Any) -> Any:
    """Call a model on a batch: keyword inputs for a dict, the first item of a tuple, else the batch itself.

    Labels are not passed on, nor is `special_tokens_mask`, which tokenizers give but models don't take. Of an encoder
    and a decoder the encoder runs alone where the batch has nothing for the decoder.
    ForwardError when the model fails on it.
    """
    refuse_without_values(model)
    try:
        if isinstance(batch, Mapping):
            given = {name: value for name, value in batch.items() if name not in NOT_PASSED}
            return _encoder_alone(model, given)(**given)
        return _encoder_alone(model, {})(main_input(batch))
    except UnsmoothError:
        raise
    except Exception as error:
        raise ForwardError(_why(model, batch, error)) from error


def _encoder_alone(model: nn.Module, given: Mapping[str, Any]) -> nn.Module:
    """The encoder of a Hugging Face pair (T5, BART) that takes all that is given by name; else the model."""
    find = getattr(model, "get_encoder", None)
    if find is None or not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        return model
    encoder = find()
    if not isinstance(encoder, nn.Module) or not set(given) <= set(inspect.signature(encoder.forward).parameters):
        return model
    return encoder


def main_input(batch: Any) -> Any:
    """The first item of a tuple or list, such as an input with its label; else the batch itself."""
    return batch[0] if isinstance(batch, tuple | list) and batch else batch


def kept_tokens(batch: Any, model: nn.Module | None = None) -> Bool[Tensor, "batch token"] | None:
    """Where a batch holds no padding; None if it does not say."""
    padding = padding_of(batch, model=model)
    return None if padding is None else ~padding


def padding_of(batch: Any, prefix: int = 0, model: nn.Module | None = None) -> Bool[Tensor, "batch token"] | None:
    """Where a batch of keyword inputs says that it holds padding; None if it does not say.

    The mask of sound is over samples or spectra: `model` knows how many tokens its convolutions make of them.

    >>> padding_of({"attention_mask": torch.tensor([[1, 1, 0]])})
    tensor([[False, False,  True]])
    """
    batch = main_input(batch)
    if not isinstance(batch, Mapping):
        return None
    for name in ("attention_mask", "pixel_attention_mask"):
        mask = batch.get(name)
        if isinstance(mask, Tensor) and mask.dim() == 2:
            return mask == 0 if model is None or SOUND.isdisjoint(batch) else padding_of_sound(mask != 0, model)
        if isinstance(mask, Tensor) and mask.dim() in (3, 4) and mask.shape[-1] == mask.shape[-2]:
            return padding_of_pairs(mask)
    valid = batch.get("patch_valid")  # timm's NaFlexViT: of patches only, before which stand the prefix tokens
    if isinstance(valid, Tensor):
        return torch.nn.functional.pad(~valid.bool(), (prefix, 0))
    mask = batch.get("src_key_padding_mask")  # torch's encoder: True, or −∞, is padding
    return mask != 0 if isinstance(mask, Tensor) and mask.dim() == 2 else None


def padding_of_pairs(mask: Tensor) -> Bool[Tensor, "batch token"]:
    """The padding that a mask of (query, key) pairs tells of: tokens that may not look at themselves.

    Such a mask is 1 or 0, or is added to the scores (0 or −∞). A query that may look at everything while others may
    not is ambiguous: some libraries open the rows of padding so that no softmax is empty.

    >>> seen = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 0]])
    >>> padding_of_pairs(seen[None, None])
    tensor([[False, False,  True]])
    """
    added = mask.is_floating_point() and bool((mask <= 0).all())
    open_ = mask > -1 if added else mask != 0
    open_ = open_ if open_.dim() == 3 else open_.any(1)
    whole = open_.all(-1)
    causal = ~open_.triu(1).flatten(1).any(-1)
    sure = whole.all(-1) | ~whole.any(-1) | (causal & (whole.sum(-1) <= 1))
    if not bool(sure.all()):
        raise FeatureError(
            f"an attention mask of shape {tuple(mask.shape)} does not say which tokens are padding (some queries see "
            "every key, others do not): give the mask of tokens, of shape (batch, token), or use tokens='all'"
        )
    return ~open_.diagonal(dim1=-2, dim2=-1)


def pictures_follow(batch: Any) -> bool:
    """Whether nothing says that pictures beside text hold padding: their tokens then all count."""
    batch = main_input(batch)
    masks = [batch.get(name) for name in ("pixel_mask", "visual_attention_mask")] if isinstance(batch, Mapping) else []
    return all(bool(mask.all()) for mask in masks if isinstance(mask, Tensor))


def lengthened(mask: Bool[Tensor, "batch text"], tokens: int, value: bool) -> Bool[Tensor, "batch token"]:
    """A mask of text with `value` for the tokens of a picture that follow it.

    >>> lengthened(torch.tensor([[True, False]]), 4, True)
    tensor([[ True, False,  True,  True]])
    """
    return torch.nn.functional.pad(mask, (0, max(0, tokens - mask.shape[1])), value=value)


def to_model(batch: Any, model: nn.Module) -> Any:
    """A copy of the batch on the model's device, floating inputs in its dtype; of a tuple, the input only.

    A copy, because a model may write to its inputs, and the batch is somebody's: a probe that is used again.

    Of a dict, tensors and options (`is_causal=True`); texts and lists that come beside them are left out.
    """
    moved = _moved(batch, *home(model))
    if isinstance(moved, tuple) and isinstance(moved[0], dict):  # by name where the model has such names, else whole
        takes = inspect.signature(model.forward).parameters
        return moved[0] if any(name in moved[0] and name in takes for name in _INPUTS) else moved
    return moved


def sequence_shape(inputs: Any) -> tuple[int, int]:
    """How many sequences, and of how many tokens: of text, or of embedded tokens; (0, 0) for other inputs.

    >>> sequence_shape({"input_ids": torch.zeros(2, 7, dtype=torch.int64)}), sequence_shape(torch.zeros(2, 3, 8, 8))
    ((2, 7), (0, 0))
    """
    if isinstance(inputs, Mapping):
        inputs = next((inputs[name] for name in ("input_ids", "inputs_embeds") if name in inputs), None)
    x = inputs[0] if isinstance(inputs, tuple) else inputs
    if not isinstance(x, Tensor) or x.dim() != (3 if x.is_floating_point() else 2):
        return 0, 0
    return x.shape[0], x.shape[1]


def _moved(batch: Any, device: torch.device, dtype: torch.dtype) -> Any:
    if isinstance(batch, Tensor):
        require_dense(batch, "a batch")
        if batch.dim() and len(batch) == 0:
            raise FeatureError(f"a batch of shape {tuple(batch.shape)} holds no samples: leave empty batches out")
        moved = batch.to(device, dtype if batch.is_floating_point() else None, non_blocking=True)
        return moved.clone() if moved is batch else moved
    if isinstance(batch, Mapping):
        kept = {name: value for name, value in batch.items() if isinstance(value, Tensor | bool | int | float)}
        if not any(isinstance(value, Tensor) for value in kept.values()):
            held = ", ".join(f"{name} ({type(value).__name__})" for name, value in batch.items())
            raise DataError(
                f"a batch of keyword inputs must hold tensors, got {held or 'nothing'}: ask the tokenizer or processor "
                "for them (return_tensors='pt')"
            )
        return {
            name: _moved(value, device, dtype) if isinstance(value, Tensor) else value for name, value in kept.items()
        }
    if isinstance(batch, tuple | list) and batch:
        return (_moved(batch[0], device, dtype),)
    hint = ": give torch.from_numpy(x)" if isinstance(batch, np.ndarray) else ""
    hint = ": give tokenizer(texts, return_tensors='pt', padding=True)" if isinstance(batch, str) else hint
    hint = ": give one of its batches, next(iter(it))" if isinstance(batch, DataLoader | Iterator) else hint
    raise UnsmoothError(
        "a batch must be a tensor, a dict of keyword inputs, or a tuple that starts with the input; "
        f"got {type(batch).__name__}{hint}"
    )


def _why(model: nn.Module, batch: Any, error: Exception) -> str:
    inputs = batch if isinstance(batch, Mapping) else {"input": main_input(batch)}
    shapes = ", ".join(
        f"{n} {tuple(x.shape)}" for n, x in inputs.items() if isinstance(x, Tensor) and n not in NOT_PASSED
    )
    first = next(iter(str(error).strip().splitlines()), "")
    what = f"{type(model).__name__} cannot run on a batch of {shapes or 'no tensors'}"
    return f"{what} ({type(error).__name__}: {first}): {_hint(model, batch, inputs, error, first)}"


def _hint(model: nn.Module, batch: Any, inputs: Mapping[str, Any], error: Exception, first: str) -> str:
    """What to do about a forward pass that failed."""
    if isinstance(error, torch.OutOfMemoryError):
        return "take smaller batches (batch_size, --batch-size)"
    if "_forward_unimplemented" in first or 'the required "forward"' in first:
        parts = [path for path in towers(model) if path] or [name for name, _ in model.named_children()]
        named = " or ".join(f"model.{path}" for path in parts)
        return f"it has no forward of its own: give the part that has one ({named})"
    if isinstance(error, TypeError) and "required positional argument" in first:
        return "in Python, a batch that is a dict gives a model several inputs by their names"
    if isinstance(error, TypeError) and ("unexpected keyword argument" in first or " were given" in first):
        takes = ", ".join(inspect.signature(model.forward).parameters)
        return f"its forward takes {takes}: name the inputs so, in a dict"
    if isinstance(error, IndexError) and (ids := _strange_ids(model, inputs)):
        return ids
    pictures = [x for x in inputs.values() if isinstance(x, Tensor) and x.is_floating_point() and x.dim() == 3]
    if any(x.shape[0] in (1, 3) and isinstance(error, ValueError) for x in pictures):
        return "is this one picture without a batch axis? Give x[None], or DataLoader(dataset, batch_size=8)"
    text = inputs.get("input_ids")
    if isinstance(text, Tensor) and text.dim() == 1:
        return (
            "is this one text without a batch axis? Give x[None] of its tensors, or DataLoader(dataset, batch_size=8)"
        )
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return (
        "check the size and channels of images, the length of texts (max_length, --max-length"
        + (f"; this model has {positions} positions" if isinstance(positions, int) else "")
        + "), and the dtype"
        + _also_takes(model, batch)
    )


def _strange_ids(model: nn.Module, inputs: Mapping[str, Any]) -> str:
    """What to say of token ids that the model has no embedding for, as another model's tokenizer gives them."""
    try:
        embedding = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        return ""
    x = inputs.get("input_ids", inputs.get("input"))
    if not isinstance(embedding, nn.Embedding) or not isinstance(x, Tensor) or x.is_floating_point() or not x.numel():
        return ""
    low, high = int(x.min()), int(x.max())
    if low >= 0 and high < embedding.num_embeddings:
        return ""
    return (
        f"it has embeddings for the ids 0 to {embedding.num_embeddings - 1}, and the batch holds {low} to {high}: is "
        "the tokenizer this model's own?"
    )


def _also_takes(model: nn.Module, batch: Any) -> str:
    """Inputs of other kinds that the model has a place for and did not get: pictures beside text, boxes, targets."""
    takes = inspect.signature(model.forward).parameters
    given = set(batch) if isinstance(batch, Mapping) else set(takes) & {next(iter(takes), "")}
    lacking = [name for name in _INPUTS if name in takes and name not in given]
    if not lacking:
        return ""
    return (
        f". It also takes {', '.join(lacking)}: in Python, give unsmooth.measure dicts of all that its own processor "
        "makes, or a part of the model that takes one kind"
    )
