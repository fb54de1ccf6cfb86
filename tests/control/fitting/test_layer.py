"""`from_weights`: exact where the constraint holds, the nearest spectrum elsewhere, the error told."""

from __future__ import annotations

import model_cases
import pytest
import torch
from control.cases import FORMS, MODES, heads_of, images, outputs, total_of, vit
from torch import Tensor, nn

from unsmooth.control import bake, control_of, reparametrize
from unsmooth.errors import WeightsError


def random_biases(model: nn.Module) -> nn.Module:
    for name, p in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(p)
    return model


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bound", [None, "tanh", "abs"])
def test_weights_that_satisfy_the_constraint_are_reproduced(
    form: str, mode: str, heads: int, bound: str | None
) -> None:
    model = bake(reparametrize(random_biases(vit(heads=heads)).double(), mode, form=form, std=0.3, bound="clip"))
    expected = model(images(dtype=torch.float64))
    reparametrize(model, mode, form=form, init="from_weights", bound=bound)
    assert all(fit.heads < 1e-6 for fit in control_of(model).fit or ())
    torch.testing.assert_close(model(images(dtype=torch.float64)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_a_baked_model_of_several_heads_comes_back_in_float32(form: str, mode: str) -> None:
    model = bake(reparametrize(random_biases(vit(heads=3)), mode, form=form, std=0.3))
    expected = model(images())
    reparametrize(model, mode, form=form, init="from_weights")
    torch.testing.assert_close(model(images()), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "bert-padded", "timm-eva02", "torch-post", "whisper"])
def test_outputs_are_kept_in_families_with_biases_wherever_they_keep_them(name: str) -> None:
    case = next(case for case in model_cases.CASES if case.name == name)
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    bake(reparametrize(model, "smoothing", form="symmetric", std=0.3))
    expected = outputs(model, batch)
    reparametrize(model, "smoothing", form="symmetric", init="from_weights")
    torch.testing.assert_close(outputs(model, batch), expected, rtol=1e-5, atol=1e-5)


def test_values_with_a_bias_need_a_projection_with_one() -> None:
    model = random_biases(vit(qkv_bias=True, proj_bias=False))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(WeightsError, match=r"blocks\.0\.attn: its values have a bias, and its projection has none"):
        reparametrize(model, init="from_weights")
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("form", FORMS)
def test_assign_then_read_gives_back_what_was_assigned(form: str) -> None:
    model = reparametrize(vit().double(), "smoothing", form=form, std=0.3)
    control = control_of(model)
    w_v, w_proj = (w.detach() for w in reparametrize_once(form))
    assert control.assign(1, w_v, w_proj).heads < 1e-6
    ours_v, ours_proj = control.weights(1)
    for head in range(3):  # per head the product is what acts; the factors are unique up to scale and order
        rows = slice(8 * head, 8 * head + 8)
        torch.testing.assert_close(ours_v[:, rows] @ ours_proj[rows], w_v[:, rows] @ w_proj[rows], rtol=0, atol=1e-6)


def reparametrize_once(form: str, mode: str = "smoothing") -> tuple[Tensor, Tensor]:
    return control_of(reparametrize(vit(seed=5).double(), mode, form=form, std=0.4)).weights(0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_an_admissible_sum_is_reproduced_even_when_its_heads_are_not(form: str, mode: str) -> None:
    model = vit().double()
    w_v, w_proj = (w.detach() for w in reparametrize_once(form, mode))
    mixing = torch.randn(24, 24, dtype=torch.float64)  # changes every head, not the sum
    control = control_of(reparametrize(model, mode, form=form))
    fit = control.assign(0, w_v @ mixing, torch.linalg.solve(mixing, w_proj))
    assert fit.total < 1e-6
    assert fit.heads > 0.01
    ours_v, ours_proj = control.weights(0)
    torch.testing.assert_close(ours_v @ ours_proj, w_v @ w_proj, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_other_weights_get_the_nearest_admissible_spectrum_and_the_true_error(form: str, mode: str) -> None:
    model = vit(heads=1).double()
    before = heads_of(model)[0]
    reparametrize(model, mode, form=form, init="from_weights", bound="clip")
    after = heads_of(model)[0]
    fit = (control_of(model).fit or ())[0]
    assert fit.layer == "blocks.0.attn"
    assert fit.heads == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-6)
    if form == "eigen":  # each eigenvalue goes to the nearest point of the interval
        nearest = (MODES[mode] * torch.linalg.eigvals(before).real).clamp(0, 1).sort().values
        found = (MODES[mode] * torch.linalg.eigvals(after).real).sort().values
        torch.testing.assert_close(found, nearest, rtol=0, atol=1e-6)
    else:  # the nearest semidefinite matrix is the positive part of the symmetric half (Higham 1988)
        values, vectors = torch.linalg.eigh((before + before.mT) / 2)
        kept = MODES[mode] * (MODES[mode] * values).clamp(min=0)
        torch.testing.assert_close(after, vectors * kept @ vectors.mT, rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_no_perturbation_of_the_fit_of_several_heads_is_nearer_for_split(form: str) -> None:
    model = vit().double()
    before = heads_of(model)
    reparametrize(model, form=form, init="from_weights")
    control = control_of(model)
    best = float((heads_of(model) - before).norm())
    assert best <= before.norm()
    if form == "split":  # closed form: a global optimum
        for _ in range(20):
            theta = control.theta.detach().clone()
            control.theta.data += 1e-3 * torch.randn_like(theta)
            assert float((heads_of(model) - before).norm()) >= best
            control.theta.data = theta


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("form", FORMS)
def test_the_error_told_is_that_of_the_stored_parameters(form: str, dtype: torch.dtype) -> None:
    model = bake(reparametrize(vit(), "smoothing", form=form, std=0.3)).to(dtype)
    before = heads_of(model)
    reparametrize(model, "smoothing", form=form, init="from_weights", bound="clip")
    error = float((heads_of(model) - before).norm() / before.norm())
    assert (control_of(model).fit or ())[0].heads == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_zero_weights_and_equal_heads_can_be_started_from(form: str) -> None:
    model = vit()
    with torch.no_grad():
        model.blocks[0].attn.proj.weight.zero_()  # type: ignore[index, union-attr]
        proj, qkv = model.blocks[1].attn.proj.weight, model.blocks[1].attn.qkv.weight  # type: ignore[index, union-attr]
        proj[:, 8:16] = proj[:, :8]
        qkv[56:64] = qkv[48:56]
    reparametrize(model, form=form, init="from_weights")
    zero, equal = control_of(model).fit or ()
    assert zero.heads < 1e-6  # absolute: H is 0
    assert 0 < equal.heads < 1
    assert model(images()).isfinite().all()


def test_rank_deficient_weights_are_fitted() -> None:
    model = vit(heads=1).double()
    control = control_of(reparametrize(model, "smoothing", form="eigen"))
    v = torch.randn(24, 24, dtype=torch.float64)
    values = torch.cat([torch.rand(10), torch.zeros(14)]).double()
    h = v * values @ torch.linalg.inv(v)
    assert control.assign(0, h.mT, torch.eye(24, dtype=torch.float64)).total < 1e-6
    assert (total_of(model) - h).norm() < 1e-6 * h.norm()


@pytest.mark.parametrize("size", [1.0, 1e6])
def test_an_eigenvalue_fitted_as_zero_or_at_the_limit_can_still_move(size: float) -> None:
    for bound in ("square", "abs", "tanh", "clip"):
        model = vit(heads=1)
        for block in model.blocks:  # type: ignore[union-attr]
            block.attn.proj.weight.data *= size
        control = control_of(reparametrize(model, form="symmetric", init="from_weights", bound=bound))
        control.eigenvalues().sum().backward()
        assert control.psi.grad is not None
        assert (control.psi.grad != 0).all()


def test_weights_of_another_shape_cannot_be_assigned() -> None:
    control = control_of(reparametrize(vit()))
    with pytest.raises(WeightsError, match=r"blocks\.0\.attn: expected W_V and W_proj of shapes \[\(24, 24\), \(24"):
        control.assign(0, torch.zeros(24, 8), torch.zeros(8, 24))
