"""Files that hold something else than labelled images say what, where, and what to do."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from unsmooth.errors import DataError
from unsmooth.training.tasks.images.data import load_images


def _png() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


PNG = _png()


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "train" / "a" / "cut.png").write_bytes(b"\x89PNG\r\n\x1a\n half")
    with pytest.raises(DataError, match=r"cut.png is not a readable image.*remove it or repair it"):
        load_images(tmp_path, "train")


def write_columns(folder: Path, images: list[object], labels: list[object], metadata: dict[str, str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"img": images, "label": labels}).replace_schema_metadata(metadata)
    pq.write_table(table, folder / "train-00000-of-00001.parquet")


@pytest.mark.parametrize(
    ("image", "label", "message"),
    [
        ({"bytes": None, "path": "a.png"}, 0, r"row 0 holds no image: expected the bytes of an image file, got None"),
        ({"data": b"x"}, 0, r"row 0 holds no image"),
        ("a.png", 0, r"row 0 holds no image: expected the bytes of an image file, got str"),
        (b"half", 0, r"row 0 is not a readable image \(no format that Pillow knows\): remove it or repair it"),
        (None, "cat", r"labels must be whole numbers 0, 1, 2, …; found 'cat': number the classes"),
        (None, None, r"labels must be whole numbers 0, 1, 2, …; found None"),
        (None, 0.5, r"labels must be whole numbers 0, 1, 2, …; found 0.5"),
    ],
)
def test_columns_that_hold_something_else_are_named(tmp_path: Path, image: object, label: object, message: str) -> None:
    write_columns(tmp_path, [image or PNG], [label], {})
    with pytest.raises(DataError, match=message):
        load_images(tmp_path, "train")


@pytest.mark.parametrize("metadata", ["{", "[]", '{"info": null}', '{"info": {"features": {}}}'])
def test_class_names_that_cannot_be_read_are_left_out(tmp_path: Path, metadata: str) -> None:
    write_columns(tmp_path, [PNG], [0], {"huggingface": metadata})
    assert load_images(tmp_path, "train").class_names == ()


def test_what_systems_hide_among_class_folders_is_no_class(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / "train" / name).parent.mkdir(parents=True)
        (tmp_path / "train" / name).write_bytes(PNG)
    (tmp_path / "train" / ".ipynb_checkpoints").mkdir()
    (tmp_path / "train" / "a" / "._1.png").write_bytes(b"not an image")
    found = load_images(tmp_path, "train")
    assert (len(found), found.class_names) == (2, ("a", "b"))


def test_a_split_without_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match=rf"train at {tmp_path} holds no images: expected HF-layout parquet"):
        load_images(tmp_path, "train")


def write_class(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG)
    return folder


def test_a_folder_named_like_an_image_is_none(tmp_path: Path) -> None:
    write_class(tmp_path, "a/1.png")
    (tmp_path / "train" / "a" / "more.png").mkdir()
    assert len(load_images(tmp_path, "train")) == 1


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    write_class(tmp_path, "a/1.png")
    (tmp_path / "train" / "a" / "gone.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"gone.png cannot be read \(No such file.*\): remove it or repair it"):
        load_images(tmp_path, "train")


def test_an_image_of_absurd_size_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 8)
    write_class(tmp_path, "a/1.png")
    with pytest.raises(DataError, match=r"1.png is not a readable image .*exceeds limit"):
        load_images(tmp_path, "train")


def test_every_format_that_measuring_reads_is_trained_on(tmp_path: Path) -> None:
    """A file that is passed over in silence would be a subset nobody asked for."""
    from PIL import Image

    from unsmooth.sources.paths import IMAGES

    (tmp_path / "train" / "a").mkdir(parents=True)
    for number, suffix in enumerate(sorted(IMAGES)):
        Image.new("RGB", (8, 8)).save(tmp_path / "train" / "a" / f"{number}{suffix.upper()}")
    assert len(load_images(tmp_path, "train")) == len(IMAGES)


def test_class_folders_without_images_say_which_files_would_be_some(tmp_path: Path) -> None:
    write_class(tmp_path, "a/1.heic")
    with pytest.raises(DataError, match=r"holds no images: expected .*one folder per class \(files .*\.png.*\.tiff"):
        load_images(tmp_path, "train")


def test_no_name_at_all_is_not_the_folder_one_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_class(tmp_path, "a/1.png"))
    with pytest.raises(DataError, match=r"the path of the data is empty: expected HF-layout parquet"):
        load_images("", "train")
    assert len(load_images(".", "train")) == 1


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    write_columns(tmp_path, [PNG], [0], {})
    with pytest.raises(DataError, match=r"train-00000-of-00001.parquet is a file: expected the folder that holds it"):
        load_images(tmp_path / "train-00000-of-00001.parquet", "train")


def test_parquet_of_several_data_sets_is_never_one(tmp_path: Path) -> None:
    for name in ("cifar10", "cifar100"):
        (tmp_path / name).mkdir()
        write_columns(tmp_path / name, [PNG], [0], {})
    with pytest.raises(DataError, match=r"parquet of several data sets below .*: cifar10, cifar100; name one of them"):
        load_images(tmp_path, "train")
    assert len(load_images(tmp_path / "cifar100", "train")) == 1
