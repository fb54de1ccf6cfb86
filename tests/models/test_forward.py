"""Calling a model: options reach it, padding is found, and its own failure becomes one clear message."""

from __future__ import annotations

import pytest
import torch
from model_cases import TEXT, TOKENS, D, _encoder, hf
from torch import nn

from unsmooth.errors import ForwardError, PointError
from unsmooth.models.forward import call, padding_of, to_model


def test_a_batch_that_the_model_cannot_take_says_shape_reason_and_what_to_do() -> None:
    model = hf("Bert", **TEXT)()
    with pytest.raises(ForwardError, match=r"input_ids \(1, 33\).*--max-length; this model has 32 positions"):
        call(model, {"input_ids": torch.ones(1, 33, dtype=torch.long)})


def test_our_own_errors_pass_unchanged() -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise PointError("ours")

    with pytest.raises(PointError, match="^ours$"):
        call(Raises(), torch.ones(1))


def test_options_among_the_inputs_reach_the_model_but_texts_do_not() -> None:
    batch = {"src": torch.randn(1, TOKENS, D), "is_causal": True, "title": "a text", "names": ["b"]}
    moved = to_model(batch, _encoder(True, True)())
    assert set(moved) == {"src", "is_causal"}
    assert moved["is_causal"] is True


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
