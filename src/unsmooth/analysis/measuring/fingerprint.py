"""Which sample is which: a key made from each sample's input, so that two runs can tell what they share.

The key is Σ_i w_i x_i modulo 2⁶⁴, over the input's bytes as 64-bit words x_i with fixed pseudo-random weights w_i:
the same bits on every device and under every order of summation, and it costs one read of the input. It tells inputs
apart, it is no protection against somebody who wants two of them to agree.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from unsmooth.errors import FeatureError
from unsmooth.models.inputs import NOT_PASSED, kept_tokens, main_input

CHUNK = 1 << 23  # words multiplied at once on a device
_STEP = 0x5851F42D4C957F2D  # Knuth's multiplier, between the tensors of a dict


def sample_keys(given: Any, inputs: Any) -> Int64[Tensor, " batch"] | None:
    """A key for each row of a batch, without waiting for a device; None where rows cannot be read.

    `inputs` is the batch as the model takes it, `given` as it came. What was cast is read as it came: a model in
    bfloat16 sees the same samples as one in float32. Padding is no part of a sample: the same record has the same key
    beside longer ones.

    >>> batch = torch.tensor([[1, 2], [3, 4], [1, 2]])
    >>> one, two, three = sample_keys(batch, batch).tolist()
    >>> one == three, one == two
    (True, False)
    """
    before, after = _tensors(given), _tensors(inputs)
    tensors = {name: after[name] if _as_it_came(after[name], x) else x for name, x in before.items()}
    if not tensors or not all(_readable(x) for x in tensors.values()):
        return None
    kept = _kept(given)
    if kept is not None:  # a mask of pairs says nothing more of a sample
        tensors = {name: x for name, x in tensors.items() if name != "attention_mask" or x.dim() == 2}
    first = next(iter(tensors.values()))
    keys = torch.zeros(len(first), dtype=torch.int64, device=first.device)
    for x in tensors.values():
        if len(x) == len(keys):  # what has another length belongs to the batch, not to a sample
            padded = kept is not None and x.dim() > 1 and x.shape[:2] == kept.shape
            keys = keys * _STEP + (_key(_left(x, kept), kept) if padded else _key(x.detach())).to(first.device)
    return keys


def batch_keys(given: Any, samples: int) -> Int64[Tensor, " sample"] | None:
    """Keys of samples that are not the rows of what was given (tokens come first): their batch, and their place in it.

    >>> x = torch.tensor([[1, 2], [3, 4], [1, 2]])
    >>> keys = batch_keys(x, 2)
    >>> keys is not None and len(keys) == 2 and bool((keys == batch_keys(x.clone(), 2)).all())
    True
    """
    tensors = _tensors(given)
    if not tensors or not all(_readable(x) for x in tensors.values()):
        return None
    key = 0
    for x in tensors.values():
        key = _wrapped(key * _STEP + int(_key(x.detach().reshape(1, *x.shape))))
    return torch.tensor([_wrapped(key * _STEP + place) for place in range(samples)], dtype=torch.int64)


def _wrapped(value: int) -> int:
    """As an integer of 64 bits with a sign."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _as_it_came(x: Tensor, given: Tensor) -> bool:
    """Whether the model's copy still holds what was given: not cast, and not written to by the model."""
    return x.dtype == given.dtype and not x.is_inference() and x._version == 0


def _kept(batch: Any) -> Tensor | None:
    """The tokens that are no padding, where the batch says so: how much of it there is depends on the neighbours."""
    try:
        return kept_tokens(batch)
    except FeatureError:  # a mask that does not tell
        return None


def _left(x: Tensor, kept: Tensor | None) -> Tensor:
    """The kept tokens of every row moved to its beginning, zeros behind them."""
    assert kept is not None
    kept = kept.to(x.device)
    order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)
    rest = (1,) * (x.dim() - 2)
    moved = x.detach().gather(1, order.view(*order.shape, *rest).expand_as(x))
    return torch.where(kept.gather(1, order).view(*order.shape, *rest), moved, torch.zeros_like(moved))


def _tensors(batch: Any) -> dict[str, Tensor]:
    """The tensors that the model is called with, by name."""
    batch = main_input(batch)
    if isinstance(batch, Mapping):
        return {name: batch[name] for name in sorted(batch) if name not in NOT_PASSED and _has_rows(batch[name])}
    return {"": batch} if _has_rows(batch) else {}


def _has_rows(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() > 0


def _readable(x: Tensor) -> bool:
    return x.layout == torch.strided and not (x.is_nested or x.is_complex() or x.is_quantized)


def _key(x: Tensor, kept: Tensor | None = None) -> Int64[Tensor, " batch"]:
    """The key of each row as if it had no padding, whose zeros add nothing to a sum of words."""
    x = x.cpu() if x.device.type == "mps" else x
    lengths = [x.shape[1:2]] if kept is None else [(count,) for count in kept.sum(-1).tolist()]
    shapes = [zlib.crc32(f"{x.dtype}{(*length, *x.shape[2:])}".encode()) for length in lengths]
    shape = shapes[0] if kept is None else torch.tensor(shapes, dtype=torch.int64).to(x.device, non_blocking=True)
    if x.numel() == 0:
        return torch.zeros(len(x), dtype=torch.int64, device=x.device) + shape
    words = _words(x.reshape(len(x), -1).contiguous().view(torch.uint8))
    weights = _weights(words.shape[1], str(x.device))
    return (words @ weights if x.device.type == "cpu" else in_chunks(words, weights)) + shape


def in_chunks(words: Int64[Tensor, "batch word"], weights: Int64[Tensor, " word"]) -> Int64[Tensor, " batch"]:
    """`words @ weights` for devices, which have no product of integer matrices."""
    rows = max(1, CHUNK // words.shape[1])
    return torch.cat([(part * weights).sum(-1) for part in words.split(rows)])


def _words(octets: UInt8[Tensor, "batch octet"]) -> Int64[Tensor, "batch word"]:
    """Rows of bytes as rows of 64-bit words, copied where they are not whole words or don't begin at one."""
    size = octets.shape[1]
    if size % 8 or octets.storage_offset() % 8 or octets.stride(0) % 8:
        rows = octets.new_zeros(len(octets), size + -size % 8)
        rows[:, :size] = octets
        octets = rows
    return octets.view(torch.int64)


@lru_cache(maxsize=8)
def _weights(count: int, device: str) -> Int64[Tensor, " count"]:
    """Odd numbers that look random: SplitMix64 of 1, 2, 3, …"""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = (z ^ (z >> np.uint64(31))) | np.uint64(1)
    return torch.from_numpy(z.view(np.int64)).to(device)
