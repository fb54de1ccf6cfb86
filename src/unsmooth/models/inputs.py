"""What a batch holds: its main input, how long its sequences are, which of their positions are padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from unsmooth.errors import DataError, FeatureError
from unsmooth.models.sound import SOUND, padding_of_sound

NOT_PASSED = ("special_tokens_mask", "labels")  # of what tokenizers and loaders give, what models do not take


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


def main_input(batch: Any) -> Any:
    """The first item of a tuple or list, such as an input with its label; else the batch itself."""
    return batch[0] if isinstance(batch, tuple | list) and batch else batch


def rows_of(inputs: Any, chosen: slice | Bool[Tensor, " batch"]) -> Any:
    """Some samples of what a model takes; whatever else comes with them by name, stays.

    >>> rows_of({"input_ids": torch.tensor([[1, 2], [3, 4]]), "is_causal": True}, slice(1))
    {'input_ids': tensor([[1, 2]]), 'is_causal': True}
    """
    if isinstance(inputs, Mapping):
        return {name: x[chosen] if isinstance(x, Tensor) and x.dim() else x for name, x in inputs.items()}
    return inputs[chosen] if isinstance(inputs, Tensor) and inputs.dim() else inputs


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
