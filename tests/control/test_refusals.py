"""What cannot be controlled is refused before anything changes, with a message that says what to do."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from control.cases import FORMS, Around, images, outputs, vit
from torch import nn
from torch.nn.utils import prune

from unsmooth.callbacks import watch
from unsmooth.control import (
    ControlMonitor,
    adapt,
    apply_fix,
    bake,
    control_of,
    edit,
    parameter_groups,
    reparametrize,
    spectral_penalty,
)
from unsmooth.control.modes import select_modes
from unsmooth.errors import CheckpointError, CompiledModelError, OptionError, UnknownModelError, WeightsError
from unsmooth.models import register_family, view
from unsmooth.models.registry import unregister_family
from unsmooth.models.select import select_layers
from unsmooth.sources import LoadedModel

NAMES = ["blocks.0.attn", "blocks.1.attn"]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (1, r"layers 1: expected a list such as \[1\]"),
        ([True, False], "layers lists True: expected indices 0 to 1, or names"),
        ([1.0], "layers lists 1.0: expected indices 0 to 1, or names"),
        (["blocks.7.attn"], "'blocks.7.attn' matches no layer"),
        ("0:2:0", "'0:2:0' is not of the form 'start:stop:step'"),
    ],
)
def test_layers_that_are_no_selection_are_refused(layers: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        select_layers(layers, NAMES)  # type: ignore[arg-type]


def test_layers_may_be_listed_by_name_and_counted_by_any_integer() -> None:
    assert select_layers(["blocks.1.attn", 0], NAMES) == [0, 1]
    assert select_layers(torch.tensor([1]), NAMES) == [1]  # type: ignore[arg-type]


def test_modes_that_are_none_are_refused() -> None:
    with pytest.raises(
        OptionError, match="unknown mode None: expected one of 'sharpening', 'smoothing', 'plain', 'a l"
    ):
        select_modes(None, [0])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"mode names layers \['a', 7\], which `layers` does not select"):
        select_modes({"a": "smoothing", 7: "smoothing"}, [0])  # type: ignore[dict-item]


@pytest.mark.parametrize("std", [0.0, -0.1, float("nan"), float("inf")])
def test_a_std_that_gives_no_eigenvalues_is_refused(std: float) -> None:
    with pytest.raises(OptionError, match="expected a positive number"):
        reparametrize(vit(), std=std)


def test_a_part_that_is_already_controlled_is_refused() -> None:
    inner = vit()
    outer = Around(inner)
    reparametrize(inner)
    with pytest.raises(OptionError, match="already reparametrised or adapted: call `bake` first"):
        reparametrize(outer)
    inner = vit()
    reparametrize(Around(inner))
    with pytest.raises(OptionError, match="already reparametrised or adapted: call `bake` first"):
        reparametrize(inner)


def test_weights_with_another_parametrisation_are_refused() -> None:
    model = vit()
    torch.nn.utils.parametrizations.weight_norm(model.blocks[1].attn.proj)  # type: ignore[index, union-attr, arg-type]
    keys = list(model.state_dict())
    with pytest.raises(
        WeightsError, match=r"blocks\.1\.attn: 'weight' is already parametrised.*remove_parametrizations"
    ):
        reparametrize(model)
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("change", [reparametrize, adapt, partial(edit, flip=True)])
def test_weights_that_hooks_compute_are_refused_before_anything_changes(change: Callable[[nn.Module], object]) -> None:
    model, batch = vit().eval(), images()
    prune.l1_unstructured(model.blocks[1].attn.proj, "weight", 0.3)  # type: ignore[index, union-attr, arg-type]
    before, keys = model(batch), list(model.state_dict())
    with pytest.raises(WeightsError, match=r"is computed from other tensors in every pass \(by pruning"):
        change(model)
    assert list(model.state_dict()) == keys
    assert torch.equal(model(batch), before)


@pytest.mark.parametrize("change", [partial(edit, flip=True), partial(reparametrize, init="from_weights")])
def test_a_bias_that_hooks_compute_cannot_take_up_a_change(change: Callable[[nn.Module], object]) -> None:
    model = vit()
    attention = model.blocks[1].attn  # type: ignore[index, union-attr]
    nn.init.ones_(attention.qkv.bias)  # type: ignore[arg-type, union-attr]
    prune.l1_unstructured(attention.proj, "bias", 0.3)  # type: ignore[arg-type, union-attr]
    with pytest.raises(WeightsError, match="the bias of its projection is computed from other tensors"):
        change(model)


@pytest.mark.parametrize("weight", ["qkv", "proj"])
def test_a_weight_that_two_modules_share_is_refused_before_anything_changes(weight: str) -> None:
    model = vit()
    first, second = (getattr(block.attn, weight) for block in model.blocks)  # type: ignore[union-attr]
    second.weight = first.weight
    before = list(model.state_dict())
    with pytest.raises(WeightsError, match=r"blocks\.0\.attn: 'weight' is one parameter with that of another .*tied"):
        reparametrize(model)
    assert list(model.state_dict()) == before
    assert second.weight is first.weight


class Stack(nn.Sequential):
    """Blocks and nothing around them."""


def test_a_sequential_of_blocks_cannot_hold_the_control() -> None:
    family = view(vit()).family
    register_family(replace(family, name="stack", classes=(Stack,), blocks="", embed=()))
    try:
        with pytest.raises(OptionError, match="a Sequential would call what is added to it: put it into a module"):
            reparametrize(Stack(*vit().blocks))  # type: ignore[misc]
    finally:
        unregister_family("stack")


def test_weights_without_values_or_of_several_dtypes_are_refused() -> None:
    with pytest.raises(WeightsError, match="on the meta device, without values .*: load the model into memory"):
        reparametrize(vit().to("meta"))
    model = vit()
    model.blocks[1].half()  # type: ignore[index, union-attr]
    with pytest.raises(WeightsError, match=r"one dtype on one device, got torch.float16 on cpu, torch.float32 on cpu"):
        reparametrize(model)
    assert control_of(reparametrize(model, layers=[1])).theta.dtype == torch.float16


def test_a_wrapped_or_compiled_model_must_be_changed_first(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        parallel = nn.parallel.DistributedDataParallel(vit())
    finally:
        torch.distributed.destroy_process_group()
    for change in (reparametrize, lambda model: apply_fix(model, "attnscale")):
        with pytest.raises(OptionError, match="DistributedDataParallel knows only .* wrap it afterwards"):
            change(parallel)
        with pytest.raises(CompiledModelError, match="compile it afterwards"):
            change(torch.compile(vit()))


def test_models_without_such_layers_are_refused() -> None:
    import timm

    for name, reason in (("swin_tiny_patch4_window7_224", "merges tokens"), ("resnet18", "no family matches")):
        with torch.device("meta"):
            model = timm.create_model(name)
        with pytest.raises(UnknownModelError, match=reason):
            reparametrize(model)


@pytest.mark.parametrize(("form", "bound"), [("symmetric", "clip"), ("split", "tanh")])
def test_a_checkpoint_of_another_form_or_bound_is_refused(form: str, bound: str) -> None:
    saved = reparametrize(vit(), form="split", bound="clip").state_dict()
    model = reparametrize(vit(), form=form, bound=bound)
    theta = control_of(model).theta.clone()
    message = f"of form 'split' with bound 'clip', the model's are of form '{form}' with bound '{bound}'"
    with pytest.raises(CheckpointError, match=message):
        model.load_state_dict(saved)
    assert torch.equal(control_of(model).theta, theta)


def test_a_checkpoint_of_other_layers_is_refused() -> None:
    saved = reparametrize(vit(depth=3), layers=[0]).state_dict()
    with pytest.raises(CheckpointError, match="layers are sharpening, the model's are sharpening sharpening"):
        reparametrize(vit(depth=3), layers=[0, 1]).load_state_dict(saved, strict=False)


def test_a_checkpoint_from_before_the_recipe_was_kept_still_loads() -> None:
    saved = reparametrize(vit(seed=1)).state_dict()
    del saved["spectral_control.recipe"]
    model = reparametrize(vit())
    model.load_state_dict(saved)
    assert torch.equal(control_of(model).theta, saved["spectral_control.theta"])


def test_a_controlled_model_is_saved_through_its_state_dict() -> None:
    with pytest.raises(RuntimeError, match=r"only supported through state_dict\(\)"):
        torch.save(reparametrize(vit()), io.BytesIO())


@pytest.mark.parametrize("form", FORMS)
def test_weights_that_are_not_finite_cannot_be_started_from(form: str) -> None:
    model = vit()
    model.blocks[1].attn.proj.weight.data[0, 0] = torch.nan  # type: ignore[index, union-attr]
    with pytest.raises(WeightsError, match=r"blocks\.1\.attn: expected finite W_V and W_proj, got NaN"):
        reparametrize(model, form=form, init="from_weights")


def test_a_defective_h_has_no_eigenvectors_to_start_from() -> None:
    model = vit(heads=1)
    control = control_of(reparametrize(model, form="eigen"))
    theta = control.theta.clone()
    jordan = -0.5 * torch.eye(24) + torch.diag(torch.ones(23), 1)
    with pytest.raises(WeightsError, match=r"blocks\.0\.attn: no weights of form 'eigen' are near .* use form 'split'"):
        control.assign(0, jordan, torch.eye(24))
    assert torch.equal(control.theta, theta)


def test_a_penalty_with_an_empty_interval_is_refused_and_a_bound_is_kept_for_every_form() -> None:
    model = reparametrize(vit(), form="symmetric", std=2.0)
    with pytest.raises(OptionError, match=r"margin 2.0 and bound 1.0: expected 0 ≤ margin ≤ bound"):
        spectral_penalty(model, margin=2.0, bound=1.0)
    with pytest.raises(OptionError, match="margin nan"):
        spectral_penalty(model, margin=float("nan"))
    sizes = control_of(model).psi.detach().square()
    expected = (sizes - 0.5).clamp(min=0).square().mean()
    torch.testing.assert_close(spectral_penalty(model, bound=0.5).detach(), expected)
    assert spectral_penalty(model) == 0  # ±ψ² has no limit of its own


def test_the_log_hides_no_singular_layer() -> None:
    model = reparametrize(vit(), form="symmetric")
    with torch.no_grad():
        control_of(model).theta[1, :, 0] = 0
    assert torch.tensor(ControlMonitor(model).read().as_dict()["control/condition"]).isnan()
    with torch.no_grad():
        control_of(model).theta[1] = torch.nan
    assert ControlMonitor(model, exact=True).read().condition.isnan().tolist() == [False, True]


@pytest.mark.parametrize("wrap", [torch.compile, Around, nn.DataParallel])
def test_parameter_groups_find_what_does_not_decay_inside_wrappers(wrap: type) -> None:
    inner = reparametrize(vit())
    decayed, spared = parameter_groups(wrap(inner), 0.05)
    for p in (inner.pos_embed, inner.cls_token, control_of(inner).psi):
        assert any(q is p for q in spared["params"])
        assert not any(q is p for q in decayed["params"])


def test_a_value_bias_behind_a_sink_cannot_be_fitted() -> None:
    """Rows of A sum to less than 1, so b_v W_proj is not the same for all tokens and no other bias makes up for it."""
    from model_cases.decoders import SINK

    model = SINK.model(torch.float64)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with pytest.raises(
        WeightsError, match=r"layers\.0\.self_attn: the rows of its attention do not sum to 1.* use init='paper'"
    ):
        reparametrize(model, init="from_weights")
    assert all(torch.equal(before[name], p) for name, p in model.state_dict().items())
    bake(reparametrize(model, "smoothing", form="symmetric", std=0.5))
    with torch.no_grad():
        for layer in view(model).layers:
            layer.attention.v_proj.bias.zero_()
    plain = outputs(model, SINK.inputs())
    reparametrize(model, "smoothing", form="symmetric", init="from_weights")
    torch.testing.assert_close(outputs(model, SINK.inputs()), plain, rtol=1e-5, atol=1e-5)


def test_a_model_that_came_with_its_reference_is_named_and_not_taken_for_a_module() -> None:
    loaded: Any = LoadedModel(vit(), "timm:mine", "images")
    assert repr(loaded) == "LoadedModel timm:mine: VisionTransformer, takes images\n  .model"
    uses: tuple[Callable[[], object], ...] = (
        lambda: reparametrize(loaded),
        lambda: bake(loaded),
        lambda: adapt(loaded),
        lambda: edit(loaded, high=0.0),
        lambda: apply_fix(loaded, "attnscale"),
        lambda: parameter_groups(loaded, 0.05),
        lambda: watch(loaded, images()),
    )
    for use in uses:
        with pytest.raises(UnknownModelError, match=r"expected a torch module, got LoadedModel; .* give its \.model"):
            use()


def test_a_model_of_several_controlled_parts_has_no_control_of_its_own() -> None:
    both = nn.ModuleList([reparametrize(vit()), reparametrize(vit())])
    with pytest.raises(OptionError, match="2 parts of this model are reparametrised: pass one of them"):
        control_of(both)
    assert control_of(both[1]) is both[1].spectral_control
