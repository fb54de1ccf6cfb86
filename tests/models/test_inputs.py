"""What a batch holds: its padding is found under every name."""

from __future__ import annotations

import pytest
import torch

from unsmooth.models.inputs import padding_of


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("attention_mask", [[1, 1, 0]]),
        ("pixel_attention_mask", [[1, 1, 0]]),
        ("patch_valid", [[True, True, False]]),
        ("src_key_padding_mask", [[False, False, True]]),
        ("src_key_padding_mask", [[0.0, 0.0, float("-inf")]]),
    ],
)
def test_padding_is_found_under_every_name(name: str, values: list[list[float]]) -> None:
    padding = padding_of({name: torch.tensor(values)})
    assert padding is not None
    assert padding.tolist() == [[False, False, True]]


def test_a_mask_of_patches_leaves_room_for_the_tokens_before_them() -> None:
    padding = padding_of(({"patch_valid": torch.tensor([[True, False]])}, "target"), prefix=2)
    assert padding is not None
    assert padding.tolist() == [[False, False, False, True]]


def test_a_full_attention_matrix_says_that_there_is_no_padding() -> None:
    padding = padding_of({"attention_mask": torch.ones(1, 1, 3, 3)})
    assert padding is not None
    assert not bool(padding.any())
    assert padding_of({"attention_mask": torch.ones(1, 1, 3, 5)}) is None  # keys of a cache
