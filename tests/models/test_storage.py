"""Quantised, offloaded and odd weights: measured as the model computes, explained by exactly what it multiplies by.

The real classes of torchao, bitsandbytes and accelerate are tried where they are installed; their formats, and those of
GPTQ and AWQ, are packed here by their definitions. BitNet's layers are Hugging Face's, the dynamic ones torch's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from model_cases import DECODER, hf
from torch import Tensor, nn

import unsmooth
from unsmooth.control import apply_fix, reparametrize
from unsmooth.errors import WeightsError
from unsmooth.models import view
from unsmooth.models.quantised import is_linear
from unsmooth.models.storage import home
from unsmooth.models.weights import write_projection
from unsmooth.sources import LoadedModel

IDS = {"input_ids": torch.arange(12).reshape(2, 6) + 3}
PATH = "self_attn.v_proj"


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


@pytest.mark.filterwarnings("ignore:.*(torch.ao.quantization|quantize_per_tensor|TypedStorage)")
@pytest.mark.parametrize("kind", FORMATS)
def test_a_quantised_model_is_explained_by_exactly_its_weights(kind: str) -> None:
    make, said = FORMATS[kind]
    model = swapped(make)
    if kind == "GPTQ":
        model.layers[0].self_attn.v_proj.bias = nn.Parameter(torch.linspace(-300, 300, 64))
    check(model, said, rounds=kind in ("8 bits, inputs too", "BitNet", "torch's dynamic"))


def check(model: Any, said: str, rounds: bool = False) -> None:
    """As a model whose weights are the dequantised ones: weights, exponents, shares; nothing of it can be replaced."""
    twin = llama(home(model)[1])
    for path, module in model.layers.named_modules():
        if is_linear(module):
            twin.layers.get_submodule(path).weight.data = dequantised(module).detach().to(home(model)[1])
            twin.layers.get_submodule(path).bias = module.bias if isinstance(module.bias, Tensor) else None
    ours, plain = view(model).layers[0].weights(), view(twin).layers[0].weights()
    for name in ("w_v", "w_proj", "b_v"):
        mine, theirs = getattr(ours, name), getattr(plain, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-6 if rounds else 0, atol=1e-6 if rounds else 0)
    assert (ours.rounding > 0) == rounds
    half = home(model)[1] == torch.bfloat16
    loose = {"rel": 0.2, "abs": 0.05} if rounds or half else {"rel": 1e-4, "abs": 1e-5}
    cells = unsmooth.measure(twin, [IDS]).cells
    for cell, moments in unsmooth.measure(model, [IDS]).cells.items():
        assert moments.mean == pytest.approx(cells[cell].mean, **loose), cell
    found, expected = (unsmooth.explain(each, [IDS]) for each in (model, twin))
    assert any("round their inputs" in note for note in found.notes) == rounds
    assert found.frame()["exponent"].tolist() == pytest.approx(expected.frame()["exponent"].tolist(), **loose)
    found, expected = (unsmooth.attribute(each, [IDS]).frame()["mean"].tolist() for each in (model, twin))
    assert found == pytest.approx(expected, **loose)
    refused(model, said)


def refused(model: Any, said: str) -> None:
    """Weights that would be replaced are refused by name; a fix, which replaces none, has the dtype of features."""
    for change in (reparametrize, lambda model: write_projection(view(model).layers[0], torch.zeros(4, 32, 128), [])):
        with pytest.raises(WeightsError, match=said):
            change(model)
    loaded = LoadedModel(model, "hf:x", "text")
    assert loaded.weights_hash == LoadedModel(model, "hf:y", "text").weights_hash
    apply_fix(model, "attnscale")
    fix = next(model.layers[0].self_attn.fix.parameters())
    assert fix.dtype == home(model)[1]


def test_a_layer_that_is_not_its_matrix_is_refused() -> None:
    class Normed(Linear4bit):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(nn.functional.rms_norm(x, (self.in_features,)))

    class Fixed(Linear4bit):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward((x / 0.3).round() * 0.3)

    class Clamped(Linear4bit):  # 127.5 steps, of which the last is cut off: unit vectors are 0.4 % too short
        def forward(self, x: Tensor) -> Tensor:
            scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-5) / 127.5
            return super().forward((x / scale).round().clamp(-128, 127) * scale)

    class Broken(Linear4bit):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("no kernel")

    for kind in (Normed, Fixed, Clamped):
        with pytest.raises(WeightsError, match=rf"layer 0: {PATH}\.weight .*its {kind.__name__} is not the matrix"):
            view(swapped(kind)).layers[0].weights()
    with pytest.raises(WeightsError, match=r"Broken does not run on features of torch\.float32 .*no kernel"):
        view(swapped(Broken)).layers[0].weights()


def test_a_weight_that_changes_changes_the_hash_of_a_quantised_model() -> None:
    model = swapped(int8)
    before = LoadedModel(model, "hf:x", "text").weights_hash
    model.layers[0].self_attn.v_proj.weight.scale.mul_(2)
    assert LoadedModel(model, "hf:x", "text").weights_hash != before


def test_another_layer_in_the_place_of_a_linear_one_is_named() -> None:
    class QuantLinear(nn.Module):
        def __init__(self, of: nn.Linear) -> None:
            super().__init__()
            self.qweight = nn.Buffer(torch.zeros(4, 4, dtype=torch.int32))

    with pytest.raises(WeightsError, match=rf"no plain weight at {PATH}\.weight .*\(QuantLinear is there\)"):
        view(swapped(QuantLinear)).layers[0].weights()


def test_flat_weights_are_said_to_be_sharded_not_quantised() -> None:
    model = llama()
    model.layers[0].self_attn.v_proj.weight = nn.Parameter(torch.zeros(0))
    with pytest.raises(WeightsError, match=r"expected a matrix, got shape \(0,\): sharded weights"):
        view(model).layers[0].weights()


class Offloading:
    """accelerate's way: a weight is on the meta device, and in memory for the time of the call only."""

    execution_device = torch.device("cpu")

    def __init__(self, module: nn.Module) -> None:
        self.kept = {name: parameter.detach() for name, parameter in module.named_parameters(recurse=False)}
        module._hf_hook = self  # type: ignore[assignment]
        module.register_forward_pre_hook(self.load)
        module.register_forward_hook(self.drop)
        self.drop(module)

    def load(self, module: nn.Module, *_: Any) -> None:
        for name, value in self.kept.items():
            setattr(module, name, nn.Parameter(value, requires_grad=False))

    def drop(self, module: nn.Module, *_: Any) -> None:
        for name, value in self.kept.items():
            setattr(module, name, nn.Parameter(value.to("meta"), requires_grad=False))


@pytest.mark.parametrize("everything", [False, True])
def test_a_model_with_weights_on_disk_is_measured_and_its_weights_are_refused(everything: bool) -> None:
    model = llama()
    expected = unsmooth.measure(model, [IDS])
    for module in (model if everything else model.layers[0]).modules():
        if not list(module.children()):
            Offloading(module)
    found = unsmooth.measure(model, [IDS])
    assert {c: m.mean for c, m in found.cells.items()} == {c: m.mean for c, m in expected.cells.items()}
    for verb in (reparametrize, lambda model: unsmooth.explain(model, [IDS])):
        with pytest.raises(WeightsError, match="is on the meta device, without values"):
            verb(model)


@pytest.mark.parametrize("config", ["Int8WeightOnly", "Float8WeightOnly", "Int8DynamicActivationInt8Weight"])
def test_torchao(config: str) -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    rounds = "Dynamic" in config
    model = llama(torch.float32 if rounds else torch.bfloat16)
    quantization.quantize_(model, getattr(quantization, f"{config}Config")())
    check(model, rf"quantised \({config[:4]}\w+ of torch\.\w+ in a Linear\)", rounds)


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes_in_a_hugging_face_folder(bits: int, tmp_path: Path) -> None:
    bitsandbytes = pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from transformers import AutoModel, BitsAndBytesConfig

    from unsmooth.sources import load_model

    llama().save_pretrained(tmp_path / "plain")
    config = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    AutoModel.from_pretrained(tmp_path / "plain", quantization_config=config, device_map="cpu").save_pretrained(
        tmp_path / "small"
    )
    model: Any = load_model(f"hf:{tmp_path / 'small'}").model
    layer = model.layers[0].self_attn.o_proj
    assert layer.weight.dtype in (torch.uint8, torch.int8)
    if bits == 4:  # before the first forward pass: bitsandbytes repacks weights for the CPU's instructions there
        exact = bitsandbytes.functional.dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    else:
        exact = layer.weight.float() * layer.weight.SCB[:, None] / 127
    found = view(model).layers[0].weights().w_proj.flatten(0, 1).mT
    torch.testing.assert_close(
        found, exact.to(found), rtol=2**-6, atol=1e-5
    )  # scales and weights rounded to bfloat16 on a CPU
    unsmooth.attribute(model, [IDS])
    assert any("round their inputs" in note for note in unsmooth.explain(model, [IDS]).notes)
    refused(model, rf"quantised \(\w+ of torch\.u?int8 in a Linear{bits}bit")


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    expected = unsmooth.measure(llama(), [IDS])
    model = accelerate.disk_offload(llama(), tmp_path, execution_device=torch.device("cpu"))
    found = unsmooth.measure(model, [IDS])
    assert {c: m.mean for c, m in found.cells.items()} == {c: m.mean for c, m in expected.cells.items()}
    explained, offloaded = (unsmooth.explain(each, [IDS]).frame()["exponent"] for each in (llama(), model))
    assert offloaded.tolist() == pytest.approx(explained.tolist(), rel=1e-6)
