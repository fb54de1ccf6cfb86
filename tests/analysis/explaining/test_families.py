"""Decoders, parallel blocks and fused weights are explained exactly: the linear map is what was measured."""

from __future__ import annotations

import pytest
import torch
from model_cases import CASES, DECODER_CASES, Case, every_case
from model_cases.decoders import MEASURED_CASES, SINK

from unsmooth.analysis import explain
from unsmooth.errors import WeightsError
from unsmooth.models import hook_points, view
from unsmooth.models.forward import call

_OTHERS = ("timm-parallel", "timm-parallel-scaled", "deberta")
LATER = [case for case in CASES if (case in DECODER_CASES and not case.sink) or case.name in _OTHERS]


@every_case(LATER)
def test_the_predicted_step_of_attention_is_the_measured_one(case: Case) -> None:
    frame = explain(case.model(torch.float64), [case.inputs(torch.float64)], spectra=0).frame()
    # Norms, softmax and rotations that Hugging Face computes in float32 whatever the model's dtype.
    allowed = 1e-12 if case.family.startswith("timm") else 1e-6
    assert len(frame) == 2 * case.layers
    assert (frame["frozen_hfc"] - frame["measured_hfc"]).abs().max() < allowed
    assert (frame["frozen_ratio"] - frame["measured_ratio"]).abs().max() < allowed


def test_a_softmax_with_a_sink_is_not_explained() -> None:
    """GPT-OSS: A·1 < 1, and the theory needs A·1 = 1."""
    with pytest.raises(
        WeightsError, match=r"rows must sum to 1 .* because of self_attn\.sinks: .* measured, not explained"
    ):
        explain(SINK.model(), [SINK.inputs()])


@every_case(MEASURED_CASES)
def test_attention_that_is_no_sum_over_heads_is_not_explained(case: Case) -> None:
    with pytest.raises(WeightsError, match="stands between the attention's input and W_proj"):
        explain(case.model(), [case.inputs()])


@pytest.mark.parametrize("name", ["gpt-neox", "timm-parallel-scaled"])
def test_the_step_of_attention_in_a_parallel_block_starts_at_the_block_input(name: str) -> None:
    """pre → pre + attn: neither the sum with the MLP nor the MLP's output has a part in it."""
    case = next(case for case in CASES if case.name == name)
    model = case.model(torch.float64)
    inputs = {"input_ids": case.inputs()["input_ids"]} if name == "gpt-neox" else case.inputs(torch.float64)
    frame = explain(model, [inputs], spectra=0).frame().set_index(["layer", "input"])
    v, seen = view(model), {}
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__):
        call(model, inputs)
    for layer, sample in frame.index:
        pre, attn = (seen[f"blocks.{layer}.{point}"][sample] for point in ("pre", "attn"))
        gain = _high(pre + attn) / _high(pre)
        assert frame["measured_hfc"][layer, sample] == pytest.approx(
            float(gain.log()), abs=1e-6
        )  # eager softmax: float32


def _high(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(0)).norm()
