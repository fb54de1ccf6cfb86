"""What differs between a recipe's model and timm's own."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from unsmooth.errors import OptionError
from unsmooth.sources import load_model
from unsmooth.training.tasks.images.model import build_model, save_model
from unsmooth.training.tasks.images.recipe import RECIPES

pytest.importorskip("timm")
SHORT = RECIPES["imagenet-90"].override(["image_size=32", "patch_size=8", "width=48", "heads=3", "depth=1"])


def test_positions_of_the_short_recipe_are_waves_that_are_not_learned() -> None:
    """Beyer et al.'s: ω = 10,000^(−k/(d/4−1)); sine and cosine of x, then of y."""
    model = build_model(SHORT, seed=0)
    assert not model.pos_embed.requires_grad
    assert all(p.requires_grad for name, p in model.named_parameters() if name != "pos_embed")
    x, y, k = 3, 2, 5
    angles = [at / 10_000 ** (k / 11) for at in (x, y)]
    expected = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
    assert model.pos_embed[0, 4 * y + x, k::12].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_class_token_has_no_place_among_the_waves() -> None:
    model = build_model(SHORT.override(["pool=token"]), seed=0)
    assert model.pos_embed[0, 0].eq(0).all()
    assert torch.equal(model.pos_embed[:, 1:], build_model(SHORT, seed=0).pos_embed)


def test_waves_need_a_place_to_be_added_and_four_numbers_each() -> None:
    with pytest.raises(OptionError, match="a width that is a multiple of 4, got 6"):
        SHORT.override(["width=6"])
    model = build_model(SHORT.override(["positions=learned"]), seed=0)
    assert model.pos_embed.requires_grad


def test_a_model_that_averages_tokens_normalises_them_first_and_is_read_again(tmp_path: Path) -> None:
    model = build_model(SHORT, seed=0).eval()
    image = torch.randn(2, 3, 32, 32)
    normal = model.norm(model.blocks(model.patch_embed(image) + model.pos_embed))
    torch.testing.assert_close(model(image), model.head(normal.mean(1)))
    save_model(model, tmp_path, SHORT, {"variant": "plain"}, half=False)
    torch.testing.assert_close(load_model(str(tmp_path)).model(image), model(image))
