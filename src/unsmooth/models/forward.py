"""Calling somebody's model without leaving a trace: mode restored, no gradients, inputs where the weights are."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from unsmooth.errors import DataError, FeatureError, ForwardError, UnsmoothError
from unsmooth.metrics.dense import require_dense
from unsmooth.models.inputs import NOT_PASSED, main_input
from unsmooth.models.registry import towers
from unsmooth.models.storage import home, refuse_without_values

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
