"""Which tokens are patches: those that change with the input, in every family that takes pictures, video or sound."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import VISION_CASES, every_case
from model_cases.builders import BATCH, Case
from model_cases.encoders import _YOLOS, SPEECH, TOWERS
from torch import Tensor

from unsmooth.analysis import measure
from unsmooth.analysis.policies import TokenKinds, token_mask
from unsmooth.models import hook_points, view
from unsmooth.models.forward import call

_PICTURES = ("pixel_values", "pixel_values_videos", "input_values")
AST = [case for case in SPEECH if case.name == "ast"]


def takes_pictures(case: Case) -> bool:
    batch = case.batch()
    return isinstance(batch, Tensor) or ("input_ids" not in batch and any(name in batch for name in _PICTURES))


def first_features(model: Any, batch: Any) -> Tensor:
    """What goes into the first block."""
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(view(model), ["blocks.0.pre"], seen.__setitem__):
        call(model, batch)
    return seen["blocks.0.pre"]


@every_case([case for case in (*VISION_CASES, *TOWERS, *AST) if takes_pictures(case)])
def test_patches_are_the_tokens_that_the_input_changes(case: Case) -> None:
    model, batch = case.model(), case.inputs()
    mapping = isinstance(batch, dict)
    other = {k: x + 1.0 if k in _PICTURES else x for k, x in batch.items()} if mapping else batch + 1.0
    torch.manual_seed(0)
    one = first_features(model, batch)
    torch.manual_seed(0)
    changed = (one != first_features(model, other)).any(-1)
    v = view(model)
    kinds = TokenKinds.of_batch(batch, v.prefix_tokens, frozenset(), v.model, v.suffix_tokens)
    assert torch.equal(token_mask("patches", one, kinds), changed)


@pytest.mark.parametrize("policy", ["patches", "content"])
def test_detection_tokens_at_the_end_are_left_out(policy: str) -> None:
    case = next(case for case in TOWERS if case.name == "yolos")
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    x = first_features(model, batch)
    patches = x[:, 1 : -_YOLOS["num_detection_tokens"]]
    assert patches.shape == (BATCH, 16, 32)
    unit = torch.nn.functional.normalize(patches, dim=-1)
    by_hand = ((unit @ unit.mT).sum((1, 2)) - 16) / (16 * 15)
    (moments,) = measure(model, [batch], "cosine_similarity", policy, ["blocks.0.pre"]).cells.values()
    assert moments.mean == pytest.approx(float(by_hand.mean()), rel=1e-9)
