"""Dropping a sink takes one direction out of what one MLP writes, and nothing else; an edit says what it did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from control.cases import images, vit
from model_cases import CASES, Case, every_case
from torch import Tensor, nn

import unsmooth
from unsmooth.control.sink import find_sink
from unsmooth.errors import DataError, OptionError, WeightsError
from unsmooth.metrics import hfc_lfc_ratio
from unsmooth.models import view
from unsmooth.models.forward import call
from unsmooth.models.hooks import hook_points

# LayerScale as a parameter of the block, Conv1D, tokens first, a block that adds in place, one set of weights for all
SHAPES = ("timm-beit", "gpt2", "torch-pre-token-first", "falcon-7b", "albert")
X = images(3, dtype=torch.float64)


def planted(scaled: bool) -> tuple[nn.Module, Tensor]:
    """A model whose layer 1 writes an enormous vector to the class token; its direction."""
    model = vit(depth=3, init_values=0.5 if scaled else None).double().eval()
    u = torch.nn.functional.normalize(torch.randn(24, dtype=torch.float64), dim=0)
    with torch.no_grad():
        model.cls_token.zero_()[..., 0] = 50.0  # type: ignore[operator]
        mlp = model.blocks[1].mlp  # type: ignore[index]
        mlp.fc1.weight[0] = 0  # fires for the class token alone
        mlp.fc1.weight[0, 0], mlp.fc1.bias[0] = 5.0, -10.0
        scale = torch.linspace(0.2, 1, 24, dtype=torch.float64) if scaled else torch.ones(24, dtype=torch.float64)
        if scaled:
            model.blocks[1].ls2.gamma.copy_(scale)  # type: ignore[index]
        mlp.fc2.weight[:, 0] = 1000 * u / scale
        mlp.fc2.bias.normal_()
    return model, u


def written(model: nn.Module, layer: int, batch: Any = X) -> Tensor:
    seen: list[Tensor] = []
    with torch.no_grad(), hook_points(view(model), [f"blocks.{layer}.mlp"], lambda _, x: seen.append(x.clone())):
        call(model, batch)
    return seen[0]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("strength", [1.0, 0.5])
def test_the_mlp_that_makes_it_writes_nothing_in_its_direction(scaled: bool, strength: float) -> None:
    model, u = planted(scaled)
    sink = find_sink(model, [X])
    assert sink.layer == 1
    assert sink.times > 20
    assert abs(float(sink.direction @ u)) > 0.99
    before, state = written(model, 1), {k: v.clone() for k, v in model.state_dict().items()}
    done = unsmooth.edit(model, drop_sink=[X], strength=strength)
    after = written(model, 1)
    along = sink.direction
    torch.testing.assert_close(after, before - strength * (before @ along)[..., None] * along, rtol=0, atol=1e-9)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, state[name])}
    assert changed == {"blocks.1.mlp.fc2.weight", "blocks.1.mlp.fc2.bias"}
    assert "sink dropped, written by the MLP of layer 1" in repr(done)
    assert done.frame()["layer"].tolist() == [1]
    done.undo()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@every_case([case for case in CASES if case.name in SHAPES])
def test_families_of_every_shape(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.control.sink.FACTOR", 0.0)
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    sink = find_sink(model, [batch])
    unsmooth.edit(model, drop_sink=[batch])
    assert float((written(model, sink.layer, batch) @ sink.direction).abs().max()) < 1e-8


@every_case([case for case in CASES if case.name in ("mixtral", "gemma2", "timm-respost")])
def test_a_sink_that_no_one_matrix_writes_is_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several experts, or a norm behind the MLP."""
    monkeypatch.setattr("unsmooth.control.sink.FACTOR", 0.0)
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(WeightsError, match="no change of one matrix drops this sink"):
        unsmooth.edit(model, drop_sink=[batch])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_without_a_sink_is_left_alone() -> None:
    with pytest.raises(DataError, match=r"no sink to drop: the longest vector .* expected 8 or more"):
        unsmooth.edit(vit(), drop_sink=[images()])
    with pytest.raises(DataError, match="no batch to find a sink in"):
        unsmooth.edit(vit(), drop_sink=[])
    with pytest.raises(OptionError, match="an edit of its own"):
        unsmooth.edit(vit(), drop_sink=[images()], flip=True)


def test_an_edit_tells_smoothness_and_loss_before_and_after() -> None:
    model = vit().double().eval()

    def loss(m: nn.Module) -> Tensor:
        return m(X).square().mean(1)

    def ratio() -> float:
        seen: list[Tensor] = []
        with torch.no_grad(), hook_points(view(model), ["blocks.1.post"], lambda _, x: seen.append(x)):
            model(X)
        return float(hfc_lfc_ratio(seen[0]).mean())

    expected = ratio(), float(loss(model).mean().detach())
    done = unsmooth.edit(model, scale=3.0, data=[X[:2], X[2:]], loss=loss)
    assert (done.before["hfc_lfc"], done.before["loss"]) == pytest.approx(expected)
    assert (done.after["hfc_lfc"], done.after["loss"]) == pytest.approx((ratio(), float(loss(model).mean().detach())))
    assert f"loss {expected[1]:.4g} →" in repr(done)
    done.go(0.0)
    assert ratio() == pytest.approx(expected[0])
    with pytest.raises(OptionError, match=r"share 1\.5: expected a number from 0"):
        done.go(1.5)
    done.undo()
    with pytest.raises(OptionError, match="edit the model again"):
        done.go(1.0)
