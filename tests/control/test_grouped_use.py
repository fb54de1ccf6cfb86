"""Models with grouped queries in use: `from_weights`, training, checkpoints, generation, monitor, penalty, refusals."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from control.cases import FORMS, GROUPED, MODES, decoder, heads_of, outputs, total_of
from model_cases import Case, ids
from torch import Tensor, nn
from versions import NEEDS_NEWER_DYNAMO

from unsmooth.control import ControlMonitor, bake, control_of, parameter_groups, reparametrize, spectral_penalty
from unsmooth.errors import WeightsError


def lm(seed: int = 0, **kwargs: int) -> nn.Module:
    return decoder(wrap="LlamaForCausalLM", seed=seed, **kwargs)


@pytest.mark.parametrize(
    ("case", "form"), [pytest.param(case, FORMS[i % 3], id=case.name) for i, case in enumerate(GROUPED)]
)
def test_a_baked_model_comes_back_from_its_weights(case: Case, form: str) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    expected = outputs(bake(reparametrize(model, "smoothing", form=form, std=0.5)), batch)
    reparametrize(model, "smoothing", form=form, init="from_weights")
    assert all(max(fit.heads, fit.bias) < 1e-6 for fit in control_of(model).fit or ())
    torch.testing.assert_close(outputs(model, batch), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        *product(FORMS, [{"head_dim": 16}, {"num_key_value_heads": 1}, {"num_key_value_heads": 4, "head_dim": 4}]),
        ("split", {"head_dim": 24}),
    ],
)
@pytest.mark.parametrize("bound", ["clip", "abs", "tanh"])
def test_weights_that_satisfy_the_constraint_are_reproduced_for_every_shape_in_float32(
    form: str, bound: str, shape: dict[str, int]
) -> None:
    model, batch = lm(**shape).float(), ids()
    expected = outputs(bake(reparametrize(model, form=form, std=0.5, bound="clip")), batch)
    reparametrize(model, form=form, init="from_weights", bound=bound)
    torch.testing.assert_close(outputs(model, batch), expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_other_weights_give_the_true_error_and_it_is_below_that_of_no_attention(form: str, mode: str) -> None:
    model = decoder("Qwen3", head_dim=12)
    before, whole = heads_of(model), total_of(model)
    reparametrize(model, mode, form=form, init="from_weights")
    fit = (control_of(model).fit or ())[0]
    assert fit.heads == pytest.approx(float((heads_of(model) - before).norm() / before.norm()), rel=1e-6)
    assert fit.total == pytest.approx(float((total_of(model) - whole).norm() / whole.norm()), rel=1e-6)
    assert fit.heads < 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMS)
def test_weights_that_nearly_satisfy_the_constraint_are_nearly_kept(form: str, mode: str) -> None:
    generator = torch.Generator().manual_seed(0)
    model = bake(reparametrize(decoder(), mode, form="symmetric", std=0.5, bound="clip", generator=generator))
    with torch.no_grad():
        for layer in model.layers:  # type: ignore[union-attr]
            for weight in (layer.self_attn.v_proj.weight, layer.self_attn.o_proj.weight):
                weight += 1e-3 * weight.std() * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    reparametrize(model, mode, form=form, init="from_weights")
    assert all(1e-4 < fit.heads < 0.02 for fit in control_of(model).fit or ())


def test_eigen_keeps_all_that_heads_write_where_no_value_reads() -> None:
    model = decoder()
    before = heads_of(model)
    w_v = model.layers[0].self_attn.v_proj.weight.mT.detach()  # type: ignore[index, union-attr, operator]
    outside = torch.eye(32, dtype=torch.float64) - w_v @ torch.linalg.pinv(w_v)
    reparametrize(model, init="from_weights")
    torch.testing.assert_close(outside @ heads_of(model), outside @ before, rtol=0, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_zero_and_equal_values_can_be_started_from(form: str) -> None:
    model = decoder()
    with torch.no_grad():
        first, second, third = (layer.self_attn for layer in model.layers)  # type: ignore[union-attr]
        first.v_proj.weight.zero_()
        second.v_proj.weight[8:] = second.v_proj.weight[:8]
        third.o_proj.weight.zero_()
    reparametrize(model, form=form, init="from_weights")
    zero, equal, silent = control_of(model).fit or ()
    assert max(zero.heads, silent.heads) < 1e-6  # absolute: H is 0
    assert 0 < equal.heads <= 1
    assert outputs(model, ids()).isfinite().all()


def test_values_with_a_bias_move_it_where_the_projection_has_none() -> None:
    model = decoder("Qwen2")
    for layer in model.layers:  # type: ignore[union-attr]
        nn.init.normal_(layer.self_attn.v_proj.bias)

    def pushed(index: int) -> Tensor:
        """Σ_h b_v^h W_proj^h: what every token gets."""
        part = model.layers[index].self_attn  # type: ignore[index, union-attr]
        return part.o_proj.weight @ part.v_proj.bias.unflatten(0, (2, 1, 8)).expand(2, 2, 8).flatten()  # type: ignore[union-attr, operator]

    before = [pushed(index).detach() for index in range(3)]
    reparametrize(model, init="from_weights")
    for index, fit in enumerate(control_of(model).fit or ()):
        error = (pushed(index).detach() - before[index]).norm() / before[index].norm()
        assert fit.bias == pytest.approx(float(error), rel=1e-6)
        assert 0 < fit.bias < 1


@pytest.mark.parametrize("form", FORMS)
def test_every_step_keeps_the_constraint_and_bake_keeps_the_outputs(form: str) -> None:
    model, batch = lm(), ids()
    reparametrize(model, form=form, std=0.3, bound="clip")
    control = control_of(model)
    optimiser = torch.optim.AdamW(parameter_groups(model, 0.1), lr=0.02)
    for _ in range(3):
        before = {name: p.detach().clone() for name, p in control.named_parameters()}
        optimiser.zero_grad()
        model(**batch, labels=batch["input_ids"]).loss.backward()
        optimiser.step()
        assert all(not torch.equal(p, before[name]) for name, p in control.named_parameters())
        w_v, w_proj = control.weights(0)
        found = torch.linalg.eigvals(w_proj.unflatten(0, (2, 2, 8)).sum(1).flatten(0, 1) @ w_v)
        assert found.imag.abs().max() < 1e-9
        assert found.real.max() < 1e-9
        assert form == "split" or found.real.min() > -1 - 1e-9
    expected = outputs(model.eval(), batch)
    torch.testing.assert_close(outputs(bake(model), batch), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_cache_of_keys_and_values_changes_nothing(form: str) -> None:
    model = reparametrize(lm(), form=form, std=0.5)
    tokens = torch.randint(3, 50, (2, 9))
    with torch.no_grad():
        expected = model(tokens).logits[:, 6:]
        past = model(tokens[:, :6], use_cache=True).past_key_values
        torch.testing.assert_close(model(tokens[:, 6:], past_key_values=past).logits, expected, rtol=0, atol=1e-6)
    written = [part.generate(tokens, max_new_tokens=5, do_sample=False) for part in (model, bake(model))]  # type: ignore[operator]
    assert torch.equal(*written)


@pytest.mark.parametrize("form", FORMS)
def test_a_checkpoint_comes_back_and_a_plain_one_loads_where_names_match(form: str) -> None:
    model, batch = reparametrize(lm(), form=form, std=0.5), ids()
    other = reparametrize(lm(seed=1), form=form)
    other.load_state_dict(model.state_dict())
    assert torch.equal(outputs(other, batch), outputs(model, batch))
    missing = other.load_state_dict(lm(seed=2).state_dict(), strict=False).missing_keys
    assert all(key.startswith("model.spectral_control.") for key in missing)
    assert ("model.spectral_control.phi" in missing) == (form == "eigen")


def test_the_penalty_bounds_the_sum_and_counts_no_zeros_of_a_plain_model() -> None:
    model = reparametrize(decoder(), form="symmetric", bound="abs", std=0.5)
    inside = control_of(model).psi.detach().abs()  # twice a head's eigenvalue: the sum is the mean of two of these
    torch.testing.assert_close(spectral_penalty(model, bound=0.4).detach(), (inside - 0.4).clamp(min=0).square().mean())
    with torch.no_grad():
        control_of(model).psi.fill_(0.5)
    plain = bake(model)
    assert spectral_penalty(plain, "sharpening", margin=0.4).detach() < 1e-8
    penalty = spectral_penalty(decoder(), "smoothing", margin=0.1)
    assert penalty > 0
    penalty.backward()


@pytest.mark.parametrize("form", FORMS)
def test_the_monitor_watches_tall_and_wide_columns(form: str) -> None:
    model = reparametrize(decoder(head_dim=24 if form == "split" else 8), form=form)
    theta = control_of(model).theta.detach()
    exact, estimate = (ControlMonitor(model, exact=choice).read().condition for choice in (True, False))
    expected = torch.linalg.svdvals(theta)
    torch.testing.assert_close(exact, expected[:, 0] / expected[:, -1])
    torch.testing.assert_close(estimate, exact, rtol=0.2, atol=0)


@pytest.mark.parametrize("form", ["eigen", "symmetric"])
def test_dependent_columns_and_numbers_that_are_none_are_named(form: str) -> None:
    model = reparametrize(decoder(), form=form)
    with torch.no_grad():
        control_of(model).theta[1, :, 3] = control_of(model).theta[1, :, 2]
    with pytest.raises(WeightsError, match=r"Θ of layers\.1\.self_attn is singular"):
        outputs(model, ids())
    model = reparametrize(decoder())
    with torch.no_grad():
        control_of(model).phi[2, 0, 0] = torch.nan  # type: ignore[index]
    with pytest.raises(WeightsError, match=r"Θ or ψ or Φ of layers\.2\.self_attn holds NaN"):
        bake(model)


@NEEDS_NEWER_DYNAMO
@pytest.mark.parametrize("form", FORMS)
def test_compiled_in_one_graph_and_under_autocast(form: str) -> None:
    model = reparametrize(decoder().float(), form=form, std=0.3)
    control = control_of(model)
    compiled = torch.compile(control.weights, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(), control.weights(), rtol=1e-5, atol=1e-6)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(torch.equal(a, b) for a, b in zip(control.weights(), compiled(), strict=True))
        assert outputs(model, ids()).isfinite().all()


def test_a_real_model_is_started_from_its_weights_and_baked(real_models: Path) -> None:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(real_models / "smollm2-135m").float().eval()
    batch = {"input_ids": torch.arange(5, 37)[None]}
    with torch.no_grad():
        before = outputs(model, batch)
        reparametrize(model, layers=[0, 29], init="from_weights")
        assert all(fit.heads < 0.85 for fit in control_of(model).fit or ())
        expected = outputs(model, batch)
        assert not torch.allclose(expected, before, atol=1e-2)
        torch.testing.assert_close(outputs(bake(model), batch), expected, rtol=1e-5, atol=1e-5)
