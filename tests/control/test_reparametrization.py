"""Applying control to a model: which layers, which modes, initialisation, checkpoints, errors."""

from __future__ import annotations

import copy

import pytest
import torch
from control.cases import FORMS, MODES, heads_of, images, total_of, vit
from torch import nn

import unsmooth.control
from unsmooth.control import bake, control_of, parameter_groups, reparametrize, spectral_penalty
from unsmooth.control.modes import select_modes
from unsmooth.errors import CheckpointError, OptionError, WeightsError
from unsmooth.models import view
from unsmooth.models.select import select_layers

NAMES = [f"blocks.{i}.attn" for i in range(6)]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("all", [0, 1, 2, 3, 4, 5]),
        ("first-half", [0, 1, 2]),
        ("second-half", [3, 4, 5]),
        ("alternate", [0, 2, 4]),
        ("1:5:2", [1, 3]),
        ("blocks.[45].*", [4, 5]),
        ([5, 0, -2], [0, 4, 5]),
        ("0, 5,-2", [0, 4, 5]),
        ("first-half,blocks.5.*", [0, 1, 2, 5]),
    ],
)
def test_layers_can_be_named_in_many_ways(layers: str | list[int], expected: list[int]) -> None:
    assert select_layers(layers, NAMES) == expected


def test_selecting_nothing_or_nonsense_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"'encoder\.\*' matches no layer: expected 'all', .* like 'blocks.0.attn'"):
        select_layers("encoder.*", NAMES)
    with pytest.raises(OptionError, match="layer 6 does not exist: this model has layers 0 to 5"):
        select_layers([6], NAMES)
    with pytest.raises(OptionError, match="layer 6 does not exist"):
        select_layers("6", NAMES)
    for nothing in ([], "6:9"):
        with pytest.raises(OptionError, match="selects none of this model's layers 0 to 5"):
            select_layers(nothing, NAMES)
    with pytest.raises(OptionError, match="'a:b' is not of the form 'start:stop:step'"):
        select_layers("a:b", NAMES)
    with pytest.raises(OptionError, match="unknown mode 'sharp': expected one of 'sharpening', 'smoothing', 'plain'"):
        select_modes("sharp", [0])
    with pytest.raises(OptionError, match="lists 1 entries for 2 selected layers"):
        select_modes(["plain"], [0, 1])
    with pytest.raises(OptionError, match=r"names layers \[3\], which `layers` does not select"):
        select_modes({3: "smoothing"}, [0, 1])


def test_unselected_layers_stay_plain_and_modes_may_differ() -> None:
    model = vit(depth=4)
    plain = [heads_of(model, layer) for layer in range(4)]
    reparametrize(model, ["sharpening", "plain", "smoothing"], layers=[0, 1, 3])
    assert control_of(model).names == ("blocks.0.attn", "blocks.3.attn")
    assert torch.equal(heads_of(model, 1), plain[1])
    assert torch.equal(heads_of(model, 2), plain[2])
    assert torch.linalg.eigvals(total_of(model, 0)).real.max() < 1e-3
    assert torch.linalg.eigvals(total_of(model, 3)).real.min() > -1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "qr"}, "unknown form 'qr': expected one of 'eigen', 'split', 'symmetric'"),
        ({"bound": "relu"}, "unknown bound 'relu': expected one of 'clip', 'abs', 'tanh', 'square', 'free'"),
        ({"init": "zeros"}, "unknown init 'zeros': expected one of 'paper', 'from_weights'"),
        ({"mode": "plain"}, "no layer is left to control"),
    ],
)
def test_unknown_options_are_errors_that_list_the_valid_ones(options: dict[str, str], message: str) -> None:
    model = vit()
    with pytest.raises(OptionError, match=message):
        reparametrize(model, **options)
    assert not hasattr(model, "spectral_control")


def test_controlling_twice_and_baking_a_plain_model_are_errors() -> None:
    model = reparametrize(vit())
    with pytest.raises(OptionError, match="already reparametrised or adapted: call `bake` first"):
        reparametrize(model)
    with pytest.raises(OptionError, match="not reparametrised: call `reparametrize` first"):
        bake(vit())


def test_layers_of_different_widths_are_refused() -> None:
    model = vit()
    model.blocks[1] = vit(dim=12, heads=3).blocks[1]  # type: ignore[index]
    with pytest.raises(WeightsError, match=r"different widths \[12, 24\]"):
        reparametrize(model)


@pytest.mark.parametrize("form", FORMS)
def test_state_dict_round_trip_and_deep_copy_keep_outputs(form: str) -> None:
    model = reparametrize(vit(), form=form, std=0.3)
    expected = model(images())
    twin = reparametrize(vit(seed=1), form=form)
    twin.load_state_dict(model.state_dict())
    clone = copy.deepcopy(model)
    for other in (twin, clone):
        torch.testing.assert_close(other(images()), expected, rtol=0, atol=0)
    with torch.no_grad():
        control_of(clone).psi.zero_()
    torch.testing.assert_close(model(images()), expected, rtol=0, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_baking_a_copy_leaves_the_original_controlled_and_trainable(form: str) -> None:
    model = reparametrize(vit(), form=form, std=0.3)
    expected, other = model(images()).detach(), copy.deepcopy(model)
    baked = bake(model, copy=True)
    assert not hasattr(baked, "spectral_control")
    for controlled in (model, other):
        out = controlled(images())
        torch.testing.assert_close(out, expected, rtol=0, atol=0)
        out.square().sum().backward()
        assert control_of(controlled).theta.grad is not None
    torch.testing.assert_close(baked(images()), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(bake(model)(images()), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(bake(other)(images()), expected, rtol=1e-5, atol=1e-5)


def test_an_average_over_training_steps_loads_like_the_model() -> None:
    from timm.utils import ModelEmaV3

    model = reparametrize(vit(), form="symmetric", std=0.3)
    average = ModelEmaV3(model, decay=0.9)
    for _ in range(5):
        with torch.no_grad():
            control_of(model).psi.mul_(1.1)
        average.update(model)
    expected = average.module(images())
    model.load_state_dict(average.module.state_dict())
    torch.testing.assert_close(model(images()), expected)
    torch.testing.assert_close(bake(average.module)(images()), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(images()), expected)


def test_a_plain_checkpoint_loads_where_names_match() -> None:
    plain, model = vit(seed=1, qkv_bias=True), reparametrize(vit(seed=0, qkv_bias=True))
    theta = control_of(model).theta.clone()
    result = model.load_state_dict(plain.state_dict(), strict=False)
    assert not result.unexpected_keys
    assert all(key.startswith("spectral_control.") for key in result.missing_keys)
    assert torch.equal(control_of(model).theta, theta)
    ours, theirs = model.state_dict(), plain.state_dict()
    assert torch.equal(
        ours["blocks.1.attn.qkv.parametrizations.weight.original"], theirs["blocks.1.attn.qkv.weight"][:48]
    )
    for key in ours.keys() & theirs.keys():
        assert torch.equal(ours[key], theirs[key])


def test_a_checkpoint_of_another_mode_is_refused() -> None:
    saved = reparametrize(vit(), "smoothing").state_dict()
    with pytest.raises(CheckpointError, match="layers are smoothing smoothing, the model's are sharpening sharpening"):
        reparametrize(vit(), "sharpening").load_state_dict(saved)


def test_one_weight_of_a_pair_cannot_be_assigned_alone() -> None:
    model = reparametrize(vit())
    proj, qkv = model.blocks[0].attn.proj, model.blocks[0].attn.qkv  # type: ignore[index, union-attr]
    with pytest.raises(WeightsError, match=r"W_proj of blocks\.0\.attn .* cannot be assigned alone: use .*assign"):
        proj.weight = torch.zeros(24, 24)
    new = qkv.weight.detach().clone()
    new[:48] = 1.0
    qkv.weight = new  # query and key rows are free
    torch.testing.assert_close(qkv.weight, new)


def test_parameter_groups_keep_weight_decay_off_the_eigenvalues() -> None:
    model = reparametrize(vit(), form="symmetric")
    control = control_of(model)
    decayed, spared = parameter_groups(model, 0.05)
    assert decayed["weight_decay"] == 0.05
    assert spared["weight_decay"] == 0.0
    assert any(p is control.theta for p in decayed["params"])
    assert any(p is control.psi for p in spared["params"])
    assert any(p is model.pos_embed for p in spared["params"])
    everything = decayed["params"] + spared["params"]
    assert {id(p) for p in everything} == {id(p) for p in model.parameters()}
    assert len(everything) == len({id(p) for p in everything})
    torch.optim.AdamW([decayed, spared])
    all_decayed, only_psi = parameter_groups(model, 0.05, decay_vectors=True)
    assert [id(p) for p in only_psi["params"]] == [id(control.psi)]
    assert len(all_decayed["params"]) == len(everything) - 1


def test_matrices_decay_vectors_do_not_and_frozen_parameters_are_left_out() -> None:
    model = vit()
    model.get_parameter("blocks.0.mlp.fc2.weight").requires_grad_(False)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed, spared = ({names[id(p)] for p in group["params"]} for group in parameter_groups(model, 0.05))
    assert {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "blocks.1.mlp.fc2.weight"} <= decayed
    assert {"cls_token", "norm.weight", "blocks.0.norm1.weight", "blocks.0.mlp.fc2.bias"} <= spared
    assert decayed | spared == set(names.values()) - {"blocks.0.mlp.fc2.weight"}
    assert not decayed & spared


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bound", ["free", "clip"])
def test_descending_the_penalty_moves_eigenvalues_to_their_side(mode: str, bound: str) -> None:
    model = reparametrize(vit(), mode, bound=bound, std=0.5)
    optimiser = torch.optim.SGD([control_of(model).psi], lr=20.0)
    assert spectral_penalty(model, margin=0.1) > 0
    for _ in range(60):
        optimiser.zero_grad()
        spectral_penalty(model, margin=0.1).backward()
        optimiser.step()
    signed = MODES[mode] * control_of(model).psi.detach()
    assert signed.min() > 0.09
    assert signed.max() < 1.01


def test_the_penalty_also_pushes_the_eigenvalues_of_a_plain_model() -> None:
    torch.manual_seed(0)
    model = vit()
    for layer in model.blocks:  # type: ignore[union-attr]
        nn.init.normal_(layer.attn.qkv.weight, std=0.2)
        nn.init.normal_(layer.attn.proj.weight, std=0.2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    start = spectral_penalty(model, "sharpening").item()
    for _ in range(100):
        optimiser.zero_grad()
        spectral_penalty(model, "sharpening").backward()
        optimiser.step()
    assert spectral_penalty(model, "sharpening").item() < 0.05 * start
    assert torch.linalg.eigvals(total_of(model)).real.max() < 0.1
    with pytest.raises(OptionError, match="unknown mode None: expected one of 'sharpening', 'smoothing'"):
        spectral_penalty(model)
    with pytest.raises(OptionError, match="knows its modes: leave out `mode`"):
        spectral_penalty(reparametrize(vit()), "smoothing")


def test_the_penalty_of_a_plain_model_is_the_distance_of_its_eigenvalues_in_the_complex_plane() -> None:
    model = vit(depth=1)
    turn = 2 * torch.eye(24).roll(12, 0)
    turn[:12] *= -1  # eigenvalues ±2i: distance 0 along the real axis, 2 along the imaginary one
    with torch.no_grad():
        model.blocks[0].attn.qkv.weight[48:] = torch.eye(24)  # type: ignore[index, union-attr]
        model.blocks[0].attn.proj.weight.copy_(turn)  # type: ignore[index, union-attr]
    assert spectral_penalty(model, "smoothing").item() == pytest.approx(4.0, rel=1e-4)
    assert spectral_penalty(model, "smoothing", margin=0.5).item() == pytest.approx(4.25, rel=1e-4)


def test_the_penalty_of_a_plain_model_counts_what_is_beyond_the_limit() -> None:
    model = vit(heads=1, depth=1)
    attention = view(model).layers[0]
    attention.write(3 * torch.eye(24)[None], torch.eye(24)[None])  # every eigenvalue of H is 3
    for limit, distance in ((None, 2.0), (2.5, 0.5), (3.0, 0.0)):
        assert float(spectral_penalty(model, "smoothing", bound=limit).detach()) == pytest.approx(distance**2)
    assert float(spectral_penalty(model, "sharpening").detach()) == pytest.approx(9.0)
    assert float(spectral_penalty(model, "smoothing", margin=2.0, bound=2.0).detach()) == pytest.approx(1.0)


def test_frozen_weights_are_frozen_again_after_baking() -> None:
    model = vit(qkv_bias=True).requires_grad_(False)
    model.blocks[1].attn.proj.weight.requires_grad_(True)  # type: ignore[index, union-attr]
    reparametrize(model, form="symmetric")
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"spectral_control.theta", "spectral_control.psi"}
    bake(model)
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["blocks.1.attn.proj.weight"]


def test_exported_names_exist() -> None:
    assert all(hasattr(unsmooth.control, name) for name in unsmooth.control.__all__)
