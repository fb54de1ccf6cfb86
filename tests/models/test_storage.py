"""Quantised, offloaded and odd weights: measured as the model computes, explained by exactly what it multiplies by.

The real classes of torchao, bitsandbytes and accelerate are tried where they are installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from models.packed import FORMATS, IDS, Linear4bit, dequantised, int8, llama, swapped
from torch import Tensor, nn

import unsmooth
from unsmooth.control import apply_fix, reparametrize
from unsmooth.errors import WeightsError
from unsmooth.models import view
from unsmooth.models.quantised import is_linear
from unsmooth.models.storage import home
from unsmooth.models.weights import write_projection
from unsmooth.sources import LoadedModel

PATH = "self_attn.v_proj"


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


def test_weights_of_deepspeed_zero_3_are_refused_by_name() -> None:
    """A stand-in: DeepSpeed marks the parameters that it shards with a `ds_id`, and leaves them empty."""
    model = llama()
    weight = model.layers[0].self_attn.v_proj.weight
    weight.ds_id, weight.data = 3, torch.zeros(0)
    for act in (view(model).layers[0].weights, lambda: unsmooth.edit(model, high=0.0)):
        with pytest.raises(WeightsError, match=r"DeepSpeed ZeRO-3.*GatheredParameters"):
            act()


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
