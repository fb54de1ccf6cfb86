"""Images larger than memory: every layout, any stop and start, broken files, worker processes."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import train_in_two
from safetensors.torch import load_file

from unsmooth.errors import DataError, OptionError
from unsmooth.training import Run, TrainingRecord, evaluate_trained, train
from unsmooth.training.engine.order import WINDOW, Order
from unsmooth.training.tasks.images.crops import centre_crop, random_crop
from unsmooth.training.tasks.images.encoded import Encoded, open_encoded
from unsmooth.training.tasks.images.reading import Steps, loader_of
from unsmooth.training.tasks.images.recipe import RECIPES, ImageRecipe
from unsmooth.training.tasks.images.stream import image_input

CLASSES, TRAIN, VAL = 4, 5000, 40
SMALL = [
    *("image_size=16", "patch_size=8", "depth=2", "width=12", "heads=2", f"classes={CLASSES}", "batch_size=100"),
    *("train_images=0", "test_images=0", "metric_images=4", "rand_augment_layers=1", "chunk=4", "warmup_epochs=1"),
    *("precision=float32", "epochs=1", "repeats=1"),
]


def jpeg(seed: int, size: tuple[int, int] = (20, 24)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def recipe() -> ImageRecipe:
    return RECIPES["imagenet"].override(SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,000 JPEGs in class folders, and 40 to validate with."""
    root = tmp_path_factory.mktemp("pictures")
    for split, count in (("train", TRAIN), ("val", VAL)):
        for label in range(CLASSES):
            home = root / split / f"class{label}"
            home.mkdir(parents=True)
            for number in range(count // CLASSES):
                (home / f"{number:04d}.JPEG").write_bytes(jpeg(10_000 * label + number))
    return root


def steps(images: Encoded, recipe: ImageRecipe, rank: int = 0, world: int = 1, seed: int = 0) -> Steps:
    return Steps(images, torch.arange(len(images)), recipe, seed, rank, world)


def test_a_run_killed_in_the_middle_of_a_pass_ends_as_one_that_was_not(
    folder: Path, recipe: ImageRecipe, tmp_path: Path
) -> None:
    # of the 5,000 it sees 2,000: 20.8 steps a pass, looks after 20 and 28
    run = Run(recipe.override(["batch_size=96"]), fraction=0.4, budget="28")

    def kill(done: int, _total: int, _row: object) -> None:
        if done == 24:  # past the checkpoint, so that steps are done again
            raise KeyboardInterrupt

    whole = train(run, folder, tmp_path / "whole", device="cpu", tensorboard=False)
    with pytest.raises(KeyboardInterrupt):
        train(run, folder, tmp_path / "cut", device="cpu", tensorboard=False, progress=kill)
    resumed = train(run, folder, tmp_path / "cut", device="cpu", tensorboard=False)
    assert isinstance(whole, TrainingRecord)
    assert isinstance(resumed, TrainingRecord)
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert [row["step"] for row in resumed.rows] == [20, 28]
    assert [row["train_loss"] for row in resumed.rows] == [row["train_loss"] for row in whole.rows]
    assert (resumed.final, resumed.weights) == (whole.final, whole.weights)
    scores = evaluate_trained(str(tmp_path / "cut"), folder, metric_images=4)
    assert scores.clean.images == VAL
    assert scores.clean.accuracy == whole.final["accuracy"]
    with pytest.raises(OptionError, match="leave --corruptions out"):
        evaluate_trained(str(tmp_path / "cut"), folder, corruptions=True)


def test_a_pass_holds_every_image_once_however_many_processes_share_it(folder: Path, recipe: ImageRecipe) -> None:
    images = open_encoded(folder, "train")
    recipe = recipe.override(["batch_size=12"])
    for step in (0, 7):
        whole = steps(images, recipe)[step]
        for world in (2, 3):
            parts = [steps(images, recipe, rank, world)[step] for rank in range(world)]
            pixels = torch.cat([part["pixels"] for part in parts])
            assert sorted(pixels.flatten(1).tolist()) == sorted(whole["pixels"].flatten(1).tolist())
            assert sorted(torch.cat([p["labels"] for p in parts]).tolist()) == sorted(whole["labels"].tolist())
            assert all(torch.equal(part["lam"], whole["lam"]) for part in parts)
    order = steps(images, recipe).order
    assert torch.equal(order.take(0, TRAIN).sort().values, torch.arange(TRAIN))


def test_three_views_of_an_image_are_three_crops(folder: Path, recipe: ImageRecipe) -> None:
    images = open_encoded(folder, "train")
    seen, label = (steps(images, recipe.override(["repeats=3"]))[1][key] for key in ("pixels", "labels"))
    # step 1 begins with the second view of image 33
    assert label[0] == label[1]
    assert label[2] == label[3] == label[4]
    assert len({tuple(p) for p in seen[2:5].flatten(1).tolist()}) == 3


def test_worker_processes_change_nothing(folder: Path, recipe: ImageRecipe) -> None:
    what = steps(open_encoded(folder, "train"), recipe.override(["batch_size=8"]))
    with_them, without = (list(loader_of(what, range(3, 6), workers)) for workers in (2, 0))
    for one, two in zip(with_them, without, strict=True):
        assert torch.equal(one["pixels"], two["pixels"])
        assert torch.equal(one["labels"], two["labels"])
        assert torch.equal(one["operation"], two["operation"])


def few(folder: Path) -> list[tuple[bytes, int]]:
    return [
        ((folder / "train" / f"class{label}" / f"{number:04d}.JPEG").read_bytes(), label)
        for label in range(CLASSES)
        for number in range(6)
    ]


def write_tar(path: Path, items: list[tuple[bytes, int]], as_json: bool = False) -> None:
    with tarfile.open(path, "w") as shard:
        for number, (blob, label) in enumerate(items):
            beside = json.dumps({"label": label}) if as_json else str(label)
            for name, content in (("jpg", blob), ("json" if as_json else "cls", beside.encode())):
                entry = tarfile.TarInfo(f"./{path.stem}-{number:04d}.{name}")
                entry.size = len(content)
                shard.addfile(entry, io.BytesIO(content))


def test_every_layout_gives_the_same_images(
    folder: Path, recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))
    items = few(folder)
    (tmp_path / "tar").mkdir()
    for shard in range(2):
        write_tar(tmp_path / "tar" / f"some-train-{shard:04d}.tar", items[12 * shard : 12 * shard + 12], bool(shard))
    (tmp_path / "parquet").mkdir()
    table = pa.table({"image": [{"bytes": blob} for blob, _ in items], "label": [y for _, y in items]})
    for shard in range(2):
        path = tmp_path / "parquet" / f"train-{shard:05d}-of-00002.parquet"
        pq.write_table(table.slice(12 * shard, 12), path, row_group_size=5)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c", "d"])})
    rows = datasets.Dataset.from_dict({"image": table["image"].to_pylist(), "label": [y for _, y in items]}, features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    for where in (tmp_path / "tar", tmp_path / "parquet", "hub:some/pictures"):
        for _ in range(2):  # the second time from the index that the first has kept
            found = open_encoded(where, "train")
        assert found.labels.tolist() == [y for _, y in items], where
        wanted = [23, 0, 11, 12, 7]
        assert found.read(wanted) == [items[i][0] for i in wanted], where
        assert {"tar": "0001.tar, image 1", "parquet": "of-00002.parquet, row 1", "pictures": "row 13"}[
            Path(where).name
        ] in found.name(13)
        batch = steps(found, recipe.override(["batch_size=24"]))[0]
        assert sorted(batch["labels"].tolist()) == [y for _, y in items]
        assert batch["unreadable"] == []
    assert open_encoded("hub:some/pictures", "train").class_names == ("a", "b", "c", "d")
    assert open_encoded(tmp_path / "parquet", "train").blocks == (5, 5, 2, 5, 5, 2)


def test_blocks_are_read_near_each_other_and_every_image_once() -> None:
    blocks = (100,) * 200
    order = Order(20_000, seed=0, blocks=blocks).take(0, 20_000)
    assert torch.equal(order.sort().values, torch.arange(20_000))
    first = order[:WINDOW] // 100
    assert len(first.unique()) <= WINDOW // 100 + 1  # of 200
    assert len((order[:500] // 100).unique()) > 70  # which are mixed
    assert not torch.equal(order, Order(20_000, seed=1, blocks=blocks).take(0, 20_000))
    with pytest.raises(OptionError, match="do not hold"):
        Order(3, 0, (1, 1))


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_learn_what_one_does(
    processes: int, folder: Path, recipe: ImageRecipe, tmp_path: Path
) -> None:
    """Stochastic depth off: each process draws its own."""
    for split in ("train", "val"):
        for number, (blob, label) in enumerate(few(folder)):
            home = tmp_path / "data" / split / f"class{label}"
            home.mkdir(parents=True, exist_ok=True)
            (home / f"{number}.jpg").write_bytes(blob if number != 13 else blob[:60])
    recipe = recipe.override(["batch_size=12", "epochs=2", "chunk=2", "drop_path=0"])
    with pytest.warns(UserWarning, match="13.jpg is not a readable image"):
        train(Run(recipe), tmp_path / "data", tmp_path / "one", device="cpu", tensorboard=False)
    ended = train_in_two(recipe, tmp_path / "data", tmp_path / "many", processes)
    assert ended == ["record"] + ["no record"] * (processes - 1)
    one, many = (TrainingRecord.load(tmp_path / name) for name in ("one", "many"))
    assert [row["step"] for row in many.rows] == [2, 4]
    losses = [row["train_loss"] for row in one.rows]
    assert [row["train_loss"] for row in many.rows] == pytest.approx(losses, rel=1e-4)
    assert many.final["loss"] == pytest.approx(one.final["loss"], rel=1e-3)
    assert many.final["images"] == one.final["images"] == 23
    assert [row["unreadable"] for row in many.rows] == [row["unreadable"] for row in one.rows]  # whoever met it
    assert many.speed["processes"] == processes
    assert many.data_hash == one.data_hash


def test_a_broken_image_is_named_counted_and_replaced(folder: Path, recipe: ImageRecipe, tmp_path: Path) -> None:
    for split in ("train", "val"):
        for number, (blob, label) in enumerate(few(folder)):
            home = tmp_path / "data" / split / f"class{label}"
            home.mkdir(parents=True, exist_ok=True)
            (home / f"{number}.jpg").write_bytes(blob[:60] if number == 13 else b"" if number == 20 else blob)
    recipe = recipe.override(["batch_size=12", "epochs=2", "every=1", "chunk=2"])
    with pytest.warns(UserWarning, match=r"jpg is not a readable image \(.*: it is left out") as said:
        record = train(Run(recipe), tmp_path / "data", tmp_path / "run", device="cpu", tensorboard=False)
    assert isinstance(record, TrainingRecord)
    assert sorted(Path(str(w.message).split(" is not")[0]).name for w in said) == [
        "13.jpg",
        "13.jpg",
        "20.jpg",
        "20.jpg",
    ]
    assert record.rows[-1]["unreadable"] == 4  # both of each split, though every one was met twice
    assert record.final["images"] == 22
    with pytest.raises(DataError, match=r"is not a readable image .*unreadable=skip"):
        train(Run(recipe.override(["unreadable=refuse"])), tmp_path / "data", tmp_path / "no", tensorboard=False)


def test_data_that_is_not_what_the_recipe_means_is_refused(folder: Path, recipe: ImageRecipe, tmp_path: Path) -> None:
    def refused(changes: list[str], data: Path, match: str) -> None:
        with pytest.raises((DataError, OptionError), match=match):
            train(Run(recipe.override(changes)), data, tmp_path / "run", tensorboard=False)

    refused(["train_images=1281167"], folder, r"expected 1281167 train images, found 5000")
    refused(["classes=5"], folder, r"expected 5 classes in train, found 4")
    refused(["batch_size=6000"], folder, r"5000 images do not fill one batch of 6000")
    refused([], tmp_path, r"no train split at .*KEY.cls")
    (tmp_path / "other" / "val" / "class9").mkdir(parents=True)
    (tmp_path / "other" / "train").symlink_to(folder / "train")
    for label in range(CLASSES):
        home = tmp_path / "other" / "val" / f"class{9 - label}"
        home.mkdir(exist_ok=True)
        (home / "a.jpg").write_bytes(jpeg(0))
    refused([], tmp_path / "other", r"only train has class0, .*; only validation has class6, .*: expected in both")
    (tmp_path / "train-0.tar").write_bytes(b"no tar")
    refused([], tmp_path, r"train-0.tar is truncated or no plain tar")
    with pytest.raises(OptionError, match="crop_area must be above 0"):
        recipe.override(["crop_area=0"])


def test_crops_are_torchvisions_up_to_the_smaller_scale_that_is_decoded() -> None:
    from PIL import Image
    from torchvision.transforms import InterpolationMode, RandomResizedCrop, functional

    smooth = np.add.outer(np.arange(300) * 0.4, np.arange(400) * 0.3)[..., None] + np.array([0, 10, 20])
    file = io.BytesIO()
    Image.fromarray(smooth.astype(np.uint8)).save(file, "JPEG", quality=95)
    image = Image.open(file)
    for seed in range(6):
        ours = random_crop(file.getvalue(), 32, 0.08, seed)
        torch.manual_seed(seed)
        box = RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
        theirs = functional.resized_crop(image, *box, [32, 32], InterpolationMode.BICUBIC)
        assert np.abs(ours.astype(int) - np.asarray(theirs).transpose(2, 0, 1)).max() <= 6
    state = torch.get_rng_state()
    assert np.array_equal(random_crop(file.getvalue(), 32, 0.08, 5), ours)
    assert torch.equal(torch.get_rng_state(), state)
    spec = image_input(RECIPES["imagenet"].override(["image_size=64"]))
    centre = centre_crop(file.getvalue(), spec)
    scaled = functional.center_crop(functional.resize(image, [73], InterpolationMode.BICUBIC), [64, 64])
    assert np.abs(centre.astype(int) - np.asarray(scaled).transpose(2, 0, 1)).max() <= 1


def test_a_drive_that_is_gone_is_not_searched_to_its_end(folder: Path, recipe: ImageRecipe) -> None:
    what = steps(open_encoded(folder, "train"), recipe)
    what.images.folder = folder / "gone"  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="16 images in a row cannot be read, .* is the data still there"):
        what[0]
