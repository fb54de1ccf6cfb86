"""Sharded models (FSDP2, tensor parallelism), on two to four processes: right, or refused with the order that works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from control.cases import images, outputs, vit
from control.sharded import CHANGES, MORE, controlled, ids, llama, run_sharded, steps, watched
from processes import Aborted, run_twice
from versions import NEEDS_FSDP_ON_A_CPU

import unsmooth
from unsmooth.control import ControlMonitor, bake, spectral_penalty
from unsmooth.models import view

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")


class Found(dict[str, Any]):
    """What came of each part in two processes, which are started when the first test asks for it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self.factory = factory

    def __missing__(self, part: str) -> Any:
        folder = self.factory.mktemp(part)
        try:
            run_twice(run_sharded, str(folder), part, processes=MORE.get(part, 2))
        except Aborted as error:
            self[part] = error
        else:
            self[part] = torch.load(folder / "found.pt", weights_only=False)
        return self[part]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return Found(tmp_path_factory)


@pytest.fixture
def found(parts: Found) -> Callable[[str], Any]:
    def of(part: str) -> Any:
        if isinstance(parts[part], Aborted):
            pytest.skip(f"two processes cannot work together here: {parts[part]}")
        return parts[part]

    return of


@pytest.mark.parametrize("change", CHANGES)
def test_what_adds_parameters_is_refused_on_a_sharded_model(found: Callable[[str], Any], change: str) -> None:
    said = found("refused")[change]
    assert said.startswith("OptionError: 'cls_token' is sharded already")
    assert "Change the whole model first, shard it afterwards" in said


@pytest.mark.parametrize("verb", ["bake", "copy"])
def test_baking_a_sharded_model_says_how_to_gather_it(found: Callable[[str], Any], verb: str) -> None:
    assert "baking needs whole weights; gather them with torch.distributed" in found("refused")[verb]


def test_writing_into_shards_is_refused_by_name(found: Callable[[str], Any]) -> None:
    expected = "WeightsError: layer 0: attn.qkv.weight is sharded (DTensor over 2 processes, S(0))"
    assert found("refused")["write"].startswith(expected)
    assert "sharded already" in found("refused")["assign"]


@NEEDS_FSDP_ON_A_CPU
def test_control_before_sharding_trains_as_in_one_process(found: Callable[[str], Any]) -> None:
    alone = steps(controlled())
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(found("trained")["state"][name], value, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found("trained")["w_v"], view(alone).layers[0].weights().w_v, rtol=1e-3, atol=1e-4)
    for name, value in ControlMonitor(alone).read().as_dict().items():
        assert found("trained")["reading"][name] == pytest.approx(value, rel=1e-2), name


@NEEDS_FSDP_ON_A_CPU
def test_a_sharded_model_is_baked_by_way_of_a_whole_one(found: Callable[[str], Any]) -> None:
    alone = steps(controlled())
    expected = outputs(alone, images(2))
    plain = vit()
    plain.load_state_dict(found("trained")["baked"])
    torch.testing.assert_close(outputs(plain, images(2)), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(outputs(bake(alone), images(2)), expected)


@pytest.mark.parametrize("kind", ["fsdp", "styles", "plan", *MORE])
@NEEDS_FSDP_ON_A_CPU
def test_several_processes_find_what_one_does(found: Callable[[str], Any], kind: str) -> None:
    pictures = kind.startswith(("fsdp", "ddp"))
    model, batch = (vit().eval(), images(4)) if pictures else (llama(MORE.get(kind, 2)), ids())
    came = found(kind)
    for cell, moments in unsmooth.measure(model, [batch]).cells.items():
        assert came["measured"][tuple(cell)] == pytest.approx(moments.mean, rel=1e-4), cell
    exponents = [row["exponent"] for row in unsmooth.explain(model, [batch]).layers]
    assert came["explained"] == pytest.approx(exponents, rel=1e-3, abs=1e-5)
    shares = unsmooth.attribute(model, [batch]).frame()["mean"].tolist()
    assert came["attributed"] == pytest.approx(shares, rel=1e-3, abs=1e-5)
    assert torch.equal(came["w_proj"], view(model).layers[1].weights().w_proj)
    assert pictures or "is sharded already" in came["reparametrize"]


@pytest.mark.parametrize("kind", ["fsdp", "styles", "plan", *MORE])
@NEEDS_FSDP_ON_A_CPU
def test_a_training_on_several_processes_is_watched_and_not_changed(found: Callable[[str], Any], kind: str) -> None:
    pictures = kind.startswith(("fsdp", "ddp"))
    model, batch = (vit(), images(4)) if pictures else (llama(MORE.get(kind, 2)), ids())
    alone = watched(model, None, batch, 2)
    readings = found(kind)["watched"]
    came = readings[2]
    assert list(came["readings"]) == [0, 2]
    for step, cells in alone["readings"].items():
        for cell, mean in cells.items():
            assert came["readings"][step][cell] == pytest.approx(mean, rel=1e-3), (step, cell)
    for name, value in readings[None]["state"].items():
        assert torch.equal(came["state"][name], value), name


def test_a_penalty_reaches_the_shards(found: Callable[[str], Any]) -> None:
    model: Any = vit()
    penalty = spectral_penalty(model, "sharpening")
    penalty.backward()
    torch.testing.assert_close(found("penalised")["penalty"], penalty.detach())
    torch.testing.assert_close(found("penalised")["gradient"], model.blocks[0].attn.qkv.weight.grad)
