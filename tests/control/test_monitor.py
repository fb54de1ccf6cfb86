"""The monitor tells the truth about conditioning, and a singular Θ is an error with a name, not NaN."""

from __future__ import annotations

from math import isnan

import pytest
import torch
from control.cases import FORMS, images, vit

from unsmooth.control import ControlMonitor, bake, control_of, reparametrize
from unsmooth.errors import OptionError, WeightsError
from unsmooth.metrics.tolerance import tolerance


def test_readings_are_those_of_the_parameters() -> None:
    model = reparametrize(vit(), bound="clip", std=0.5)
    control = control_of(model)
    reading = ControlMonitor(model, exact=True).read()
    theta = control.theta.detach()
    condition = torch.linalg.cond(theta.double()).float()
    # σ_min is known to eps·σ_max, so a condition number's own relative error grows with it
    slack = tolerance(theta.dtype, theta.shape[-1]) * condition.max().item()
    torch.testing.assert_close(reading.condition, condition, rtol=slack, atol=0)
    psi = control.psi.detach()
    torch.testing.assert_close(reading.saturated, ((psi > 0) | (psi < -1)).float().mean(1))
    torch.testing.assert_close(reading.smallest, psi.clamp(-1, 0).abs().amin(1))
    torch.testing.assert_close(reading.largest, psi.clamp(-1, 0).abs().amax(1))


def test_the_quick_condition_number_is_close_to_the_exact_one() -> None:
    for seed in range(5):
        model = reparametrize(vit(dim=48, depth=6), generator=torch.Generator().manual_seed(seed))
        exact = ControlMonitor(model, exact=True).read().condition
        quick = ControlMonitor(model).read().condition
        assert (quick <= exact * 1.001).all()
        assert (quick >= exact * 0.8).all()


def test_only_a_clip_saturates() -> None:
    for bound in ("abs", "tanh", "square", "free"):
        assert not ControlMonitor(reparametrize(vit(), bound=bound)).read().saturated.any()


def test_the_log_has_each_layer_and_the_worst() -> None:
    log = ControlMonitor(reparametrize(vit(), std=0.5)).read().as_dict()
    layers = [log["control/condition/blocks.0.attn"], log["control/condition/blocks.1.attn"]]
    assert log["control/condition"] == max(layers)
    assert log["control/saturated"] == pytest.approx(
        (log["control/saturated/blocks.0.attn"] + log["control/saturated/blocks.1.attn"]) / 2
    )
    assert len(log) == 12
    log = ControlMonitor(reparametrize(vit(), std=0.5, bound="abs")).read().as_dict("unclipped")
    for quantity, worst in (("smallest", min), ("largest", max)):
        each = [log[f"unclipped/{quantity}/blocks.{block}.attn"] for block in (0, 1)]
        assert each[0] != each[1]
        assert log[f"unclipped/{quantity}"] == worst(each)


@pytest.mark.parametrize("form", ["eigen", "symmetric"])
def test_a_singular_theta_is_an_error_with_the_name_of_the_layer(form: str) -> None:
    model = reparametrize(vit(), form=form)
    with torch.no_grad():
        control_of(model).theta[1, :, 0] = control_of(model).theta[1, :, 1]
    match = rf"Θ of blocks\.1\.attn is singular: form '{form}' needs linearly independent columns"
    with pytest.raises(WeightsError, match=match):
        model(images())
    with pytest.raises(WeightsError, match=match):
        ControlMonitor(model).check()
    with pytest.raises(WeightsError, match=match):
        bake(model)
    reading = ControlMonitor(model).read()
    assert reading.condition.isnan().tolist() == [False, True]
    assert isnan(reading.as_dict()["control/condition"])  # not the worst of the layers that are left
    assert reading.as_dict()["control/largest"] > 0


def test_a_theta_that_is_not_finite_has_no_condition_number() -> None:
    model = reparametrize(vit())
    with torch.no_grad():
        control_of(model).theta[0, 3, 2] = torch.inf
    for exact in (True, False):
        assert ControlMonitor(model, exact=exact).read().condition.isnan().tolist() == [True, False]


def test_a_v_that_is_singular_up_to_rounding_is_an_error_for_the_form_that_inverts_it() -> None:
    rank_one = torch.outer(torch.randn(24), torch.randn(24))  # rounded entries: only nearly dependent columns
    for form in ("eigen", "symmetric"):
        model = reparametrize(vit(), form=form)
        with torch.no_grad():
            control_of(model).theta[0] = rank_one
        if form == "symmetric":
            assert model(images()).isfinite().all()
            continue
        with pytest.raises(WeightsError, match=r"Θ of blocks\.0\.attn is singular"):
            model(images())


def test_split_needs_no_inverse_and_accepts_a_singular_v() -> None:
    model = reparametrize(vit(), form="split")
    with torch.no_grad():
        control_of(model).theta[1] = 0
    assert model(images()).isfinite().all()
    bake(model)


@pytest.mark.parametrize("form", FORMS)
def test_parameters_that_are_not_finite_are_an_error_with_the_name_of_the_layer(form: str) -> None:
    model = reparametrize(vit(), form=form)
    with torch.no_grad():
        control_of(model).psi[0, 3] = torch.nan
    with pytest.raises(WeightsError, match=r"Θ or ψ of blocks\.0\.attn holds NaN or infinity"):
        model(images())


def test_a_plain_model_cannot_be_monitored() -> None:
    with pytest.raises(OptionError, match="not reparametrised"):
        ControlMonitor(vit())


def test_printing_the_model_shows_what_is_controlled() -> None:
    model = reparametrize(vit(depth=3), {0: "sharpening", 1: "smoothing", 2: "sharpening"}, form="symmetric")
    assert "form=symmetric, bound=square, dim=24, layers: 2 sharpening, 1 smoothing" in repr(model)
