"""Reading labelled images from every layout, checking them, and nested class-balanced subsets."""

from __future__ import annotations

import dataclasses
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from training.conftest import CLASSES, PER_CLASS, make_images, write_parquet

from unsmooth.errors import DataError, OptionError
from unsmooth.training.tasks.images.data import ImageSet, load_images
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.subset import check_images, data_hash, keep_fraction, load_splits


def test_parquet_gives_every_image_with_its_label(tiny_data: Path) -> None:
    found = load_images(tiny_data, "train")
    pixels, labels = make_images(PER_CLASS, 0)
    wanted = {(p.transpose(2, 0, 1).tobytes(), int(y)) for p, y in zip(pixels, labels, strict=True)}
    assert {(p.numpy().tobytes(), int(y)) for p, y in zip(found.pixels, found.labels, strict=True)} == wanted
    assert found.class_names == tuple(f"class {c}" for c in range(CLASSES))


def test_shards_and_their_order_do_not_change_the_set(tiny_data: Path, tmp_path: Path) -> None:
    pixels, labels = make_images(PER_CLASS, 0)
    write_parquet(tmp_path, "train", pixels[::-1], labels[::-1], shards=3)
    a, b = load_images(tiny_data, "train"), load_images(tmp_path, "train")
    assert torch.equal(a.pixels, b.pixels)
    assert torch.equal(a.labels, b.labels)


def test_class_folders_read_the_same_images(tiny_data: Path, tmp_path: Path) -> None:
    from PIL import Image

    pixels, labels = make_images(PER_CLASS, 0)
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        path = tmp_path / "train" / f"class {label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    a, b = load_images(tiny_data, "train"), load_images(tmp_path, "train")
    assert torch.equal(a.pixels, b.pixels)
    assert a.class_names == b.class_names


def test_torchvisions_folder_is_read(tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pickle

    from torchvision.datasets import CIFAR100

    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for split, (pixels, labels) in {"train": make_images(PER_CLASS, 0), "test": make_images(4, 1)}.items():
        flat = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
        (folder / split).write_bytes(pickle.dumps({"data": flat, "fine_labels": labels.tolist()}))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"class {c}" for c in range(CLASSES)]}))
    with pytest.raises(DataError, match=r"not torchvision's CIFAR-100.*download it again"):
        load_images(tmp_path, "train")
    monkeypatch.setattr(CIFAR100, "_check_integrity", lambda self: True)  # ours are not the published files
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_: True)
    renamed = tmp_path / "elsewhere" / "my cifar"
    renamed.parent.mkdir()
    renamed.symlink_to(folder)
    monkeypatch.chdir(folder)
    for split, where in product(("train", "test"), (tmp_path, folder, renamed, Path())):
        found, expected = load_images(where, split), load_images(tiny_data, split)
        assert torch.equal(found.pixels, expected.pixels)
        assert torch.equal(found.labels, expected.labels)
        assert found.class_names == expected.class_names


def test_the_datasets_library_reads_the_same_images(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    a, b = load_images(tiny_data, "test"), load_images(f"hub:{tiny_data}", "test")
    assert torch.equal(a.pixels, b.pixels)
    assert torch.equal(a.labels, b.labels)
    with pytest.raises(DataError, match=r"cannot load test of hub:.*nowhere.*local path"):
        load_images(f"hub:{tmp_path}/nowhere", "test")


def test_missing_and_broken_data_say_what_was_expected(tmp_path: Path, tiny_data: Path) -> None:
    with pytest.raises(DataError, match="no data at .*nowhere.*HF-layout parquet"):
        load_images(tmp_path / "nowhere", "train")
    with pytest.raises(DataError, match="no train split"):
        load_images(tmp_path, "train")
    whole = next(tiny_data.glob("train-*")).read_bytes()
    (tmp_path / "train-00000-of-00001.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="truncated or not parquet"):
        load_images(tmp_path, "train")


def test_images_of_different_sizes_are_refused(tmp_path: Path) -> None:
    from PIL import Image

    for size in (8, 9):
        path = tmp_path / "train" / "a" / f"{size}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((size, size, 3), np.uint8)).save(path)
    with pytest.raises(DataError, match=r"must have one size"):
        load_images(tmp_path, "train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_images": 50}, r"expected 50 train images, found 48: is a shard missing"),
        ({"classes": 3}, r"expected train labels in 0…2, found 0…3: number the classes from 0, or --set classes=4"),
        ({"classes": 5}, r"expected 5 classes in train, found 4: no image has the label 4; --set classes=4"),
        ({"image_size": 64}, r"expected train images of 3×64×64, found 3×32×32: resize them, or --set image_size="),
        (
            {"mean": (0.4409, 0.4865, 0.5071)},
            r"expected channel means of train near .*, found .* channels in another order",
        ),
    ],
)
def test_data_that_the_recipe_does_not_mean_is_refused(
    tiny_data: Path, tiny_recipe: ImageRecipe, change: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        check_images(load_images(tiny_data, "train"), dataclasses.replace(tiny_recipe, **change), "train")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_class_that_is_missing_is_named(missing: int, tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    images = load_images(tiny_data, "test")
    kept = images.take((images.labels != missing).nonzero()[:, 0])
    wanted = rf"expected 4 classes in test, found 3: no image has the label {missing} \(class {missing}\)"
    with pytest.raises(DataError, match=wanted + "$"):
        check_images(kept, tiny_recipe, "test")
    with pytest.raises(DataError, match=rf"no image has the label {missing}$"):
        check_images(dataclasses.replace(kept, class_names=()), tiny_recipe, "test")


def test_one_class_gets_no_advice_that_would_be_refused(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    images = load_images(tiny_data, "test")
    kept = dataclasses.replace(images.take((images.labels == 0).nonzero()[:, 0]), class_names=("a",))
    with pytest.raises(DataError, match=r"found 1: no image has the label 1, 2, 3$"):
        check_images(kept, tiny_recipe, "test")


def test_labels_below_zero_are_refused(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    """As the hidden labels of a test set are written."""
    images = load_images(tiny_data, "test")
    hidden = dataclasses.replace(images, labels=images.labels - 1)
    with pytest.raises(DataError, match=r"expected test labels in 0…3, found -1…2: number the classes from 0$"):
        check_images(hidden, tiny_recipe, "test")


def test_the_hash_of_the_data_sees_one_pixel_and_one_label(tiny_data: Path) -> None:
    train, test = load_images(tiny_data, "train"), load_images(tiny_data, "test")
    pixels, labels = train.pixels.clone(), train.labels.clone()
    pixels[-1, -1, -1, -1] ^= 1
    labels[-1] = (labels[-1] + 1) % CLASSES
    others = (dataclasses.replace(train, pixels=pixels), dataclasses.replace(train, labels=labels))
    hashes = {data_hash(images, test) for images in (train, *others)} | {data_hash(train), data_hash(test, train)}
    assert len(hashes) == 5
    assert data_hash(load_images(tiny_data, "train"), test) == data_hash(train, test)


def test_a_trained_model_gets_no_advice_to_change_its_recipe(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    recipe = dataclasses.replace(tiny_recipe, test_images=50)
    with pytest.raises(DataError, match=r"expected 50 test images, found 16: evaluate on the data that the model was"):
        check_images(load_images(tiny_data, "test"), recipe, "test", remedy=False)


def test_the_means_of_few_images_may_vary_more_than_those_of_many(tiny_recipe: ImageRecipe) -> None:
    """Grey images, half of them dark: six of them hit the mean by chance, six hundred surely."""
    recipe = dataclasses.replace(tiny_recipe, classes=2, mean=(0.5, 0.5, 0.5))

    def grey(pairs: int, dark: float) -> ImageSet:
        level = torch.where(torch.arange(2 * pairs) < dark * 2 * pairs, 64, 192).to(torch.uint8)
        return ImageSet(level[:, None, None, None].expand(-1, 3, 32, 32), torch.arange(2 * pairs) % 2)

    check_images(grey(3, 2 / 3), recipe, "train")
    with pytest.raises(DataError, match=r"channel means of train near 0.5,0.5,0.5, found 0.418"):
        check_images(grey(300, 2 / 3), recipe, "train")


def test_splits_that_name_other_classes_are_refused(tmp_path: Path, tiny_recipe: ImageRecipe) -> None:
    from PIL import Image

    pixels, labels = make_images(4, 0)
    for split, name in (("train", "class"), ("test", "kind")):
        for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
            path = tmp_path / split / f"{name} {label}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)
    with pytest.raises(DataError, match=r"train and test name different classes \(only train has class 0, class 1"):
        load_splits(tmp_path, tiny_recipe)
    shutil.rmtree(tmp_path / "test")
    shutil.copytree(tmp_path / "train", tmp_path / "test")
    shutil.rmtree(tmp_path / "test" / "class 0")  # whose number the next would take: the label that lacks is another
    with pytest.raises(
        DataError, match=r"only train has class 0\).*: expected .*, class 0, class 1, class 2, class 3$"
    ):
        load_splits(tmp_path, tiny_recipe)


@given(st.floats(0.1, 1), st.floats(0.1, 1), st.integers(0, 3))
@settings(deadline=None, max_examples=30)
def test_subsets_are_balanced_and_nested(a: float, b: float, subset: int) -> None:
    small, large = sorted((a, b))
    labels = torch.arange(400) % 4
    images = ImageSet(torch.arange(400, dtype=torch.int64).view(-1, 1, 1, 1), labels)
    inner, outer = keep_fraction(images, small, subset), keep_fraction(images, large, subset)
    assert set(inner.pixels.flatten().tolist()) <= set(outer.pixels.flatten().tolist())
    assert (inner.labels.bincount(minlength=4) == round(100 * small)).all()


def test_each_subset_holds_other_images_and_the_same_ones_every_time() -> None:
    images = ImageSet(torch.arange(400, dtype=torch.int64).view(-1, 1, 1, 1), torch.arange(400) % 4)
    first, second, third = (keep_fraction(images, 0.1, subset).pixels.flatten().tolist() for subset in (0, 1, 2))
    assert first == list(range(40))  # the first of every class, as ever
    assert second[:8] == [23, 28, 33, 40, 66, 71, 74, 77]
    assert len(set(first) & set(second)) < 12
    assert len(set(third) & set(second)) < 12
    assert keep_fraction(images, 1, 5) is images


def test_fractions_outside_the_data_are_refused(tiny_data: Path) -> None:
    images = load_images(tiny_data, "train")
    with pytest.raises(OptionError, match=r"fraction must lie in \(0, 1\], got 1.5"):
        keep_fraction(images, 1.5)


def test_columns_may_have_their_other_names(tiny_data: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for file in tiny_data.glob("train-*.parquet"):
        pq.write_table(pq.read_table(file).rename_columns(["image", "label"]), tmp_path / file.name)
    a, b = load_images(tiny_data, "train"), load_images(tmp_path, "train")
    assert torch.equal(a.pixels, b.pixels)
    assert torch.equal(a.labels, b.labels)


@pytest.mark.shared
def test_the_real_cifar100_passes_its_checks(shared_data: Path) -> None:
    from unsmooth.training.tasks.images import RECIPES

    test = load_images(shared_data / "cifar100", "test")
    check_images(test, RECIPES["cifar100"], "test")
    assert test.class_names[:2] == ("apple", "aquarium_fish")
