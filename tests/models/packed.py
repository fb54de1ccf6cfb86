"""Layers that keep their weight in another form, packed here by the definition of each format.

BitNet's layers are Hugging Face's, the dynamic ones torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from model_cases import DECODER, hf
from torch import Tensor, nn

IDS = {"input_ids": torch.arange(12).reshape(2, 6) + 3}
WIDE = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
}  # bitsandbytes works on 64 numbers at a time


def llama(dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    return hf("Llama", **{**DECODER, **WIDE})().to(dtype).eval()


def swapped(make: Callable[[nn.Linear], nn.Module], dtype: torch.dtype = torch.float32) -> Any:
    """A small Llama with every linear layer of its blocks replaced."""
    model = llama(dtype)
    for path, module in list(model.layers.named_modules()):
        if isinstance(module, nn.Linear):
            parent, _, name = path.rpartition(".")
            setattr(model.layers.get_submodule(parent), name, make(module))
    return model


class Packed(nn.Module):
    """A linear layer that keeps its weight in another form, and multiplies by what that form says."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = of.in_features, of.out_features
        self.bias = None if of.bias is None else nn.Parameter(of.bias.detach())
        self.pack(of.weight.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        y = x @ self.dequantised().to(x.dtype).mT
        return y if self.bias is None else y + self.bias


class Float8Linear(Packed):
    """float8 with a scale for every block of 32 × 64, as Hugging Face's fine-grained FP8 keeps it."""

    def pack(self, w: Tensor) -> None:
        blocks = w.unflatten(0, (-1, 32)).unflatten(2, (-1, 64))
        scale = blocks.abs().amax((1, 3)) / 448
        codes = (blocks / scale[:, None, :, None]).flatten(2).flatten(0, 1).to(torch.float8_e4m3fn)
        self.weight = nn.Parameter(codes, requires_grad=False)
        self.weight_scale_inv = nn.Parameter(scale, requires_grad=False)

    def dequantised(self) -> Tensor:
        return self.weight.float() * self.weight_scale_inv.repeat_interleave(32, 0).repeat_interleave(64, 1)


class Params4bit(nn.Parameter):
    """Two weights a byte, in one column, as bitsandbytes keeps them."""


class Linear4bit(Packed):
    def pack(self, w: Tensor) -> None:
        self.scale = w.abs().max() / 7
        codes = (w / self.scale).round().add(8).to(torch.uint8).reshape(-1, 2)
        self.weight = Params4bit((codes[:, 0] + 16 * codes[:, 1])[:, None], requires_grad=False)

    def dequantised(self) -> Tensor:
        codes = torch.cat([self.weight % 16, self.weight // 16], 1).reshape(self.out_features, self.in_features)
        return (codes.float() - 8) * self.scale


def _four_bits(codes: Tensor, order: Sequence[int] = range(8)) -> Tensor:
    """Eight codes an integer, along the last axis; `order[i]` is the code in the bits 4i to 4i + 3."""
    eight = codes.long().unflatten(-1, (-1, 8))[..., list(order)]
    return sum(eight[..., i] << 4 * i for i in range(8)).to(torch.int32)


def _codes(packed: Tensor, order: Sequence[int] = range(8)) -> Tensor:
    eight = torch.stack([packed >> 4 * i & 15 for i in range(8)], -1)
    return eight[..., [list(order).index(i) for i in range(8)]].flatten(-2)


class GPTQLinear(Packed):
    """GPTQ, 4 bits, groups of 32 inputs in an order of their own: (q − zero − 1) · scale, no `weight` at all."""

    def pack(self, w: Tensor) -> None:
        self.g_idx = nn.Buffer(torch.randperm(self.in_features, generator=torch.Generator().manual_seed(0)) // 32)
        groups = [w[:, self.g_idx == g] for g in range(self.in_features // 32)]
        self.scales = nn.Buffer(torch.stack([g.abs().amax(1) / 7 for g in groups]).half())
        codes = (w.mT / self.scales.float()[self.g_idx]).round().add(8).clamp(0, 15)
        self.qweight = nn.Buffer(_four_bits(codes.mT).mT.contiguous())
        self.qzeros = nn.Buffer(_four_bits(torch.full(self.scales.shape, 7)))  # one less than the zero point

    def dequantised(self) -> Tensor:
        codes, zeros = _codes(self.qweight.mT).mT, _codes(self.qzeros)[self.g_idx]
        return ((codes - zeros - 1) * self.scales.float()[self.g_idx]).mT


class AWQLinear(Packed):
    """AWQ, 4 bits, groups of 32 inputs; eight outputs an integer, in AWQ's order."""

    order = (0, 2, 4, 6, 1, 3, 5, 7)

    def pack(self, w: Tensor) -> None:
        groups = w.mT.unflatten(0, (-1, 32))
        low, high = groups.amin(1), groups.amax(1)
        self.scales = nn.Buffer(((high - low) / 15).half())
        zeros = (-low / self.scales.float()).round().clamp(0, 15)
        codes = (w.mT / self._each(self.scales.float())).round() + self._each(zeros)
        self.qweight = nn.Buffer(_four_bits(codes.clamp(0, 15), self.order))
        self.qzeros = nn.Buffer(_four_bits(zeros, self.order))

    def _each(self, by_group: Tensor) -> Tensor:
        return by_group.repeat_interleave(32, 0)

    def dequantised(self) -> Tensor:
        codes, zeros = _codes(self.qweight, self.order), self._each(_codes(self.qzeros, self.order))
        return ((codes - zeros) * self._each(self.scales.float())).mT


class RoundsInputs(Linear4bit):
    """Also its inputs have 8 bits, by the largest of each token, as LLM.int8() and BitNet have it."""

    def forward(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-5) / 127
        return super().forward((x / scale).round() * scale)


class Int8Tensor(Tensor):
    """A tensor that says it is float32 and holds int8 and scales; it knows `linear`, nothing else (torchao)."""

    @staticmethod
    def __new__(cls, codes: Tensor, scale: Tensor) -> Int8Tensor:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=scale.dtype)  # type: ignore[attr-defined]

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes", "scale"], None

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is nn.functional.linear:
            x, weight, bias = args
            return nn.functional.linear(x, weight.codes * weight.scale, bias)
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Int8Tensor(args[0].codes, args[0].scale)
        raise NotImplementedError(f"Int8Tensor dispatch: {func}")


def int8(of: nn.Linear) -> nn.Module:
    scale = of.weight.detach().abs().amax(1, keepdim=True) / 127
    codes = (of.weight.detach() / scale).round().to(torch.int8)
    of.weight = nn.Parameter(Int8Tensor(codes, scale), requires_grad=False)
    return of


def bitnet(of: nn.Linear) -> nn.Module:
    """Hugging Face's own layer: weights −1, 0 and 1, four a byte, and inputs of 8 bits."""
    from transformers.integrations.bitnet import BitLinear, pack_weights

    layer = BitLinear(of.in_features, of.out_features, bias=False, dtype=torch.float32)
    layer.weight_scale.copy_(1 / of.weight.detach().abs().mean())
    layer.weight.copy_(pack_weights((of.weight.detach() * layer.weight_scale).round().clamp(-1, 1)))
    return layer


def dynamic(of: nn.Linear) -> nn.Module:
    """torch's own: the weight lies in an object of C++, and `weight` is a method."""
    layer = nn.Sequential(of)
    return torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)[0]  # type: ignore[no-any-return]


def dequantised(layer: Any) -> Tensor:
    """By the definition of each format, nothing of which the library knows."""
    if isinstance(layer, Packed):
        return layer.dequantised()
    if hasattr(layer, "weight_scale"):
        from transformers.integrations.bitnet import unpack_weights

        with torch.compiler.set_stance("force_eager"):
            return unpack_weights(layer.weight, torch.float32) / layer.weight_scale
    if callable(layer.weight):
        return layer.weight().dequantize()
    weight = layer.weight
    return weight.codes * weight.scale if isinstance(weight, Int8Tensor) else weight.dequantize()


FORMATS: dict[str, tuple[Callable[[nn.Linear], nn.Module], str]] = {
    "float8": (Float8Linear, r"torch\.float8_e4m3fn in a Float8Linear"),
    "4 bits": (Linear4bit, r"Params4bit of torch\.uint8 in a Linear4bit"),
    "GPTQ": (GPTQLinear, "packed away in a GPTQLinear"),
    "AWQ": (AWQLinear, "packed away in a AWQLinear"),
    "int8": (int8, r"Int8Tensor of torch\.float32 in a Linear"),
    "8 bits, inputs too": (RoundsInputs, r"Params4bit of torch\.uint8 in a RoundsInputs"),
    "BitNet": (bitnet, r"torch\.uint8 in a BitLinear"),
    "torch's dynamic": (dynamic, "packed away in a Linear"),
}
