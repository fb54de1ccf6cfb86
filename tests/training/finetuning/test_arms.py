"""Penalties, adapters and fixes: each pushes to its side, and learns at its own rate."""

from __future__ import annotations

from statistics import median

import pytest
import torch
from small_models import vit

from unsmooth.control import adapter_of, bake, reparametrize, spectral_penalty
from unsmooth.control.adapter import adapters_of
from unsmooth.control.penalty import penalty_near, spectral_sides
from unsmooth.errors import OptionError
from unsmooth.training.finetuning import Arm, ImageJob
from unsmooth.training.finetuning.arms import (
    ADDED_LR,
    EVERY,
    arm_names,
    fit,
    parameter_rates,
)


def test_a_penalty_is_exact_where_it_looked_and_of_first_order_nearby() -> None:
    model = vit().double()
    near = Arm("penalty-sharpening").penalty_near(model)
    assert near is not None
    assert near().item() == spectral_penalty(model, "sharpening", folded=True).item()
    weight = model.blocks[0].attn.proj.weight  # type: ignore[index, union-attr]
    expected = torch.autograd.grad(spectral_penalty(model, "sharpening", folded=True), weight)[0]
    assert torch.equal(torch.autograd.grad(near(), weight)[0], expected)
    ratios = []
    for _ in range(7):
        direction, errors = torch.randn_like(weight), []
        for size in (1e-3, 1e-4):
            with torch.no_grad():
                weight += size * direction
            exact = spectral_penalty(model, "sharpening", folded=True).item()
            errors.append(abs(near().item() - exact))
            with torch.no_grad():
                weight -= size * direction
        ratios.append(errors[1] / errors[0])
    assert median(ratios) < 0.05  # of second order: a hundredth, unless an eigenvalue comes to its bound on the way
    assert Arm().penalty_near(model) is None


@pytest.mark.parametrize("mode", ["sharpening", "smoothing"])
def test_penalties_and_adapters_push_to_their_side(mode: str) -> None:
    side = -1 if mode == "smoothing" else 1
    model, arm, x = vit(), Arm(f"penalty-{mode}"), torch.randn(4, 3, 16, 16)
    old = list(model.parameters())
    before = spectral_penalty(model, mode).item()
    groups = parameter_rates(model, model, old, lr=1e-4, head_lr=0.0, weight_decay=0.0)
    fit(model, groups, model, arm, lambda step: 0 * model(x).sum(), 3 * EVERY)
    assert spectral_penalty(model, mode).item() < 0.7 * before
    sides = spectral_sides(bake(reparametrize(vit(), mode, form="symmetric")))
    assert sides["negative"] == (mode == "sharpening")
    assert sides[mode] < 1e-6 < sides["smoothing" if mode == "sharpening" else "sharpening"]
    model = vit()
    old = list(model.parameters())
    Arm(f"adapter-{mode}", rank=2, bound=0.5).apply(model, seed=0)
    groups = parameter_rates(model, model, old, lr=1e-3, head_lr=1e-3, weight_decay=0.0)
    fit(model, groups, model, Arm(), lambda step: model(x).square().mean(), 3)
    values = -side * adapter_of(model).eigenvalues().detach()
    assert bool((values >= 0).all() and (values > 0).any() and (values <= 0.5).all())


def test_a_strong_penalty_wins_against_a_task_that_pulls_the_other_way() -> None:
    after = {}
    for name in ("penalty-sharpening", "penalty-sharpening-strong"):
        torch.manual_seed(0)
        model = vit()
        before, pull = spectral_sides(model)["sharpening"], penalty_near(model, "sharpening")
        groups = parameter_rates(model, model, list(model.parameters()), lr=1e-4, head_lr=0.0, weight_decay=0.0)
        fit(model, groups, model, Arm(name), lambda step, pull=pull: -2 * pull(), EVERY)  # type: ignore[misc]
        after[name] = spectral_sides(model)["sharpening"] / before
    assert after["penalty-sharpening-strong"] < 1 < after["penalty-sharpening"]


def test_what_an_arm_adds_learns_faster_than_what_was_there(job: ImageJob) -> None:
    for name in ("plain", "adapter-sharpening", "adapter-sharpening-strong", "featscale"):
        model, arm = job.build(0), Arm(name, rank=2)
        old = list(model.encoder.parameters())  # type: ignore[union-attr]
        arm.apply(model.encoder, 0)  # type: ignore[arg-type]
        rates = {"lr": 1e-5, "head_lr": 0.1, "weight_decay": 0.5, "added_lr": arm.added_lr}
        groups = parameter_rates(model, model.encoder, old, **rates)  # type: ignore[arg-type]
        found: dict[float, int] = {}
        for group in groups:
            found[group["lr"]] = found.get(group["lr"], 0) + len(group["params"])
        assert found.pop(1e-5) == len(old)
        assert found.pop(0.1) == 2
        assert bool(found.pop(ADDED_LR * (10 if "strong" in name else 1), 0)) == (name != "plain")
        assert not found
    assert not adapters_of(job.loaded.model)


def test_a_layer_scale_of_either_sign_turns_no_side_round() -> None:
    """As in DINOv2: the bare weights lie on the other side of what acts, on which penalty and record are."""
    torch.manual_seed(0)
    model = vit(init_values=1.0)
    for block in model.blocks:  # type: ignore[union-attr]
        torch.nn.init.constant_(block.ls1.gamma, -1.0)
    bare, acting = (spectral_sides(model, folded=folded) for folded in (False, True))
    assert acting["negative_energy"] == pytest.approx(1 - bare["negative_energy"], abs=0.1)
    Arm("adapter-sharpening", rank=2).apply(model, seed=0)
    with torch.no_grad():
        adapter_of(model).psi.fill_(0.5)
    after = spectral_sides(model, folded=True)["negative_energy"]
    assert after > acting["negative_energy"]
    assert spectral_sides(model)["negative_energy"] < bare["negative_energy"]
    plain = bake(model)
    bare = Arm("penalty-sharpening-bare")
    assert bare.mode == "sharpening"
    assert bare.penalty_near(plain)().item() == spectral_penalty(plain, "sharpening").item()  # type: ignore[misc]
    near = Arm("penalty-sharpening").penalty_near(plain)
    assert near is not None
    assert near().item() == pytest.approx(spectral_sides(plain, folded=True)["sharpening"], rel=1e-4)
    with pytest.raises(OptionError, match="leave out `mode` and `folded`"):
        spectral_penalty(reparametrize(vit(), "sharpening"), folded=True)


def test_an_unknown_arm_is_refused() -> None:
    with pytest.raises(OptionError, match="unknown arm 'lunch'"):
        Arm("lunch")
    assert {"plain", "adapter-smoothing", "penalty-sharpening", "featscale"} <= set(arm_names())
