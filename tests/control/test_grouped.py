"""Query heads that share value heads: what each form guarantees for a head, for the sum, and for the whole layer."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from control.cases import FORMS, MODES, decoder, heads_of, total_of, vit
from torch import Tensor, nn

from unsmooth.control import control_of, reparametrize
from unsmooth.control.bounds import BOUNDS
from unsmooth.control.factor import inverse, orthogonal
from unsmooth.control.forms import get_form
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models import view

#: Tall V, tall V with heads that are wider together than the model, as many value features as the width, and one group.
SHAPES: dict[str, dict[str, int]] = {
    "tall": {},
    "wide-heads": {"head_dim": 12},
    "full": {"head_dim": 16},
    "one-group": {"num_key_value_heads": 1},
}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
each_mode = pytest.mark.parametrize("mode", MODES)
exact_forms = pytest.mark.parametrize("form", ["eigen", "symmetric"])


def controlled(form: str, mode: str, seed: int = 0, **kwargs: int) -> nn.Module:
    return reparametrize(decoder(seed=seed, **kwargs), mode, form=form, std=0.5, bound="clip")


def rounding(model: nn.Module) -> float:
    condition = float(torch.linalg.cond(control_of(model).theta.detach()).max())
    return tolerance(torch.float64, 48) * condition**2


def small_products(model: nn.Module) -> tuple[Tensor, Tensor]:
    """W_proj^h W_V^h of each head, and Σ_j W_proj^ij over groups i times all W_V: H's eigenvalues but for zeros."""
    layer = view(model).layers[0]
    weights, shared = layer.weights(), layer.heads // layer.kv_heads
    w_v = weights.w_v[::shared].transpose(0, 1).flatten(1)
    summed = weights.w_proj.unflatten(0, (-1, shared)).sum(1).flatten(0, 1)
    return (weights.w_proj @ weights.w_v).detach(), (summed @ w_v).detach()


def shares(model: nn.Module) -> Tensor:
    """Λ of the first layer: group, query head, key."""
    layer = view(model).layers[0]
    return control_of(model).eigenvalues()[0].detach().unflatten(0, (layer.kv_heads, -1, layer.key_dim))


@each_shape
@each_mode
@exact_forms
def test_heads_have_their_eigenvalues_and_the_sum_has_the_sum_of_each_group(
    form: str, mode: str, shape: dict[str, int]
) -> None:
    model = controlled(form, mode, **shape)
    heads, total = small_products(model)
    wanted, atol = shares(model), rounding(model)
    torch.testing.assert_close(heads, torch.diag_embed(wanted.flatten(0, 1)), rtol=0, atol=atol)
    torch.testing.assert_close(total, torch.diag(wanted.sum(1).flatten()), rtol=0, atol=atol)
    signed = MODES[mode] * total.diagonal()
    assert signed.min() >= -atol
    assert signed.max() <= 1 + atol


@each_mode
@exact_forms
def test_the_eigenvalues_of_h_itself_are_these_and_zeros(form: str, mode: str) -> None:
    model = controlled(form, mode)
    with torch.no_grad():  # no λ = 0, where H has Jordan blocks and rounding moves its eigenvalues by √eps
        control_of(model).psi.uniform_(0.2, 1.0).mul_(MODES[mode])
    wanted = shares(model)
    zeros = torch.zeros(32, dtype=torch.float64)
    for h, values in [
        (total_of(model), wanted.sum(1).flatten()),
        *zip(heads_of(model), wanted.flatten(0, 1), strict=True),
    ]:
        expected = torch.cat([values, zeros[len(values) :]]).sort().values
        found = torch.linalg.eigvals(h)
        assert found.imag.abs().max() <= 1e-8
        torch.testing.assert_close(found.real.sort().values, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("form", "shape"), [*product(["split", "symmetric"], SHAPES.values()), ("split", {"head_dim": 24})]
)
@each_mode
def test_symmetric_forms_keep_their_signs_behind_an_rms_norm_for_every_head(
    form: str, mode: str, shape: dict[str, int]
) -> None:
    model = controlled(form, mode, **shape)
    gamma = torch.rand(32, dtype=torch.float64) + 0.01
    for h in (total_of(model), *heads_of(model)):
        torch.testing.assert_close(h, h.mT)
        values = torch.linalg.eigvals(gamma[:, None] * h.mT)
        assert values.imag.abs().max() < 1e-12
        assert (MODES[mode] * values.real).min() > -1e-12


def test_eigen_lets_the_heads_of_a_group_write_different_things_and_the_symmetric_forms_do_not() -> None:
    """A symmetric H_h writes only what its values read, so all heads of a group write in one space of k dimensions."""
    for form, rank in {"eigen": 32, "split": 16, "symmetric": 16}.items():
        w_proj = control_of(controlled(form, "smoothing")).weights(0)[1]
        assert int(torch.linalg.matrix_rank(w_proj)) <= rank
        assert (control_of(controlled(form, "smoothing")).phi is None) == (rank == 16)
    assert int(torch.linalg.matrix_rank(control_of(controlled("eigen", "smoothing")).weights(0)[1])) > 16


def test_what_heads_write_elsewhere_starts_as_large_as_what_they_write_along_v() -> None:
    control = control_of(controlled("eigen", "smoothing"))
    assert control.phi is not None
    assert float(control.phi.detach().std()) == pytest.approx(0.5 * (2 / control.dim) ** 0.5, rel=0.03)
    assert float(control.theta.detach().std()) == pytest.approx((2 / control.dim) ** 0.5, rel=0.03)


def attention(heads: int, tokens: int) -> Tensor:
    return (2 * torch.randn(heads, tokens, tokens, dtype=torch.float64)).softmax(-1)


@each_mode
@exact_forms
@pytest.mark.parametrize("grouped", [True, False])
def test_every_value_feature_evolves_by_itself_whatever_the_attention_of_the_heads(
    form: str, mode: str, grouped: bool
) -> None:
    """Z = X W_V: z_m becomes (I + Σ_j λ_jm A_ij) z_m. For one head per group this is Lemma 1, head by head."""
    plain = decoder() if grouped else vit().double()
    model = reparametrize(plain, mode, form=form, std=0.5, bound="clip")
    weights, values = view(model).layers[0].weights(), shares(model)
    groups, shared, key = values.shape
    a, x = attention(groups * shared, 6), torch.randn(6, weights.w_v.shape[1], dtype=torch.float64)
    after = x + (a @ x @ weights.w_v @ weights.w_proj).sum(0)
    for group in range(groups):
        w_v = weights.w_v[group * shared]
        for feature in range(key):
            mixed = torch.einsum("j,jmn->mn", values[group, :, feature], a[group * shared : (group + 1) * shared])
            z = (x @ w_v)[:, feature]
            expected = z + mixed @ z
            torch.testing.assert_close((after @ w_v)[:, feature], expected, rtol=0, atol=1e-9)


@each_mode
@exact_forms
@pytest.mark.parametrize("grouped", [True, False])
def test_the_exponent_of_many_heads_has_the_sign_of_the_mode(form: str, mode: str, grouped: bool) -> None:
    """γ = log ρ_H − log ρ_L: below 0 where all λ > 0; above 0 where all λ < 0, and 0 at least with H's own zeros."""
    model = reparametrize(decoder() if grouped else vit().double(), mode, form=form)
    with torch.no_grad():
        control_of(model).psi.uniform_(0.1, 1.0).mul_(MODES[mode])
    w = heads_of(model).mT
    a, eye = attention(len(w), 5), torch.eye(5, dtype=torch.float64)
    centre = eye - 1 / 5
    low = torch.linalg.eigvals(torch.eye(w.shape[-1], dtype=torch.float64) + w.sum(0)).abs().max()
    step = sum(torch.kron(centre @ one.contiguous(), head.mT.contiguous()) for one, head in zip(a, w, strict=True))
    centred = torch.kron(centre, torch.eye(w.shape[-1], dtype=torch.float64))
    high = torch.linalg.eigvals(centred + step @ centred).abs().max()
    exponent = float(high.log() - low.log())
    assert exponent < -1e-3 if mode == "smoothing" else exponent > (-1e-6 if grouped else 1e-3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bound", BOUNDS)
def test_gradients_agree_with_finite_differences(form: str, bound: str) -> None:
    theta = torch.randn(2, 7, 4, dtype=torch.float64, requires_grad=True)
    psi = torch.randn(2, 12, dtype=torch.float64, requires_grad=True)
    phi = torch.randn(2, 12, 7, dtype=torch.float64, requires_grad=True)
    sign = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)

    def weights(theta: Tensor, psi: Tensor, phi: Tensor) -> tuple[Tensor, Tensor]:
        row = get_form(form)
        return row.assemble(theta, BOUNDS[bound].to_lambda(psi, sign), 2, phi if row.outside else None)

    assert torch.autograd.gradcheck(weights, (theta, psi, phi))


@pytest.mark.parametrize("condition", [1.0, 1e3])
def test_a_tall_matrix_has_its_q_and_its_pseudo_inverse(condition: float) -> None:
    tall = torch.randn(3, 40, 12) * torch.logspace(0, -torch.tensor(condition).log10().item(), 12)
    exact = torch.linalg.pinv(tall.double())
    assert (inverse(tall).double() - exact).norm() / exact.norm() < tolerance(torch.float32, 40)
    q, r = torch.linalg.qr(tall.double())
    signs = r.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    torch.testing.assert_close(orthogonal(tall).double(), q * signs, rtol=0, atol=tolerance(torch.float32, 40))
