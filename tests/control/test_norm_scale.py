"""Eigenvalues within −1/s and −2/s, s the scale of the norm before attention."""

from __future__ import annotations

import copy

import pytest
import torch
from small_models import images, vit
from torch import Tensor, nn

import unsmooth
from unsmooth.control import Variant, control_of
from unsmooth.control.norm_scale import MOMENTUM
from unsmooth.errors import CheckpointError, OptionError


def bounded(reach: float = 1.0) -> nn.Module:
    """A small ViT whose eigenvalues want to go far beyond the bound."""
    torch.manual_seed(0)
    model = unsmooth.reparametrize(vit(), form="symmetric", reach=reach, std=0.3)
    with torch.no_grad():
        control_of(model).psi.mul_(100)
    return model


def slow_scale(x: Tensor, norm: nn.LayerNorm) -> float:
    """max over tokens of 1/σ times the largest weight, one token after the other."""
    sizes = [float((((t - t.mean()) ** 2).mean() + norm.eps) ** -0.5) for t in x.reshape(-1, x.shape[-1]).double()]
    return max(sizes) * float(norm.weight.detach().abs().max())


@pytest.mark.parametrize("reach", [1.0, 2.0])
def test_in_training_the_scale_is_followed_and_the_eigenvalues_stay_within(reach: float) -> None:
    model, (batch, *_) = bounded(reach).train(), images()
    seen: list[Tensor] = []
    model.blocks[1].norm1.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    control = control_of(model)
    with torch.no_grad():
        model.blocks[1].norm1.weight.copy_(torch.linspace(-0.5, 3, len(model.blocks[1].norm1.weight)))
    expected = 1.0
    for _ in range(3):
        model(batch)
        expected += MOMENTUM * (slow_scale(seen[-1], model.blocks[1].norm1) - expected)
    assert float(control.scale[1]) == pytest.approx(expected, rel=1e-4)
    steps = (control.scale * control.eigenvalues()).detach()
    assert bool((steps <= 0).all())
    assert float(steps.min()) >= -reach * (1 + 1e-6)
    assert float(steps.min()) == pytest.approx(-reach, rel=1e-3)  # it goes as far as it may
    weights = model.blocks[1].attn.qkv.weight.detach()[-24:].mT @ model.blocks[1].attn.proj.weight.detach().mT
    found = torch.linalg.eigvals(weights.double()).real
    assert float(control.scale[1]) * float(found.min()) == pytest.approx(-reach, rel=1e-2)


def test_in_evaluation_it_stands_still_and_baked_weights_are_ordinary() -> None:
    model, (batch, *_) = bounded().train(), images()
    model(batch)
    scale = control_of(model).scale.clone()
    model.eval()
    before = model(batch)
    assert torch.equal(control_of(model).scale, scale)
    plain = unsmooth.bake(model, copy=True)
    torch.testing.assert_close(plain(batch), before, rtol=1e-4, atol=1e-5)
    assert not any(part._forward_pre_hooks for part in plain.modules())
    assert not any("scale" in name for name, _ in plain.named_buffers())
    plain.train()(batch)
    assert torch.equal(control_of(model).scale, scale)


def test_a_copy_follows_its_own_norms() -> None:
    model, (batch, *_) = bounded().train(), images()
    other = copy.deepcopy(model)
    other(batch)
    assert bool((control_of(model).scale == 1).all())
    assert bool((control_of(other).scale != 1).all())


def test_the_scale_travels_with_the_checkpoint_and_another_reach_is_refused() -> None:
    model, (batch, *_) = bounded().train(), images()
    model(batch)
    other = bounded()
    other.load_state_dict(model.state_dict())
    assert torch.equal(control_of(other).scale, control_of(model).scale)
    with pytest.raises(CheckpointError, match="within 1 / s, the model's are of form 'symmetric' .* within 2 / s"):
        bounded(2.0).load_state_dict(model.state_dict())


def test_a_compiled_step_follows_it_too() -> None:
    model, (batch, *_) = bounded().train(), images()
    eager = copy.deepcopy(model)
    torch.compile(model, backend="aot_eager", fullgraph=True)(batch)
    eager(batch)
    torch.testing.assert_close(control_of(model).scale, control_of(eager).scale)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match="expected a positive number, with bound 'tanh' or 'clip'"):
        unsmooth.reparametrize(vit(), bound="square", reach=1.0)
    with pytest.raises(OptionError, match="it starts with init='paper'"):
        unsmooth.reparametrize(vit(), reach=1.0, init="from_weights")
    with pytest.raises(OptionError, match="unknown variant 'smoothing-bounded'"):
        Variant.parse("smoothing-bounded")


def test_variants_have_names_and_the_fused_blocks_leave_them_alone() -> None:
    from unsmooth.training.fast.shortcuts import unseen

    assert (Variant.parse("sharpening-bounded").reach, Variant.parse("sharpening-bounded2@:6").reach) == (1.0, 2.0)
    model = Variant.parse("sharpening-bounded").apply(vit())
    assert not unseen(model.blocks[0])  # the norm is looked at: no kernel may pass it by
    assert unseen(model.blocks[0].attn)
    assert unseen(Variant.parse("sharpening").apply(vit()).blocks[0])
