"""Corollary 3 on a re-parametrised attention layer, iterated 128 times; and how pre-LN takes the guarantee away."""

from __future__ import annotations

import pytest
import torch
from control.cases import MODES, heads_of, vit
from torch import Tensor

from unsmooth.control import control_of, reparametrize

TOKENS, DIM = 64, 32


def attention(x: Tensor) -> Tensor:
    w_q, w_k = (torch.randn(DIM, DIM, dtype=torch.float64) / DIM**0.5 for _ in "qk")
    return (x @ w_q @ w_k.mT @ x.mT / DIM**0.5).softmax(-1)


def log_ratio(x: Tensor) -> float:
    """log10 of ‖HFC‖/‖LFC‖ (Definition 1)."""
    low = x.mean(0).expand_as(x)
    return float(torch.log10((x - low).norm() / low.norm()))


def iterate(form: str, mode: str, norm: str, seed: int) -> tuple[float, float]:
    """log10 HFC/LFC before and after 128 layers of eq. (1) with this model's W_V and W_proj."""
    model = reparametrize(vit(seed, DIM, heads=1, depth=1).double(), mode, form=form, bound="clip")
    torch.manual_seed(seed)
    with torch.no_grad():  # (0, 1], without the 0 that belongs to neither half of the corollary
        control_of(model).psi.uniform_(0.02, 1.0).mul_(MODES[mode])
    w = heads_of(model)[0].mT
    start = x = torch.randn(TOKENS, DIM, dtype=torch.float64)
    a, gamma = attention(x), torch.rand(DIM, dtype=torch.float64)
    for _ in range(128):
        x = x + a @ (torch.layer_norm(x, (DIM,), gamma) if norm == "pre" else x) @ w
        x = x if norm == "pre" else x / x.norm()
    return log_ratio(start), log_ratio(x)


@pytest.mark.parametrize("form", ["symmetric", "eigen"])
def test_without_normalisation_every_layer_does_what_its_eigenvalues_say(form: str) -> None:
    for seed in range(5):
        before, sharpened = iterate(form, "sharpening", "none", seed)
        _, smoothed = iterate(form, "smoothing", "none", seed)
        assert smoothed < -3 < before < sharpened


def test_under_pre_norm_the_symmetric_form_sharpens_and_the_general_one_no_longer_does() -> None:
    """The bold cells of docs/theory.md, section 5: from one start, some layers V Λ V⁻¹ with Λ in [−1, 0) smooth."""
    symmetric = [iterate("symmetric", "sharpening", "pre", seed)[1] for seed in range(5)]
    general = [iterate("eigen", "sharpening", "pre", seed)[1] for seed in range(5)]
    assert min(symmetric) > 0.9
    assert min(general) < 0 < sum(symmetric) - sum(general)
