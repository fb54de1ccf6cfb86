"""Every family can be controlled and baked, in every form that its shapes admit."""

from __future__ import annotations

import pytest
import torch
from control.cases import FORMS, decoder, outputs, total_of
from model_cases import CASES, Case, every_case
from safetensors.torch import load_file, save_file
from torch import nn

from unsmooth.control import bake, control_of, reparametrize
from unsmooth.errors import WeightsError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models import view


def hooks(model: nn.Module) -> list[int]:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called", "_load_state_dict_pre_hooks")
    return [len(getattr(module, kind)) for module in model.modules() for kind in kinds]


# A form sees heads and widths alone, a family where its weights are kept: each family has one form, each form many.
@pytest.mark.parametrize(
    ("case", "form"), [pytest.param(case, FORMS[i % 3], id=case.name) for i, case in enumerate(CASES)]
)
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


@every_case()
def test_view_of_a_controlled_model_shows_the_eigenvalues_that_were_asked_for(case: Case) -> None:
    model = reparametrize(case.model(torch.float64), "smoothing", form="symmetric")
    control = control_of(model)
    outputs(model, case.inputs(torch.float64))
    passes = {id(layer.attention): layer for layer in view(model).layers}
    assert len(passes) == len(control.names)
    for wanted, layer in zip(control.eigenvalues(), passes.values(), strict=True):
        found = torch.linalg.eigvalsh(total_of(model, layer.index))
        summed = wanted.detach().unflatten(0, (layer.kv_heads, -1, layer.key_dim)).sum(1).flatten()
        expected = torch.cat([summed, found.new_zeros(len(found) - len(summed))]).sort().values
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance(torch.float64, 32))


@pytest.mark.parametrize("form", ["eigen", "symmetric"])
@pytest.mark.parametrize("shared", [1, 2])
def test_more_value_features_than_the_width_are_refused_by_forms_that_need_independent_columns(
    form: str, shared: int
) -> None:
    model = decoder("Qwen3", head_dim=12 * shared, num_key_value_heads=4 // shared)
    keys = list(model.state_dict())
    message = rf"layers\.0\.self_attn: form '{form}' needs .* {4 // shared} value heads .* have 48 in the width 32: use"
    with pytest.raises(WeightsError, match=message):
        reparametrize(model, form=form)
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("heads", [{"num_key_value_heads": 4}, {"num_key_value_heads": 4, "head_dim": 4}])
@pytest.mark.parametrize("form", FORMS)
def test_ungrouped_decoder_is_controlled(form: str, heads: dict[str, int]) -> None:
    from model_cases import ids

    model, batch = decoder(**heads), ids()
    expected = outputs(reparametrize(model, form=form), batch)
    torch.testing.assert_close(outputs(bake(model), batch), expected, rtol=0, atol=1e-12)


def test_layers_of_different_groups_are_refused_in_one_call() -> None:
    model = decoder()
    attention = model.layers[1].self_attn  # type: ignore[index, union-attr]
    attention.v_proj = nn.Linear(32, 8, bias=False, dtype=torch.float64)  # type: ignore[union-attr]
    attention.config = type(attention.config)(**{**attention.config.to_dict(), "num_key_value_heads": 1})  # type: ignore[union-attr, operator]
    attention.num_key_value_groups = 4  # type: ignore[union-attr]
    with pytest.raises(
        WeightsError, match=r"different heads \[\(4, 1, 8\), \(4, 2, 8\)\] .* select layers of one kind"
    ):
        reparametrize(model)
    assert control_of(reparametrize(model, layers=[1])).kv_heads == 1
