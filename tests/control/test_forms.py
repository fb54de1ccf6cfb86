"""What each form guarantees for one head and for several, before and after normalisation is folded in, and what not."""

from __future__ import annotations

import pytest
import torch
from control.cases import FORMS, MODES, heads_of, images, total_of, vit
from reference.control import householder_q
from torch import Tensor, nn

from unsmooth.control import control_of, reparametrize
from unsmooth.control.bounds import BOUNDS
from unsmooth.control.forms import get_form
from unsmooth.metrics.tolerance import tolerance

DIM = 24


def controlled(form: str, mode: str, heads: int = 3, seed: int = 0, **kwargs: object) -> nn.Module:
    model = vit(seed, DIM, heads).double()
    torch.manual_seed(seed)
    return reparametrize(model, mode, form=form, std=0.5, **kwargs)  # type: ignore[arg-type]


def rounding(model: nn.Module, form: str) -> float:
    """10·n·eps, times cond(V)² for the form whose eigenvectors are not orthogonal (Bauer and Fike)."""
    condition = float(torch.linalg.cond(control_of(model).theta.detach()).max()) if form == "eigen" else 1.0
    return tolerance(torch.float64, DIM) * condition**2


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", ["eigen", "symmetric"])
@pytest.mark.parametrize("bound", BOUNDS)
def test_h_has_exactly_the_eigenvalues_lambda(form: str, mode: str, heads: int, bound: str) -> None:
    model = controlled(form, mode, heads, bound=bound)
    atol = rounding(model, form)
    for layer, wanted in enumerate(control_of(model).eigenvalues().detach()):
        found = torch.linalg.eigvals(total_of(model, layer))
        assert found.imag.abs().max() <= atol
        torch.testing.assert_close(found.real.sort().values, wanted.sort().values, rtol=0, atol=atol)
        if bound == "clip":
            signed = MODES[mode] * found.real
            assert signed.min() >= -atol
            assert signed.max() <= 1 + atol


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", ["eigen", "symmetric"])
def test_each_head_has_its_own_share_of_lambda_and_zeros(form: str, mode: str) -> None:
    model = controlled(form, mode)
    shares = control_of(model).eigenvalues()[0].detach().unflatten(0, (3, -1))
    for head, wanted in zip(heads_of(model), shares, strict=True):
        zeros = torch.zeros(DIM - len(wanted), dtype=torch.float64)
        expected = torch.cat([wanted, zeros]).sort().values
        found = torch.linalg.eigvals(head).real.sort().values
        torch.testing.assert_close(found, expected, rtol=0, atol=rounding(model, form))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("mode", MODES)
def test_split_keeps_the_signs_for_the_sum_and_for_each_head(mode: str, heads: int) -> None:
    model = controlled("split", mode, heads)
    size = float(torch.linalg.matrix_norm(control_of(model).theta.detach(), 2).max() ** 2)
    for h in (total_of(model), *heads_of(model)):
        torch.testing.assert_close(h, h.mT)
        signed = MODES[mode] * torch.linalg.eigvalsh(h)
        assert signed.min() >= -tolerance(torch.float64, DIM) * size
        assert signed.max() <= size


def test_split_does_not_keep_the_interval() -> None:
    """Footnote 2 has Vᵀ where section 4 has V⁻¹: eigenvalues leave [−1, 0] although all of Λ is inside."""
    model = controlled("split", "sharpening")
    assert control_of(model).eigenvalues().min() >= -1
    assert torch.linalg.eigvalsh(total_of(model)).min() < -1


def folded(h: Tensor, gamma: Tensor, centred: bool = True) -> Tensor:
    """Eigenvalues of C Γ W_V W_proj (theory, section 5)."""
    w = torch.diag(gamma) @ h.mT
    return torch.linalg.eigvals(w - w.mean(0) if centred else w)


@pytest.mark.parametrize("mode", MODES)
def test_a_constant_layer_norm_weight_keeps_the_interval_of_symmetric_and_the_signs_of_split(mode: str) -> None:
    gamma = torch.full((DIM,), 0.7, dtype=torch.float64)
    for form in ("symmetric", "split"):
        model = controlled(form, mode, bound="clip")
        for h in (total_of(model), *heads_of(model)):
            for sign in (1.0, -1.0):  # a negative weight turns sharpening into smoothing: Figure 3
                values = folded(h, sign * gamma) * sign * MODES[mode]
                assert values.imag.abs().max() < 1e-12
                assert values.real.min() > -1e-12
                assert form == "split" or values.real.max() <= 0.7 + 1e-12


@pytest.mark.parametrize("form", ["symmetric", "split"])
def test_any_positive_rms_norm_weight_keeps_the_signs(form: str) -> None:
    for seed in range(20):
        gamma = torch.rand(DIM, dtype=torch.float64) + 0.01
        h = total_of(controlled(form, "sharpening", seed=seed))
        values = folded(h, gamma, centred=False)
        assert values.real.max() < 1e-12
        assert values.imag.abs().max() < 1e-12
        assert values.real.min() >= float(gamma.max() * torch.linalg.eigvalsh(h).min()) - 1e-12


@pytest.mark.parametrize("form", ["symmetric", "split"])
def test_a_positive_layer_scale_keeps_the_signs_and_leaks_only_behind_a_layer_norm(form: str) -> None:
    leaks = []
    for seed in range(40):
        w = total_of(controlled(form, "sharpening", seed=seed, bound="abs")).mT
        torch.manual_seed(seed)
        scaled = w * (torch.rand(DIM, dtype=torch.float64) + 0.01)  # W_V W_proj diag(s)
        values = torch.linalg.eigvals(scaled)
        assert values.real.max() < 1e-12
        assert values.imag.abs().max() < 1e-12
        leaks.append(float(torch.linalg.eigvals(scaled - scaled.mean(0)).real.max()))
    assert max(leaks) > 1e-5


def test_varying_rms_norm_weights_can_break_the_guarantee_of_eigen() -> None:
    worst = 0.0
    for seed in range(40):
        h = total_of(controlled("eigen", "sharpening", seed=seed, bound="abs"))
        torch.manual_seed(seed)
        worst = max(worst, float(folded(h, torch.rand(DIM, dtype=torch.float64), centred=False).real.max()))
    assert worst > 0.1


@pytest.mark.parametrize(("form", "constant"), [("symmetric", False), ("split", False), ("eigen", True)])
def test_a_layer_norm_weight_can_break_the_guarantee(form: str, constant: bool) -> None:
    """Varying positive weights leak a little for symmetric H; for V Λ V⁻¹ centring alone is enough."""
    worst = 0.0
    for seed in range(40):
        h = total_of(controlled(form, "sharpening", seed=seed, bound="abs"))
        torch.manual_seed(seed)
        gamma = torch.ones(DIM, dtype=torch.float64) if constant else torch.rand(DIM, dtype=torch.float64)
        worst = max(worst, float(folded(h, gamma).real.max()))
    assert worst > (0.1 if constant else 1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_gradients_agree_with_finite_differences(form: str, bound: str) -> None:
    torch.manual_seed(0)
    theta = torch.randn(2, 5, 5, dtype=torch.float64, requires_grad=True)
    psi = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    sign = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)

    def weights(theta: Tensor, psi: Tensor) -> tuple[Tensor, Tensor]:
        return get_form(form).assemble(theta, BOUNDS[bound].to_lambda(psi, sign))

    assert torch.autograd.gradcheck(weights, (theta, psi))


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_and_its_inverse_agree_on_admissible_values(bound: str) -> None:
    row, sign = BOUNDS[bound], torch.tensor([[-1.0], [1.0]])
    values = row.nearest(torch.tensor([[-0.9, -0.2, 0.4], [-3.0, 0.5, 0.95]]), sign)
    psi = row.to_psi(values, sign)
    torch.testing.assert_close(row.to_lambda(psi, sign), values, rtol=1e-5, atol=1e-7)
    if row.signed:
        assert (sign * values >= 0).all()


@pytest.mark.parametrize("bound", [name for name, row in BOUNDS.items() if row.signed])
def test_every_bound_gives_the_sign_of_its_mode_and_keeps_its_limit(bound: str) -> None:
    row, sign = BOUNDS[bound], torch.tensor([[-1.0], [1.0]])
    signed = sign * row.to_lambda(torch.linspace(-3, 3, 13).expand(2, 13), sign)
    assert (signed >= 0).all()
    assert signed.max() > 0.9
    assert row.limit is None or signed.max() <= row.limit


@pytest.mark.parametrize("bound", BOUNDS)
def test_saturated_are_the_values_that_get_no_gradient(bound: str) -> None:
    row, sign = BOUNDS[bound], torch.tensor([[-1.0], [1.0]])
    psi = torch.linspace(-3, 3, 14).expand(2, 14).clone().requires_grad_()  # neither 0 nor ±1 is among them
    (gradient,) = torch.autograd.grad(row.to_lambda(psi, sign).sum(), psi)
    assert torch.equal(row.saturated(psi, sign), gradient == 0)
    assert bool(row.saturated(psi, sign).any()) == (bound == "clip")


def test_a_paper_initialised_layer_is_he_normal_with_small_eigenvalues() -> None:
    model = reparametrize(vit(dim=96, heads=3, depth=4), std=0.1)
    control = control_of(model)
    assert torch.linalg.cond(control.theta.detach()).min() > 10
    assert control.theta.std().item() == pytest.approx((2 / 96) ** 0.5, rel=0.02)
    assert control.psi.std().item() == pytest.approx(0.1, rel=0.15)
    assert abs(control.psi.mean().item()) < 0.02
    assert model(images()).isfinite().all()


def test_the_symmetric_form_starts_at_the_q_of_a_he_normal_matrix_and_at_condition_one() -> None:
    model = reparametrize(vit(), form="symmetric", generator=torch.Generator().manual_seed(3))
    generator = torch.Generator().manual_seed(3)
    he = torch.randn(2, DIM, DIM, generator=generator) * (2 / DIM) ** 0.5
    w_v, _ = control_of(model).weights()
    torch.testing.assert_close(w_v.double(), householder_q(he.double()), rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.linalg.cond(control_of(model).theta.detach()), torch.ones(2), rtol=1e-4, atol=0)
    torch.testing.assert_close(control_of(model).theta.detach().norm(dim=1), torch.full((2, DIM), 2**0.5))
