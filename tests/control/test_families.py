"""Every family with square value and projection weights can be controlled and baked; the others are refused."""

from __future__ import annotations

import pytest
import torch
from control.cases import FORMS, GROUPED, PLAIN, outputs, total_of
from model_cases import Case, every_case
from safetensors.torch import load_file, save_file
from torch import nn

from unsmooth.control import bake, control_of, reparametrize
from unsmooth.errors import WeightsError
from unsmooth.models import view
from unsmooth.tolerance import tolerance


def hooks(model: nn.Module) -> list[int]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_load_state_dict_pre_hooks")
    return [len(getattr(module, kind)) for module in model.modules() for kind in kinds]


@every_case(PLAIN)
@pytest.mark.parametrize("form", FORMS)
def test_baked_model_gives_the_same_outputs_and_loads_into_the_untouched_class(
    case: Case, form: str, tmp_path: object
) -> None:
    model = case.model()
    plain_keys, types, hooked = list(model.state_dict()), [type(module) for module in model.modules()], hooks(model)
    biases = {k: v.clone() for k, v in model.state_dict().items() if k.endswith("bias")}
    reparametrize(model, "sharpening", form=form, std=0.3)
    expected = outputs(model, case.inputs())
    baked = bake(model)
    assert baked is model
    assert [type(module) for module in baked.modules()] == types
    assert list(baked.state_dict()) == plain_keys
    assert hooks(baked) == hooked
    assert all(torch.equal(baked.state_dict()[k], v) for k, v in biases.items())
    path = f"{tmp_path}/model.safetensors"
    save_file({k: v.clone() for k, v in baked.state_dict().items()}, path)
    fresh = case.build().eval()
    fresh.load_state_dict(load_file(path))
    for plain in (baked, fresh):
        torch.testing.assert_close(outputs(plain, case.inputs()), expected, rtol=1e-5, atol=1e-5)


@every_case(PLAIN)
def test_view_of_a_controlled_model_shows_the_eigenvalues_that_were_asked_for(case: Case) -> None:
    model = reparametrize(case.model(torch.float64), "smoothing", form="symmetric")
    control = control_of(model)
    outputs(model, case.inputs(torch.float64))
    passes = {id(layer.attention): layer for layer in view(model).layers}
    assert len(passes) == len(control.names)
    for wanted, layer in zip(control.eigenvalues(), passes.values(), strict=True):
        found = torch.linalg.eigvalsh(total_of(model, layer.index))
        torch.testing.assert_close(found, wanted.detach().sort().values, rtol=0, atol=tolerance(torch.float64, 32))


@every_case(GROUPED)
def test_grouped_queries_are_refused_with_the_name_of_the_layer(case: Case) -> None:
    model = case.model()
    keys = list(model.state_dict())
    with pytest.raises(WeightsError, match=r"layers\.0\.self_attn: its 4 query heads share 2 value heads"):
        reparametrize(model)
    assert list(model.state_dict()) == keys


def test_value_weights_that_are_not_square_are_refused_with_their_shapes() -> None:
    from model_cases import DECODER, hf

    wide = {**DECODER, "num_key_value_heads": 4, "head_dim": 12}
    with pytest.raises(WeightsError, match=r"self_attn: expected square .* got W_V 32×48 and W_proj 48×32"):
        reparametrize(hf("Qwen3", **wide)())


def test_ungrouped_decoder_is_controlled() -> None:
    from model_cases import DECODER, hf, ids

    model = hf("Llama", **{**DECODER, "num_key_value_heads": 4})().eval()
    batch = ids()
    expected = outputs(reparametrize(model), batch)
    torch.testing.assert_close(outputs(bake(model), batch), expected, rtol=1e-5, atol=1e-5)
