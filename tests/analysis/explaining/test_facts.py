"""What is said of a layer's weights is what dense matrices of its heads say."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from small_models import vit
from torch import Tensor, nn

from unsmooth.analysis import explain
from unsmooth.analysis.explaining.facts import WHOLE, alignment, eigenvalue_shares, layer_facts
from unsmooth.errors import WeightsError
from unsmooth.models import view
from unsmooth.theory.lemma2 import corollary3
from unsmooth.theory.projection import SpectralProjector


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    made = vit(depth=2, init_values=0.3).double()
    for block in made.blocks:
        nn.init.normal_(block.norm1.weight)
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
        nn.init.normal_(block.ls1.gamma)
    return made


def dense(model: nn.Module, layer: int, folded: bool) -> Tensor:
    """`H_h`, (head, dim, dim), with the norm's centring and weight and LayerScale inside or not."""
    block, weights = model.blocks[layer], view(model).layers[layer].weights()
    w = (weights.w_v @ weights.w_proj).detach()
    if folded:
        w = block.norm1.weight.detach()[:, None] * w * block.ls1.gamma.detach()
        w = w - w.mean(-2, keepdim=True)
    return w.mT


def row_of(rows: list[dict[str, Any]], head: int, folded: bool) -> dict[str, Any]:
    (found,) = (row for row in rows if (row["head"], row["folded"]) == (head, folded))
    return found


@pytest.mark.parametrize("folded", [False, True])
def test_rows_tell_of_each_head_and_of_their_sum(model: nn.Module, folded: bool) -> None:
    for layer in view(model).layers:
        rows = layer_facts(layer).rows
        assert [row["layer"] for row in rows] == [layer.index] * 8  # three heads and their sum, raw and folded
        heads = dense(model, layer.index, folded)
        for head, h in [(WHOLE, heads.sum(0)), *enumerate(heads)]:
            row, values = row_of(rows, head, folded), torch.linalg.eigvals(h)
            assert row["max_real"] == pytest.approx(float(values[values.abs() > 1e-9].real.max()))
            assert row["min_real"] == pytest.approx(float(values[values.abs() > 1e-9].real.min()))
            assert row["radius"] == pytest.approx(float(values.abs().max()))
            rest = h.square().sum() - values.abs().square().sum()
            assert row["departure"] == pytest.approx(float((rest / h.square().sum()).sqrt()))
            assert row["corollary3"] == corollary3(values[values.abs() > 1e-9])
        whole = torch.linalg.eig(heads.sum(0)).eigenvectors
        assert row_of(rows, WHOLE, folded)["condition"] == pytest.approx(float(torch.linalg.cond(whole)), rel=1e-6)


@pytest.mark.parametrize("folded", [False, True])
def test_the_leading_direction_grows_fastest(model: nn.Module, folded: bool) -> None:
    found = layer_facts(view(model).layers[1], folded)
    total = dense(model, 1, folded).sum(0).to(torch.complex128)
    values = torch.linalg.eigvals(total)
    # behind a norm the step is not known, and a small one grows with the real part
    fastest = values[(values.real if folded else (1 + values).abs()).argmax()]
    leading = found.mean.leading
    projector = (leading.right @ leading.left.mT).to(torch.complex128)
    torch.testing.assert_close(projector @ projector, projector)
    assert torch.linalg.matrix_rank(projector) == (1 if abs(float(fastest.imag)) < 1e-12 else 2)
    moved = (total - fastest * torch.eye(24)) @ (total - fastest.conj() * torch.eye(24)) @ projector
    assert float(moved.norm()) < 1e-9
    torch.testing.assert_close(projector @ total, total @ projector)
    assert {row["folded"] for row in found.rows} == {False, folded}


def test_shares_count_by_interval_strictly_and_by_real_part() -> None:
    values = torch.tensor([-0.5, -1.0, -1.5, 0.0, 0.2, 7.0, -0.5 + 1j, 0.5 - 1j])
    expected = {
        "negative": 2, "positive": 2, "outside": 4, "re_negative": 3, "re_positive": 3, "re_outside": 2, "complex": 2,
    }  # fmt: skip
    assert eigenvalue_shares(values) == {name: count / 8 for name, count in expected.items()}


def test_alignment_is_a_mean_over_kept_tokens() -> None:
    x = torch.tensor([[[2.0, 0.0], [0.0, 3.0], [0.0, 0.0], [-1.0, 1.0]]], dtype=torch.float64)
    direction = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    direction = SpectralProjector(direction, direction)
    assert float(alignment(x, direction, None)) == pytest.approx((1 + 0 + 0 + 0.5**0.5) / 4)
    mask = torch.tensor([[True, False, False, True]])
    assert float(alignment(x, direction, mask)) == pytest.approx((1 + 0.5**0.5) / 2)


def test_a_layer_with_nan_weights_is_named_and_so_is_the_weight() -> None:
    broken = vit(depth=3)
    with torch.no_grad():
        broken.blocks[2].attn.proj.weight[0, 0] = torch.nan
        broken.blocks[2].norm1.bias[0] = torch.inf
    with pytest.raises(WeightsError, match=r"layer 2: W_proj and bias of the norm hold NaN or infinity"):
        explain(broken, [torch.randn(1, 3, 16, 16)])
    assert len(explain(broken, [torch.randn(1, 3, 16, 16)], layers=[0, 1], spectra=0).layers) == 2


def test_worker_threads_do_not_gather_shards(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of them would do it in an order of their own in every process."""
    gathered_by = set()
    weight = model.blocks[0].norm1.weight

    def full_tensor() -> Tensor:
        gathered_by.add(threading.current_thread())
        return weight.detach()

    monkeypatch.setattr(weight, "full_tensor", full_tensor, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        explain(model, [torch.randn(1, 3, 16, 16).double()])
    finally:
        torch.set_num_threads(threads)
    assert gathered_by == {threading.main_thread()}
