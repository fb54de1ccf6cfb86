"""Quantised, offloaded and odd weights: measured as the model computes, refused by name where weights are read.

The real classes of torchao, bitsandbytes and accelerate are tried where they are installed; what they do is
imitated here, so that each refusal has a test everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
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
from unsmooth.models.storage import home
from unsmooth.sources import LoadedModel

IDS = {"input_ids": torch.arange(12).reshape(2, 6) + 3}
PATH = "self_attn.v_proj"


WIDE = {"hidden_size": 128, "intermediate_size": 128}  # bitsandbytes works on 64 numbers at a time


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


class Float8Linear(nn.Module):
    """A weight in float8 with one scale, as Hugging Face's fine-grained FP8 keeps it."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        scale = of.weight.detach().abs().max() / 448
        self.weight = nn.Parameter((of.weight.detach() / scale).to(torch.float8_e4m3fn), requires_grad=False)
        self.weight_scale_inv, self.bias = nn.Parameter(scale, requires_grad=False), None

    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight.to(x.dtype) * self.weight_scale_inv).mT


class Params4bit(nn.Parameter):
    """Two weights a byte, in one column, as bitsandbytes keeps them."""


class Linear4bit(nn.Module):
    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        self.scale = of.weight.detach().abs().max() / 7
        self.shape, self.bias = of.weight.shape, None
        codes = (of.weight.detach() / self.scale).round().add(8).to(torch.uint8).reshape(-1, 2)
        self.weight = Params4bit((codes[:, 0] + 16 * codes[:, 1])[:, None], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        codes = torch.cat([self.weight % 16, self.weight // 16], 1).reshape(self.shape).to(x.dtype)
        return x @ ((codes - 8) * self.scale).mT


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


IMITATED = {
    "float8": (Float8Linear, r"quantised \(torch\.float8_e4m3fn in a Float8Linear\)"),
    "4 bits": (Linear4bit, r"quantised \(Params4bit of torch\.uint8 in a Linear4bit\)"),
    "int8": (int8, r"quantised \(Int8Tensor of torch\.float32 in a Linear\)"),
}


@pytest.mark.parametrize("kind", IMITATED)
def test_a_quantised_model_is_measured_and_its_weights_are_refused_by_name(kind: str) -> None:
    make, expected = IMITATED[kind]
    check(swapped(make), expected)


def check(model: Any, expected: str) -> None:
    """Measured as it is; weights refused with what they are; a fix gets a dtype that features have."""
    near = unsmooth.measure(llama(home(model)[1]), [IDS])
    found = unsmooth.measure(model, [IDS])
    for cell, moments in found.cells.items():
        assert moments.mean == pytest.approx(near.cells[cell].mean, rel=0.5, abs=0.1), cell
    for verb in (lambda: view(model).layers[0].weights(), lambda: unsmooth.explain(model, [IDS])):
        with pytest.raises(WeightsError, match=rf"layer 0: {PATH}\.weight is {expected}.*without quantisation"):
            verb()
    with pytest.raises(WeightsError, match=expected):
        reparametrize(model)
    loaded = LoadedModel(model, "hf:x", "text")
    assert loaded.weights_hash == LoadedModel(model, "hf:y", "text").weights_hash
    before = model(**IDS).last_hidden_state
    apply_fix(model, "attnscale")
    fix = next(model.layers[0].self_attn.fix.parameters())
    assert fix.dtype == home(model)[1]
    assert torch.allclose(model(**IDS).last_hidden_state, before, atol=0.1)


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


@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Float8WeightOnlyConfig"])
def test_torchao(config: str) -> None:
    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    model = llama(torch.bfloat16)
    quantization.quantize_(model, getattr(quantization, config)())
    check(model, rf"quantised \({config[:4]}\w+ of torch\.bfloat16 in a Linear\)")


@pytest.mark.parametrize("bits", [4, 8])
def test_bitsandbytes_in_a_hugging_face_folder(bits: int, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    from transformers import AutoModel, BitsAndBytesConfig

    from unsmooth.sources import load_model

    llama().save_pretrained(tmp_path / "plain")
    config = BitsAndBytesConfig(**{f"load_in_{bits}bit": True})
    AutoModel.from_pretrained(tmp_path / "plain", quantization_config=config, device_map="cpu").save_pretrained(
        tmp_path / "small"
    )
    loaded = load_model(f"hf:{tmp_path / 'small'}")
    assert loaded.model.layers[0].self_attn.v_proj.weight.dtype in (torch.uint8, torch.int8)  # type: ignore[union-attr, index]
    check(loaded.model, rf"quantised \(\w+ of torch\.u?int8 in a Linear{bits}bit")


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
    expected = unsmooth.measure(llama(), [IDS])
    model = accelerate.disk_offload(llama(), tmp_path, execution_device=torch.device("cpu"))
    found = unsmooth.measure(model, [IDS])
    assert {c: m.mean for c, m in found.cells.items()} == {c: m.mean for c, m in expected.cells.items()}
    explained, offloaded = (unsmooth.explain(each, [IDS]).frame()["exponent"] for each in (llama(), model))
    assert offloaded.tolist() == pytest.approx(explained.tolist(), rel=1e-6)
