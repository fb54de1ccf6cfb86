"""Text with pictures behind it: padding is that of the text, and a picture's own class token is no content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_cases import every_case
from model_cases.builders import BATCH, TEXT, TOKENS, Case, D, hf, padded
from model_cases.encoders import ENCODER_CASES
from torch import Tensor

from unsmooth.analysis import explain, measure
from unsmooth.errors import FeatureError
from unsmooth.models import capture_attention, hook_points, view
from unsmooth.models.forward import call


def _with_regions() -> dict[str, Tensor]:
    return {**padded(), "visual_embeds": torch.randn(BATCH, 5, D), "visual_attention_mask": torch.ones(BATCH, 5)}


CASES = [
    *(case for case in ENCODER_CASES if case.name in ("layoutlmv3-picture", "vilt")),
    Case("visual-bert-regions", "hf-tapas", hf("VisualBert", visual_embedding_dim=D, **TEXT), _with_regions),
]
POINT = "blocks.1.pre"


def _cosine(model: Any, batch: Any, kept: Callable[[int], list[Tensor]]) -> float:
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(view(model), [POINT], seen.__setitem__):
        call(model, batch)
    values = []
    for x, keep in zip(seen[POINT], kept(seen[POINT].shape[1]), strict=True):
        unit = torch.nn.functional.normalize(x[keep], dim=-1)
        n = len(unit)
        values.append(float(((unit @ unit.mT).sum() - n) / (n * (n - 1))))
    return sum(values) / len(values)


@every_case(CASES)
def test_what_no_token_attends_to_is_the_padding_of_the_text(case: Case) -> None:
    model, batch = case.model(), case.inputs()
    maps: dict[int, Tensor] = {}
    with torch.no_grad(), capture_attention(view(model), maps.__setitem__):
        call(model, batch)
    unseen = (maps[0] < 1e-12).all(dim=(1, 2))
    assert [row.nonzero().flatten().tolist() for row in unseen] == [[], [4, 5, 6]]


@every_case(CASES)
def test_content_is_words_and_patches(case: Case) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    special = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    special[:, 0] = 1
    after = 0 if case.name == "visual-bert-regions" else 1  # the picture's own class token

    def kept(tokens: int) -> list[Tensor]:
        picture = list(range(TOKENS + after, tokens))
        return [torch.tensor([*range(1, TOKENS), *picture]), torch.tensor([*range(1, 4), *picture])]

    torch.manual_seed(0)  # ViLT draws the order of its patches
    given = measure(model, [{**batch, "special_tokens_mask": special}], "cosine_similarity", "content", [POINT])
    torch.manual_seed(0)
    (moments,) = given.cells.values()
    assert moments.mean == pytest.approx(_cosine(model, batch, kept), rel=1e-6)


@every_case(CASES)
def test_it_is_explained(case: Case) -> None:
    found = explain(case.model(), [case.inputs()], spectra=0)
    assert len(found.layers) == 2 * case.layers


@pytest.mark.parametrize("name", ["pixel_mask", "visual_attention_mask"])
def test_padding_in_the_picture_is_not_guessed(name: str) -> None:
    case = CASES[-1] if name == "visual_attention_mask" else next(case for case in CASES if case.name == "vilt")
    mask = torch.ones(BATCH, 16, 16) if name == "pixel_mask" else torch.ones(BATCH, 5)
    mask[1, 3:] = 0
    with pytest.raises(FeatureError, match=r"the inputs describe \(2, 7\)"):
        measure(case.model(), [{**case.inputs(), name: mask}], tokens="content", special_ids=[])
