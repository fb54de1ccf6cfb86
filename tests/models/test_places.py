"""A row that names a place which is not in the model is refused, with the path tried and what is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from model_cases import CASES

from unsmooth.errors import UnknownModelError
from unsmooth.models import into, out, register_family, view
from unsmooth.models.family import Family
from unsmooth.models.registry import _FAMILIES

BY_NAME = {case.name: case for case in CASES}


@pytest.fixture(autouse=True)
def _families() -> Iterator[None]:
    kept: list[Family] = list(_FAMILIES)
    yield
    _FAMILIES[:] = kept


@pytest.mark.parametrize(
    ("changes", "attention", "message"),
    [
        (
            {"points": {"norm1": out("ln_a")}},
            {},
            r"'timm-vit': its row takes the point 'norm1' at 'ln_a', which layer 0 \(Block\) does not have\. Block has "
            r"norm1, attn, .*Correct the row",
        ),
        (
            {"points": {"mid": (into("ln_2"), into("norm_2"))}},
            {},
            r"the point 'mid' at 'ln_2' or 'norm_2', which layer 0",
        ),
        ({"points": {"attn": out("attn.out")}}, {}, r"at 'attn\.out'.* 'attn' \(Attention\) has qkv, "),
        ({"embed": out("tokens")}, {}, r"takes embed at 'tokens', which the model \(VisionTransformer\) does not have"),
        ({}, {"module": "attention"}, r"the attention's module at 'attention', which layer 0"),
        ({}, {"heads": "attn.no_heads"}, r"the attention's heads at 'attn\.no_heads'.*'attn' \(Attention\) has qkv"),
        ({}, {"norm": "ln"}, r"the attention's norm at 'ln'"),  # it would not have been folded, without a word
    ],
)
def test_a_row_that_names_a_missing_place_is_refused(
    changes: dict[str, Any], attention: dict[str, Any], message: str
) -> None:
    case = BY_NAME["timm-vit"]
    row = view(case.model()).family
    assert row.attention is not None
    register_family(replace(row, **changes, attention=replace(row.attention, **attention)))
    with pytest.raises(UnknownModelError, match=message):
        view(case.model())


def test_one_candidate_that_exists_is_enough() -> None:
    case = BY_NAME["timm-vit"]
    row = view(case.model()).family
    register_family(replace(row, points={**row.points, "norm1": (out("ln_a"), out("norm1"))}))
    assert "blocks.0.norm1" in view(case.model()).points
