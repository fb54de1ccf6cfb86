"""A controlled model trains: constraint after steps, one batched call, compile, autocast, checkpointing, DDP."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from control.cases import FORMS, MODES, images, total_of, vit
from control.parallel import train_in_parallel
from processes import run_twice
from torch import Tensor, nn

from unsmooth.control import bake, control_of, parameter_groups, reparametrize, spectral_penalty
from unsmooth.control.spectral import SpectralControl
from unsmooth.metrics.tolerance import tolerance


def step(model: nn.Module, x: Tensor, optimiser: torch.optim.Optimizer) -> None:
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(x), torch.arange(len(x)) % 5)
    loss.backward()
    optimiser.step()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_the_constraint_holds_after_each_of_three_optimiser_steps(form: str, mode: str) -> None:
    model = reparametrize(vit().double(), mode, form=form, bound="clip", std=0.5)
    optimiser = torch.optim.AdamW(parameter_groups(model, 0.05), lr=0.05)
    for _ in range(3):
        before = total_of(model).clone()
        step(model, images(4, dtype=torch.float64), optimiser)
        assert not torch.equal(total_of(model), before)
        for layer in range(2):
            condition = (
                1.0 if form == "symmetric" else float(torch.linalg.cond(control_of(model).theta[layer].detach()))
            )
            values = torch.linalg.eigvals(total_of(model, layer))
            atol = tolerance(torch.float64, 24) * condition**2
            assert values.imag.abs().max() <= atol
            assert (MODES[mode] * values.real).min() >= -atol
            assert form == "split" or (MODES[mode] * values.real).max() <= 1 + atol


@pytest.mark.parametrize("form", FORMS)
def test_every_parameter_gets_a_gradient_and_all_layers_share_one_call(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    original = SpectralControl.weights
    monkeypatch.setattr(
        SpectralControl, "weights", lambda self, layer=None: calls.append(layer) or original(self, layer)
    )
    model = reparametrize(vit(depth=4, qkv_bias=True), form=form, bound="tanh")
    calls.clear()
    model(images()).square().sum().backward()
    assert calls == [None]
    assert all(p.grad is not None for p in model.parameters())
    assert (control_of(model).theta.grad.flatten(1).norm(dim=1) > 0).all()
    assert model.blocks[0].attn.proj.weight.requires_grad  # read outside a forward pass: this layer alone
    assert calls == [None, 0]


def test_gradients_are_those_of_the_plain_model_through_the_map() -> None:
    """The chain rule by hand: gradients of the baked model's weights, pulled back through the form."""
    model = reparametrize(vit().double(), form="symmetric", std=0.4)
    model(images(dtype=torch.float64)).square().sum().backward()
    plain = bake(model, copy=True)
    plain(images(dtype=torch.float64)).square().sum().backward()
    control = control_of(model)
    theta, psi = (p.detach().clone().requires_grad_() for p in (control.theta, control.psi))
    q = torch.linalg.qr(theta)
    q = q.Q * q.R.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    w_proj = -psi.square()[..., None] * q.mT
    for index, block in enumerate(plain.blocks):  # type: ignore[arg-type]
        q[index].backward(block.attn.qkv.weight.grad[48:].mT, retain_graph=True)
        w_proj[index].backward(block.attn.proj.weight.grad.mT, retain_graph=True)
    torch.testing.assert_close(control.theta.grad, theta.grad)
    torch.testing.assert_close(control.psi.grad, psi.grad)


def test_weights_are_never_stale_even_after_a_failed_forward_pass() -> None:
    model = reparametrize(vit())
    with pytest.raises(AssertionError, match="Input"):
        model(torch.zeros(1, 3, 9, 9))
    before = total_of(model)
    with torch.no_grad():
        control_of(model).psi.mul_(0.5)
    assert not torch.allclose(total_of(model), before)


def test_calling_a_part_of_the_model_alone_gives_the_same_features() -> None:
    model = reparametrize(vit(), form="symmetric", std=0.3)
    seen: list[Tensor] = []
    model.norm.register_forward_hook(lambda module, args, output: seen.append(output))
    model(images())
    torch.testing.assert_close(model.forward_features(images()), seen[0])


@pytest.mark.parametrize("form", FORMS)
def test_compiles_as_one_graph_with_the_same_outputs_and_gradients(form: str) -> None:
    model = reparametrize(vit(), form=form, std=0.3)
    model(images()).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images()), model(images()))
    compiled(images()).square().sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        control_of(compiled).psi.add_(0.5)
    torch.testing.assert_close(compiled(images()), model(images()))
    torch.testing.assert_close(bake(compiled)(images()), compiled(images()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_under_bfloat16_autocast_the_parametrisation_stays_in_float32(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)  # whose bfloat16 kernels some CPUs cannot run
    model = reparametrize(vit(), form=form, std=0.3)
    control = control_of(model)
    expected, outside = model(images()), control.weights()
    with torch.autocast("cpu", torch.bfloat16):
        inside, out = control.weights(), model(images())
    assert out.dtype == torch.bfloat16
    for ours, theirs in zip(inside, outside, strict=True):
        assert ours.dtype == torch.float32
        assert torch.equal(ours, theirs)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("form", FORMS)
def test_a_compiled_gradient_under_autocast_is_that_of_float32(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    control = control_of(reparametrize(vit(), form=form, std=0.3))
    weights, parameters = control.weights(), list(control.parameters())
    given = [torch.randn_like(w) for w in weights]
    expected = torch.autograd.grad(weights, parameters, given)
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(control.weights, fullgraph=True, backend="aot_eager")()
    for ours, theirs in zip(torch.autograd.grad(compiled, parameters, given), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5 * float(theirs.abs().max()))


def test_a_model_stored_in_bfloat16_computes_its_weights_in_float32() -> None:
    model = reparametrize(vit(), form="symmetric").bfloat16()
    w_v, _ = control_of(model).weights()
    assert w_v.dtype == torch.bfloat16
    gram = w_v.float().mT @ w_v.float()
    torch.testing.assert_close(gram, torch.eye(24).expand_as(gram), rtol=0, atol=0.02)


@pytest.mark.parametrize("form", FORMS)
def test_gradient_checkpointing_changes_nothing(form: str) -> None:
    model = reparametrize(vit(), form=form, std=0.3).train()
    model(images()).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model.set_grad_checkpointing(True)
    model(images()).square().sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=1e-4, atol=1e-6)


def test_two_processes_train_to_the_same_weights_as_one(tmp_path: Path) -> None:
    run_twice(train_in_parallel, str(tmp_path))
    for form in FORMS:
        model = reparametrize(vit(), form=form, std=0.3)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(3):
            optimiser.zero_grad()
            for part in (images(4)[:2], images(4)[2:]):
                (nn.functional.cross_entropy(model(part), torch.arange(2)) / 2).backward()
            optimiser.step()
        parallel = torch.load(tmp_path / f"{form}.pt", weights_only=True)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(parallel[name], value, rtol=1e-4, atol=1e-5)


def test_the_penalty_of_a_plain_model_is_not_rounded() -> None:
    model = vit().double()
    expected = spectral_penalty(model, "sharpening")
    assert expected.dtype == torch.float64
    model.float()
    alone = spectral_penalty(model, "sharpening")
    with torch.autocast("cpu", torch.bfloat16):
        assert spectral_penalty(model, "sharpening").item() == alone.item() == pytest.approx(expected.item(), rel=1e-4)
