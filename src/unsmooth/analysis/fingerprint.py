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

from unsmooth.models.forward import NOT_PASSED

CHUNK = 1 << 23  # words multiplied at once on a device
_STEP = 0x5851F42D4C957F2D  # Knuth's multiplier, between the tensors of a dict


def sample_keys(given: Any, inputs: Any) -> Int64[Tensor, " batch"] | None:
    """A key for each row of a batch, without waiting for a device; None where rows cannot be read.

    `inputs` is the batch as the model takes it, `given` as it came. What was cast is read as it came: a model in
    bfloat16 sees the same samples as one in float32.

    >>> batch = torch.tensor([[1, 2], [3, 4], [1, 2]])
    >>> one, two, three = sample_keys(batch, batch).tolist()
    >>> one == three, one == two
    (True, False)
    """
    before, after = _tensors(given), _tensors(inputs)
    tensors = [after[name] if after[name].dtype == x.dtype else x for name, x in before.items()]
    if not tensors or not all(_readable(x) for x in tensors):
        return None
    device = tensors[0].device
    keys = torch.zeros(len(tensors[0]), dtype=torch.int64, device=device)
    for x in tensors:
        if len(x) == len(keys):  # what has another length belongs to the batch, not to a sample
            keys = keys * _STEP + _key(x.detach()).to(device)
    return keys


def _tensors(batch: Any) -> dict[str, Tensor]:
    """The tensors that the model is called with, by name."""
    batch = batch[0] if isinstance(batch, tuple | list) else batch
    if isinstance(batch, Mapping):
        return {name: batch[name] for name in sorted(batch) if name not in NOT_PASSED and _has_rows(batch[name])}
    return {"": batch} if _has_rows(batch) else {}


def _has_rows(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() > 0


def _readable(x: Tensor) -> bool:
    return x.layout == torch.strided and not (x.is_nested or x.is_complex() or x.is_quantized)


def _key(x: Tensor) -> Int64[Tensor, " batch"]:
    x = x.cpu() if x.device.type == "mps" else x
    shape = zlib.crc32(f"{x.dtype}{tuple(x.shape[1:])}".encode())
    if x.numel() == 0:
        return torch.full((len(x),), shape, dtype=torch.int64, device=x.device)
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
