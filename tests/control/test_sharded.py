"""Sharded models (FSDP2, tensor parallelism), on two processes: right, or refused with the order that works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from control.cases import images, outputs, vit
from control.sharded import CHANGES, controlled, ids, llama, run_sharded, steps
from processes import run_twice

import unsmooth
from unsmooth.control import ControlMonitor, bake
from unsmooth.models import view

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("sharded")
    run_twice(run_sharded, str(folder))
    return torch.load(folder / "found.pt", weights_only=False)


@pytest.mark.parametrize("change", CHANGES)
def test_what_adds_parameters_is_refused_on_a_sharded_model(found: Any, change: str) -> None:
    said = found["refused"][change]
    assert said.startswith("OptionError: 'cls_token' is sharded already")
    assert "Change the whole model first, shard it afterwards" in said


@pytest.mark.parametrize("verb", ["bake", "copy"])
def test_baking_a_sharded_model_says_how_to_gather_it(found: Any, verb: str) -> None:
    assert "baking needs whole weights; gather them with torch.distributed" in found["refused"][verb]


def test_weights_that_are_sharded_are_refused_by_name(found: Any) -> None:
    for what in ("weights", "penalty"):
        expected = "WeightsError: layer 0: attn.qkv.weight is sharded (DTensor over 2 processes, S(0))"
        assert found["refused"][what].startswith(expected)
    assert "sharded already" in found["refused"]["assign"]


def test_control_before_sharding_trains_as_in_one_process(found: Any) -> None:
    alone = steps(controlled())
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(found["trained"]["state"][name], value, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found["trained"]["w_v"], view(alone).layers[0].weights().w_v, rtol=1e-3, atol=1e-4)
    for name, value in ControlMonitor(alone).read().as_dict().items():
        assert found["trained"]["reading"][name] == pytest.approx(value, rel=1e-2), name


def test_a_sharded_model_is_baked_by_way_of_a_whole_one(found: Any) -> None:
    alone = steps(controlled())
    expected = outputs(alone, images(2))
    plain = vit()
    plain.load_state_dict(found["trained"]["baked"])
    torch.testing.assert_close(outputs(plain, images(2)), expected, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(outputs(bake(alone), images(2)), expected)


def test_a_sharded_model_measures_and_explains_as_a_whole_one(found: Any) -> None:
    model = vit().eval()
    for cell, moments in unsmooth.measure(model, [images(4)]).cells.items():
        assert found["measured"][tuple(cell)] == pytest.approx(moments.mean, rel=1e-4), cell
    exponents = [row["exponent"] for row in unsmooth.explain(model, [images(4)]).layers]
    assert found["explained"] == pytest.approx(exponents, rel=1e-3, abs=1e-5)


def test_a_tensor_parallel_model_is_measured_and_its_heads_are_refused_by_name(found: Any) -> None:
    model, came = llama(), found["parallel"]
    for cell, moments in unsmooth.measure(model, [ids()]).cells.items():
        assert came["measured"][tuple(cell)] == pytest.approx(moments.mean, rel=1e-4), cell
    assert "self_attn.v_proj.weight is sharded (DTensor over 2 processes" in came["explain"]
    assert "eager" not in came["explain"]
    assert "is sharded already" in came["reparametrize"]
