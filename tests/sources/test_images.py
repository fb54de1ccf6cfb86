"""Images reach the model as its own preprocessing would have made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_cases.builders import VISION, hf
from sources.opened import HALF, IMAGES, Loaded, batches

from unsmooth.errors import DataError
from unsmooth.sources import ImageInput, load_model
from unsmooth.sources.images import to_tensor

Image = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vit")
    hf("ViT", **VISION)().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("processor", "options"),
    [
        ("ViTImageProcessor", {}),
        ("ViTImageProcessor", {"do_normalize": False}),
        ("DeiTImageProcessor", {}),
        ("BeitImageProcessor", {}),
        ("BitImageProcessor", {"size": {"shortest_edge": 256}}),
        ("CLIPImageProcessor", {}),
        ("SiglipImageProcessor", {}),
    ],
)
def test_an_image_is_made_ready_as_hugging_faces_processor_does(
    processor: str, options: dict[str, Any], vit: Path
) -> None:
    import transformers
    from PIL import Image

    smooth = np.random.default_rng(0).integers(0, 255, (12, 17, 3), dtype=np.uint8)
    image = Image.fromarray(smooth).resize((331, 250), Image.Resampling.BICUBIC)
    make = getattr(transformers, processor)(**options)
    make.save_pretrained(vit)
    expected = make(image, return_tensors="pt")["pixel_values"][0]
    found = to_tensor(image, load_model(f"hf:{vit}").images)
    torch.testing.assert_close(found, expected, atol=0.04, rtol=0)  # they round to whole grey levels


@pytest.mark.parametrize(
    ("kind", "squash"), [("ViTFeatureExtractor", True), ("DeiTFeatureExtractor", True), ("CLIPFeatureExtractor", False)]
)
def test_the_one_number_of_an_old_file_means_what_it_meant(kind: str, squash: bool, vit: Path) -> None:
    old = {"size": 20, "crop_size": 16, "do_center_crop": True, "feature_extractor_type": kind, "resample": 2}
    (vit / "preprocessor_config.json").write_text(json.dumps(old))
    assert load_model(f"hf:{vit}").images == ImageInput(16, interpolation="bilinear", crop=0.8, squash=squash)


@pytest.mark.parametrize("mode", ["center", "squash"])
@pytest.mark.parametrize("crop", [0.9, 0.875, 224 / 232, 1.0])
@pytest.mark.parametrize("size", [(500, 333), (301, 1001), (225, 224), (37, 53), (248, 248)])
def test_an_image_is_cut_to_the_pixel_as_timm_cuts_it(size: tuple[int, int], crop: float, mode: str) -> None:
    from PIL import Image
    from timm.data import create_transform

    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    how = {"interpolation": "bicubic", "crop_pct": crop, "crop_mode": mode}
    expected = create_transform((3, 224, 224), mean=mean, std=std, **how)
    image = Image.fromarray(pixels)
    found = to_tensor(image, ImageInput(224, mean, std, "bicubic", crop, mode == "squash"))
    torch.testing.assert_close(found, expected(image), atol=1e-5, rtol=0)


@pytest.mark.parametrize("size", [(6000, 90), (77, 9000), (5000, 5001)])
@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_only_what_is_kept_is_scaled_to_the_same_pixels(
    size: tuple[int, int], crop: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from PIL import Image

    from unsmooth.sources import images

    pixels = np.random.default_rng(0).integers(0, 255, (size[1] // 10, size[0] // 10, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)
    spec = ImageInput(64, (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255), crop=crop)
    whole = to_tensor(image, spec)
    monkeypatch.setattr(images, "MOST_PIXELS", 0)
    assert (to_tensor(image, spec) - whole).abs().max() <= 2  # grey levels


def test_the_centre_is_cut_as_the_crop_share_says(tmp_path: Path) -> None:
    image = Image.new("RGB", (16, 16), (0, 0, 0))
    image.paste((255, 255, 255), (4, 4, 12, 12))
    image.save(tmp_path / "x.png")
    whole = batches(tmp_path, Loaded("images", images=ImageInput(8, HALF, HALF, crop=0.5)))[0]
    assert whole.unique().tolist() == [1.0]  # 8 of 16 pixels: only the white square


def test_images_keep_their_proportions(tmp_path: Path) -> None:
    image = Image.new("RGB", (32, 16), (0, 0, 0))
    image.paste((255, 255, 255), (8, 0, 24, 16))
    for angle in (0, 90):
        image.rotate(angle, expand=True).save(tmp_path / "x.png")
        assert batches(tmp_path, IMAGES)[0].min() > 0.5  # the white square in the middle, but for its blurred edge


def test_sixteen_bit_gray_is_scaled_not_cut_off(tmp_path: Path) -> None:
    for value, expected in ((0, -1.0), (65535, 1.0), (257 * 51, -0.6)):
        Image.fromarray(np.full((8, 8), value, dtype=np.uint16)).save(tmp_path / "x.png")
        pixels = batches(tmp_path / "x.png", IMAGES)[0]
        assert torch.allclose(pixels, torch.full_like(pixels, expected), atol=1e-6)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "LA", "CMYK", "1"])
def test_every_eight_bit_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    suffix = "tif" if mode == "CMYK" else "png"
    Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode).save(tmp_path / f"x.{suffix}")
    pixels = batches(tmp_path, IMAGES)[0]
    assert torch.allclose(pixels, torch.ones_like(pixels), atol=1e-6)


def test_pixels_of_unknown_range_are_refused(tmp_path: Path) -> None:
    Image.new("F", (8, 8), 0.5).save(tmp_path / "x.tif")
    with pytest.raises(DataError, match=r"x\.tif is not a readable image \(it has pixels of 32 bits.*8 or 16 bits"):
        batches(tmp_path, IMAGES)
