"""Folders and shards as people keep them: archives beside them, empty classes, dead links, somebody else's files."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from unsmooth.errors import DataError
from unsmooth.training.tasks.images.data import load_images
from unsmooth.training.tasks.images.encoded import Files, Tars, open_encoded

PNG = pytest.importorskip("PIL.Image").new("RGB", (8, 8))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            (tmp_path / split / name).mkdir(parents=True)
            PNG.save(tmp_path / split / name / "1.png")
    return tmp_path


def write_tar(path: Path, **files: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as shard:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.replace("_", "."))
            entry.size = len(content)
            shard.addfile(entry, io.BytesIO(content))


def test_imagenets_own_archives_beside_the_folders_are_not_read(folder: Path) -> None:
    """torchvision's layout: one archive holds a tar a class, the other images without labels."""
    write_tar(folder / "ILSVRC2012_img_train.tar", n01440764_tar=b"")
    write_tar(folder / "ILSVRC2012_img_val.tar", ILSVRC2012val_JPEG=b"x")
    for split in ("train", "test"):
        found = open_encoded(folder, split)
        assert isinstance(found, Files)
        assert found.class_names == ("ant", "bee")


@pytest.mark.parametrize("name", ["pets-train-01", "pets_train_01", "train.01", "train01", "Train-1", "train/1"])
def test_shards_are_found_by_a_word_of_their_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))
    write_tar(tmp_path / "data" / f"{name}.tar", a_png=b"x", a_cls=b"1")
    write_tar(tmp_path / "data" / "pretraining-1.tar", a_png=b"x")
    write_tar(tmp_path / "data" / "validation-1.tar", a_png=b"x")
    found = open_encoded(tmp_path / "data", "train")
    assert isinstance(found, Tars)
    assert found.labels.tolist() == [1]


def test_a_cache_that_cannot_be_written_costs_time_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))
    write_tar(tmp_path / "train-1.tar", a_png=b"x", a_cls=b"1")
    with pytest.warns(UserWarning, match=r"index of 1 tar shards is made anew at every start.*UNSMOOTH_CACHE"):
        assert open_encoded(tmp_path, "train").labels.tolist() == [1]


@pytest.mark.parametrize("read", [load_images, open_encoded])
def test_an_empty_class_folder_is_named(read: Callable[[Path, str], object], folder: Path) -> None:
    (folder / "train" / "lost+found").mkdir()
    with pytest.raises(DataError, match=r"a class folder holds no images \(lost\+found in .*: fill it, or remove it"):
        read(folder, "train")
    for number in range(5):
        (folder / "train" / f"x{number}").mkdir()
    with pytest.raises(DataError, match=r"6 class folders hold no images \(lost\+found, x0, x1, x2, … in"):
        read(folder, "train")


def test_a_link_that_leads_nowhere_is_an_image_that_cannot_be_read(folder: Path) -> None:
    (folder / "train" / "ant" / "2.png").symlink_to(folder / "gone.png")
    found = open_encoded(folder, "train")
    assert len(found) == 3
    assert found.read([1]) == [None]


def test_files_of_another_user_are_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))
    write_tar(folder / "shards" / "train-1.tar", a_png=b"x", a_cls=b"1")

    def locked(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", locked)
    with pytest.raises(DataError, match=r"ant cannot be read \(permission denied\): make it readable"):
        Files(folder / "train")
    monkeypatch.setattr(tarfile, "open", locked)
    with pytest.raises(DataError, match=r"train-1.tar cannot be read \(permission denied\): make it readable"):
        Tars([folder / "shards" / "train-1.tar"])


@pytest.mark.parametrize("read", [load_images, open_encoded])
def test_a_hub_without_a_name_is_told_what_to_name(read: Callable[[str, str], object]) -> None:
    with pytest.raises(DataError, match="hub: names no data set: expected one of the Hugging Face hub"):
        read("hub:", "train")


@pytest.fixture
def unzipped(tmp_path: Path) -> Path:
    """Tiny-ImageNet's own layout: images a folder further down, classes of the validation set in a file, a test set."""
    for colour, name in ((10, "n02"), (200, "n01")):
        home = tmp_path / "train" / name / "images"
        home.mkdir(parents=True)
        PNG.point(lambda _, colour=colour: colour).save(home / f"{name}_0.png")
        (home.parent / f"{name}_boxes.txt").write_text(f"{name}_0.png\t0\t0\t7\t7\n")
    for split in ("val", "test"):
        home = tmp_path / split / "images"
        home.mkdir(parents=True)
        for number, colour in enumerate((200, 10, 200)):
            PNG.point(lambda _, colour=colour: colour).save(home / f"{split}_{number}.png")
    lines = [f"val_{number}.png\t{name}\t0\t0\t7\t7" for number, name in enumerate(("n01", "n02", "n01"))]
    (tmp_path / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_tiny_imagenet_is_read_as_it_is_unzipped(unzipped: Path) -> None:
    for split, counts in (("train", [1, 1]), ("test", [2, 1])):
        found = open_encoded(unzipped, split)
        assert found.class_names == ("n01", "n02")
        assert found.labels.bincount().tolist() == counts
        assert None not in found.read(range(len(found)))
        images = load_images(unzipped, split)
        assert images.class_names == ("n01", "n02")
        colours = {0: 200, 1: 10}
        assert images.pixels[:, 0, 0, 0].tolist() == [colours[label] for label in images.labels.tolist()]


def test_a_test_set_without_classes_is_no_split(unzipped: Path) -> None:
    (unzipped / "val" / "val_annotations.txt").unlink()
    for read, name in ((load_images, "test"), (open_encoded, "validation")):
        with pytest.raises(DataError, match=f"no {name} split"):
            read(unzipped, "test")


def test_annotations_that_are_cut_off_are_named(unzipped: Path) -> None:
    (unzipped / "val" / "val_annotations.txt").write_text("val_0.png\tn01\t0\nval_1.png\n")
    with pytest.raises(DataError, match="line 2 of .*val_annotations.txt has no image and class"):
        open_encoded(unzipped, "test")


@pytest.mark.parametrize("read", [load_images, open_encoded])
def test_validation_images_without_class_folders_are_told_where_to_go(
    read: Callable[[Path, str], object], folder: Path
) -> None:
    """ImageNet's own archive, or Kaggle's: all images side by side."""
    for number, path in enumerate(sorted(folder.glob("val/*/*.png"))):
        path.rename(folder / "val" / f"ILSVRC2012_val_{number}.png")
        path.parent.rmdir()
    with pytest.raises(
        DataError, match=r"val has no class folders.*: move its 2 images into such folders; torchvision"
    ):
        read(folder, "test")


def write_parquet(path: Path, names: list[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    PNG.save(file, "PNG")
    told = json.dumps({"info": {"features": {"label": {"names": names}}}})
    table = pa.table({"image": [{"bytes": file.getvalue()}] * 2, "label": [0, 1]})
    pq.write_table(table.replace_schema_metadata({"huggingface": told}), path)


@pytest.mark.parametrize("read", [load_images, open_encoded])
def test_files_of_a_split_that_number_classes_differently_are_refused(
    read: Callable[[Path, str], object], tmp_path: Path
) -> None:
    write_parquet(tmp_path / "train-00000-of-00002.parquet", ["ant", "bee"])
    write_parquet(tmp_path / "train-00001-of-00002.parquet", ["bee", "ant"])
    with pytest.raises(DataError, match="train-00001-of-00002.parquet names or numbers its classes otherwise"):
        read(tmp_path, "train")


def test_a_shard_cut_between_two_images_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "train-1.tar"
    write_tar(path, a_png=b"x", a_cls=b"1", b_png=b"x", b_cls=b"0")
    path.write_bytes(path.read_bytes()[: 4 * 512])  # a header and a block for each of the first two
    with pytest.raises(DataError, match=r"train-1.tar is truncated or no plain tar \(it has no end mark\): download"):
        open_encoded(tmp_path, "train")


def test_a_second_image_beside_a_label_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask, for example: one of both would be trained on, and nobody would know which."""
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))
    with tarfile.open(tmp_path / "train.tar", "w") as shard:
        for name in ("0.jpg", "0.cls", "0.png"):
            shard.addfile(tarfile.TarInfo(name))
    with pytest.raises(DataError, match="train.tar has two images of 0: expected one beside each label"):
        open_encoded(tmp_path, "train")


def test_tar_shards_of_the_hub_have_the_columns_of_webdataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `datasets` itself, which reads a local folder as it reads a repository of the hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    file = io.BytesIO()
    PNG.save(file, "PNG")
    for split in ("train", "validation"):
        write_tar(tmp_path / "shards" / f"{split}-0.tar", a_png=file.getvalue(), a_cls=b"1")
    found = open_encoded(f"hub:{tmp_path / 'shards'}", "test")
    assert found.labels.tolist() == [1]
    assert found.read([0]) == [file.getvalue()]
