"""Images of a stream that cannot be read: what takes their place, who is told, and what is counted."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from unsmooth.errors import DataError
from unsmooth.training import Run, TrainingRecord, train
from unsmooth.training.tasks.images.encoded import open_encoded
from unsmooth.training.tasks.images.reading import Centres, Steps, loader_of, some_centres
from unsmooth.training.tasks.images.recipe import RECIPES
from unsmooth.training.tasks.images.stream import image_input

Image = pytest.importorskip("PIL.Image")
RECIPE = RECIPES["imagenet"].override(
    [
        *("image_size=16", "patch_size=8", "depth=2", "width=12", "heads=2", "classes=2", "batch_size=4", "repeats=1"),
        *("train_images=0", "test_images=0", "metric_images=2", "rand_augment_layers=0", "chunk=1", "warmup_epochs=0"),
        *("precision=float32", "epochs=2"),
    ]
)
COLOURS = (40, 80, 120, 160)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four images of one colour each in both classes of both splits, named by it."""
    for split in ("train", "val"):
        for name in ("ant", "bee"):
            (tmp_path / split / name).mkdir(parents=True)
            for colour in COLOURS:
                Image.new("RGB", (20, 20), (colour,) * 3).save(tmp_path / split / name / f"{colour:03d}.png")
    return tmp_path


def test_what_takes_its_place_is_an_image_of_the_runs_share(folder: Path) -> None:
    (folder / "train" / "ant" / "120.png").write_bytes(b"")
    images = open_encoded(folder, "train")
    kept = torch.tensor([0, 2, 4, 6])  # 40 and 120 of both classes
    seen = Steps(images, kept, RECIPE, seed=0, rank=0, world=1)[0]
    assert [(Path(name).name, why) for name, why in seen["unreadable"]] == [("120.png", "it is empty")]
    colours = seen["pixels"].flatten(1).float().mean(1).int().tolist()
    found = sorted(zip(seen["labels"].tolist(), colours, strict=True))
    assert found == [(0, 40), (1, 40), (1, 40), (1, 120)]  # not (0, 160), which the run must not see


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_worker_is_told_without_its_traceback(folder: Path, workers: int) -> None:
    for path in folder.glob("train/*/*.png"):
        path.write_bytes(b"")
    steps = Steps(open_encoded(folder, "train"), torch.arange(8), RECIPE, seed=0, rank=0, world=1)
    with pytest.raises(DataError, match=r"^16 images in a row cannot be read, .* is the data still there\?$"):
        next(iter(loader_of(steps, range(1), workers)))


def test_a_run_that_goes_on_counts_what_it_met_before(folder: Path, tmp_path: Path) -> None:
    (folder / "train" / "ant" / "120.png").write_bytes(b"")

    def kill(done: int, _total: int, _row: object) -> None:
        if done == 2:  # a pass, and a checkpoint
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="120.png is not a readable image"), pytest.raises(KeyboardInterrupt):
        train(Run(RECIPE), folder, tmp_path / "cut", device="cpu", tensorboard=False, progress=kill)
    Image.new("RGB", (20, 20)).save(folder / "train" / "ant" / "120.png")  # repaired: this process meets none
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        record = train(Run(RECIPE), folder, tmp_path / "cut", device="cpu", tensorboard=False)
    assert isinstance(record, TrainingRecord)
    assert [row["unreadable"] for row in record.rows] == [1, 1]


def test_some_images_are_of_all_classes_and_always_the_same(folder: Path) -> None:
    """The folders are sorted by class: the first four images of a set are of one."""
    images, spec = open_encoded(folder, "test"), image_input(RECIPE)
    some = Centres(images, spec, 4)[0]
    assert set(some["labels"].tolist()) == {0, 1}
    assert len(set(some["index"].tolist())) == 4
    assert torch.equal(some["pixels"], some_centres(images, spec, 4))
    assert torch.equal(some["pixels"][:2], some_centres(images, spec, 2))
    assert Centres(images, spec, 9)[0]["index"].tolist() == list(range(8))


def test_no_image_to_watch_is_allowed(folder: Path, tmp_path: Path) -> None:
    run = Run(RECIPE.override(["metric_images=0", "epochs=1"]))
    record = train(run, folder, tmp_path / "run", device="cpu", tensorboard=False)
    assert isinstance(record, TrainingRecord)
    assert "smoothing" not in record.rows[-1]
