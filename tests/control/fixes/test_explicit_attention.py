"""Fixes of the attention matrix against their formulas, computed from what the plain model shows of itself."""

from __future__ import annotations

from typing import Any

import model_cases
import pytest
import torch
from control.cases import images, outputs, vit
from model_cases import Case
from torch import Tensor, nn
from versions import NEEDS_NEWER_DYNAMO

from unsmooth.control import apply_fix
from unsmooth.errors import OptionError, WeightsError
from unsmooth.models import capture_attention, view
from unsmooth.models.forward import call
from unsmooth.models.reconstruction import attend

BY_NAME = {case.name: case for case in model_cases.CASES}
NAMES = ("timm-vit", "timm-clip-qknorm", "hf-vit", "bert-padded", "albert", "modernbert", "gpt2")
GROUPED = ("llama", "llama-lm", "mistral", "qwen3", "gemma2", "gemma3")


def inside(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The first layer's attention input, matrices and result, in one forward pass."""
    v, seen = view(model), {}
    layer = v.layers[0]
    row, maps = layer.attention_row, {}

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        seen.setdefault("x", args[0] if args else kwargs["hidden_states"])

    def project(module: nn.Module, args: Any, output: Tensor) -> None:
        seen.setdefault("y", output)

    slot = row.proj[0] if isinstance(row.proj, tuple) else row.proj
    handles = [
        layer.attention.register_forward_pre_hook(enter, with_kwargs=True),
        layer.block.get_submodule(slot.path).register_forward_hook(project),
    ]
    with torch.no_grad(), capture_attention(v, maps.setdefault):
        call(model, batch)
    for handle in handles:
        handle.remove()
    return seen["x"], maps[0], seen["y"]


def formula(name: str, fix: nn.Module, a: Tensor) -> Tensor:
    uniform = (a > 0) / (a > 0).sum(-1, keepdim=True)  # the tokens that a query sees
    if name == "centered":
        return a - uniform
    if name == "attnscale":
        return uniform + (1 + fix.get_parameter("omega")[:, None, None]) * (a - uniform)
    w0, w1, wk = (fix.state_dict()[weight][:, None, None] for weight in ("w0", "w1", "wk"))
    return w0 * torch.eye(a.shape[-1], dtype=a.dtype) + w1 * a + wk * (a + 2 * (a @ a - a))


@pytest.mark.parametrize("name", ["attnscale", "gfsa", "centered"])
@pytest.mark.parametrize("case", [BY_NAME[name] for name in (*NAMES, *GROUPED)], ids=lambda case: case.name)
def test_a_layer_multiplies_by_exactly_the_fixed_matrix(case: Case, name: str) -> None:
    """Under masks, causal attention, grouped queries, soft-capped scores and qk-norm alike."""
    batch = case.inputs(torch.float64)
    x, a, _ = inside(case.model(torch.float64), batch)
    model = apply_fix(case.model(torch.float64), name)
    layer = view(model).layers[0]
    fix: Any = layer.attention.fix
    with torch.no_grad():
        for p in fix.parameters():
            p.normal_()
        expected = formula(name, fix, a)
        _, shown, y = inside(model, batch)
        torch.testing.assert_close(shown, expected, rtol=0, atol=1e-6)
        torch.testing.assert_close(y, attend(x, expected, layer.weights()), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["hf-vit", "bert-padded", "qwen3", "timm-vit"])
def test_looking_at_the_matrices_of_a_fixed_model_does_not_take_the_fix_away(name: str) -> None:
    case = BY_NAME[name]
    model, batch = apply_fix(case.model(), "centered"), case.inputs()
    expected = outputs(model, batch)
    with capture_attention(view(model), lambda index, a: None):
        during = outputs(model, batch)
    torch.testing.assert_close(during, expected)


@pytest.mark.parametrize("name", ["featscale", "contranorm"])
@pytest.mark.parametrize("case", ["gpt2", "llama", "bert-decoder"])
def test_fixes_that_mix_all_tokens_are_refused_in_causal_models(case: str, name: str) -> None:
    model = BY_NAME[case].model()
    keys = list(model.state_dict())
    with pytest.raises(WeightsError, match=rf"{name} mixes all tokens, so in a causal model each would see"):
        apply_fix(model, name)
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("name", ["attnscale", "gfsa", "neutreno", "centered"])
@pytest.mark.parametrize("case", ["gpt2", "llama"])
def test_causal_models_stay_causal(case: str, name: str) -> None:
    model, batch = apply_fix(BY_NAME[case].model(), name), BY_NAME[case].inputs()
    for key, p in model.named_parameters():
        if ".fix." in key:
            nn.init.normal_(p)
    ids = batch["input_ids"]
    changed = torch.cat([ids[:, :4], (ids[:, 4:] + 7) % 40 + 3], 1)
    with torch.no_grad():
        before, after = (model(input_ids=x).last_hidden_state for x in (ids, changed))
    torch.testing.assert_close(after[:, :4], before[:, :4], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(after[:, 4:], before[:, 4:], atol=1e-3)


def test_a_second_fix_is_refused_before_anything_changes() -> None:
    model = apply_fix(vit(depth=3), "attnscale", layers=[1])
    with pytest.raises(OptionError, match="layer 1 already has the fix AttnScale"):
        apply_fix(model, "gfsa")
    assert [hasattr(block.attn, "fix") for block in model.blocks] == [False, True, False]  # type: ignore[union-attr]
    with pytest.raises(OptionError, match="layers '9:12' selects none of this model's layers 0 to"):
        apply_fix(vit(), "gfsa", layers="9:12")


def test_dropout_comes_after_the_fix() -> None:
    model = apply_fix(vit(attn_drop_rate=1.0), "centered").train()
    attention = model.blocks[0].attn  # type: ignore[index, union-attr]
    torch.testing.assert_close(attention(torch.randn(1, 5, 24)), attention.proj.bias.expand(1, 5, 24))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", ["featscale", "contranorm"])
def test_sequences_that_torch_packs_are_refused(name: str) -> None:
    case = BY_NAME["torch-post-padded"]
    model = apply_fix(case.model(), name)
    with torch.no_grad(), pytest.raises(WeightsError, match=r"got a nested tensor: .* enable_nested_tensor=False"):
        outputs(model, case.inputs())


def test_an_attention_of_ones_own_is_not_taken_for_timms() -> None:
    from timm.layers import Attention

    class Own(Attention):
        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            return 2 * super().forward(x, *args, **kwargs)

    model = vit()
    model.blocks[0].attn.__class__ = Own  # type: ignore[index, union-attr]
    with pytest.raises(WeightsError, match=r"needs timm's Attention .* Own of family 'timm-vit'"):
        apply_fix(model, "attnscale")


def test_neutreno_outside_a_whole_forward_pass_and_gfsa_with_a_cache_say_what_they_need() -> None:
    model = apply_fix(vit(), "neutreno")
    with pytest.raises(WeightsError, match="neutreno needs the first selected layer's values"):
        model.blocks[1](torch.randn(1, 5, 24))  # type: ignore[index, operator]
    model.set_grad_checkpointing(True)
    with pytest.raises(WeightsError, match="without gradient checkpointing"):
        model.train()(images()).sum().backward()
    llama = apply_fix(BY_NAME["llama"].model(), "gfsa")
    past = llama(input_ids=torch.tensor([[3, 4, 5]]), use_cache=True).past_key_values
    with pytest.raises(WeightsError, match=r"here A is 1×4: expected attention over one whole sequence \(use_cache"):
        llama(input_ids=torch.tensor([[6]]), past_key_values=past, use_cache=True)


@NEEDS_NEWER_DYNAMO
@pytest.mark.parametrize(("case", "name"), [("hf-vit", "neutreno"), ("qwen3", "gfsa")])
def test_hugging_face_models_with_a_fix_compile_as_one_graph(case: str, name: str) -> None:
    model, batch = apply_fix(BY_NAME[case].model(), name), BY_NAME[case].inputs()
    expected = outputs(model, batch)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(outputs(compiled, batch), expected, rtol=1e-4, atol=1e-5)


def test_a_softmax_with_a_sink_is_refused_before_anything_changes() -> None:
    case = BY_NAME["gpt-oss"]
    model = case.model()
    batch = case.batch()
    expected = outputs(model, batch)
    with pytest.raises(WeightsError, match="layer 0: GptOssAttention adds a sink to its softmax, so the rows"):
        apply_fix(model, "attnscale")
    torch.testing.assert_close(outputs(model, batch), expected, rtol=0, atol=0)


def test_a_model_may_leave_the_scale_of_its_scores_to_the_attention() -> None:
    from transformers import AttentionInterface

    apply_fix(BY_NAME["hf-vit"].model(), "attnscale")  # makes the attention known
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    interface = AttentionInterface()
    ours = interface["unsmooth_fix"](nn.Module(), q, k, v, None)[0]
    torch.testing.assert_close(ours, interface["sdpa"](nn.Module(), q, k, v, None, is_causal=False)[0])
