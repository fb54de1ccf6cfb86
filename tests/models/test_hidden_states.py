"""A second opinion on the stream: what Hugging Face itself returns as hidden states."""

from __future__ import annotations

import pytest
import torch
from model_cases import CASES, Case, every_case
from model_cases.decoders import MEASURED_CASES
from torch import Tensor

from unsmooth.models import hook_points

HUGGING_FACE = [case for case in CASES if case.family.startswith("hf-") and not case.name.startswith("albert-groups")]
HUGGING_FACE += MEASURED_CASES


@every_case(HUGGING_FACE)
def test_the_stream_is_what_hugging_face_returns_as_hidden_states(case: Case) -> None:
    v, inputs = case.seen(), case.inputs()
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__):
        torch.manual_seed(0)
        output = v.model(**inputs, output_hidden_states=True)
    states = getattr(output, "hidden_states", None) or getattr(output, "encoder_hidden_states", None)
    if states is None:
        pytest.skip("this release returns no hidden states here")
    assert len(states) == len(v.layers) + 1
    for i, state in enumerate(states[:-1]):
        assert torch.equal(state, seen[f"blocks.{i}.pre"])
    last = [seen[name] for name in (f"blocks.{len(v.layers) - 1}.post", "final_norm") if name in seen]
    assert any(torch.equal(states[-1], x) for x in last)
