"""Padded sound: which tokens are padding, as the models themselves see it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import every_case
from model_cases.builders import _SPEECH, BATCH, Case, _waves, hf
from model_cases.encoders import SPEECH
from torch import Tensor

from unsmooth.analysis import explain, measure
from unsmooth.errors import FeatureError
from unsmooth.models import capture_attention, hook_points, view
from unsmooth.models.forward import call
from unsmooth.models.inputs import padding_of

PADDED = [case for case in SPEECH if "attention_mask" in case.batch()]


def cut(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Waves padded after an even number of frames: releases differ in what SEW makes of a pair that is half padding."""
    mask = batch["attention_mask"].clone()
    mask[1, :140] = 1 if mask.shape[1] == 200 else mask[1, :140]
    return {**batch, "attention_mask": mask}


@every_case(PADDED)
def test_padding_is_what_no_token_attends_to(case: Case) -> None:
    model, batch = case.model(), cut(case.inputs())
    v = view(model)
    maps: dict[int, Tensor] = {}
    with torch.no_grad(), capture_attention(v, maps.__setitem__):
        call(model, batch)
    padding = padding_of(batch, v.prefix_tokens, model)
    assert padding is not None
    assert torch.equal(padding, (maps[0] < 1e-12).all(dim=(1, 2)))
    assert padding[1].any()
    assert not padding[0].any()


@every_case(PADDED)
def test_content_is_what_is_left(case: Case) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    point = "blocks.1.pre"
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(view(model), [point], seen.__setitem__):
        call(model, batch)
    padding: Any = padding_of(batch, 0, model)
    by_hand = []
    for x, left_out in zip(seen[point], padding, strict=True):
        unit = torch.nn.functional.normalize(x[~left_out], dim=-1)
        cosines = unit @ unit.mT
        n = len(unit)
        by_hand.append((cosines.sum() - n) / (n * (n - 1)))
    measured = measure(model, [batch], "cosine_similarity", "content", [point])
    (moments,) = measured.cells.values()
    assert moments.mean == pytest.approx(float(torch.stack(by_hand).mean()), rel=1e-9)


def test_padded_sound_is_explained() -> None:
    case = next(case for case in PADDED if case.name == "sew")
    found = explain(case.model(), [case.inputs()])
    assert {row["input"] for row in found.layers} == {0, 1}


def test_an_adapter_behind_the_blocks_changes_nothing() -> None:
    model = hf("Wav2Vec2", add_adapter=True, num_adapter_layers=1, output_hidden_size=32, **_SPEECH)().eval()
    mask = torch.ones(BATCH, 200, dtype=torch.long)
    mask[1, 120:] = 0
    padding: Any = padding_of({**_waves(), "attention_mask": mask}, 0, model)
    assert padding.sum(-1).tolist() == [0, 4]
    assert padding.shape == (BATCH, 9)


def test_a_model_without_a_rule_for_lengths_says_what_to_do() -> None:
    case = next(case for case in SPEECH if case.name == "moonshine")
    batch = {**case.inputs(), "attention_mask": torch.ones(BATCH, 4000, dtype=torch.long)}
    with pytest.raises(FeatureError, match="use tokens='all', or inputs of one length without a mask"):
        measure(case.model(), [batch], tokens="content")


def test_frames_are_no_token_ids() -> None:
    case = next(case for case in PADDED if case.name == "unispeech")
    with pytest.warns(UserWarning, match="holds? padding"):
        both = measure(case.model(), [case.inputs()], "cosine_similarity", ("all", "patches"), ["blocks.1.pre"])
    every, patches = both.cells.values()
    assert every.mean == patches.mean
