"""A folder belongs to one run on one set of data: the same command goes on, any other is refused."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import sys
from pathlib import Path

import pytest
import torch
from processes import Program
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from training.conftest import PER_CLASS, make_images, write_parquet

from unsmooth.errors import CheckpointError, DataError
from unsmooth.training import Run, TrainingRecord, load_trained, train
from unsmooth.training.engine import checkpoint
from unsmooth.training.tasks.images.recipe import ImageRecipe


@pytest.fixture(scope="module")
def run(tiny_recipe: ImageRecipe) -> Run:
    return Run(tiny_recipe.override(["epochs=2"]))


@pytest.fixture(scope="module")
def ended(run: Run, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ended")
    train(run, tiny_data, folder, device="cpu", tensorboard=False)
    return folder


@pytest.fixture
def folder(ended: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to break."""
    shutil.copytree(ended, tmp_path / "run")
    return tmp_path / "run"


def forget(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def again(run: Run, data: Path, folder: Path) -> tuple[TrainingRecord, list[int]]:
    """The record, and the epochs that were trained for it."""
    epochs: list[int] = []
    record = train(run, data, folder, device="cpu", tensorboard=False, progress=lambda e, *_: epochs.append(e))
    return record, epochs


def test_other_data_is_another_run(run: Run, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_parquet(other, "train", *make_images(PER_CLASS, 5))
    write_parquet(other, "test", *make_images(4, 1))
    with pytest.raises(CheckpointError, match=r"belongs to another run: its data_hash is '\w+', not '\w+'; choose"):
        again(run, other, folder)


def test_an_unfinished_run_is_not_gone_on_with_by_another(run: Run, tiny_data: Path, folder: Path) -> None:
    forget(folder, "record.json", "model.safetensors", "config.json")
    with pytest.raises(CheckpointError, match=r"checkpoint.safetensors belongs to another run: its seed is 0, not 1"):
        again(Run(run.recipe, seed=1), tiny_data, folder)
    slower = Run(run.recipe.override(["lr=1e-4"]))
    with pytest.raises(CheckpointError, match=r"its recipe is with lr=0.001, not 0.0001; choose another"):
        again(slower, tiny_data, folder)


def test_files_from_before_there_were_subsets_are_of_the_first(run: Run, tiny_data: Path, folder: Path) -> None:
    path = folder / checkpoint.CURRENT
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    metadata["state"] = metadata["state"].replace('"subset": 0, ', "")
    save_file(load_file(path), path, metadata)
    record = json.loads((folder / "record.json").read_text())
    del record["subset"]
    (folder / "record.json").write_text(json.dumps(record))
    assert "subset" not in checkpoint.read_checkpoint(path)[1]
    assert again(run, tiny_data, folder) == (TrainingRecord.from_json(record), [])
    forget(folder, "record.json")
    assert again(run, tiny_data, folder)[1] == []


def test_a_checkpoint_of_version_0_1_counts_epochs_and_goes_on(run: Run, tiny_data: Path, folder: Path) -> None:
    (folder / checkpoint.CURRENT).unlink()
    path = folder / checkpoint.PREVIOUS  # after the first of two epochs
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    state = json.loads(metadata["state"])
    for key in ("step", "unit", "total"):
        del state[key]
    save_file(load_file(path), path, {**metadata, "state": json.dumps(state)})
    before = load_trained(folder)[0].state_dict()
    forget(folder, "record.json", "model.safetensors")
    assert again(run, tiny_data, folder)[1] == [2]
    assert all(torch.equal(t, before[name]) for name, t in load_trained(folder)[0].state_dict().items())


def test_a_checkpoint_from_before_data_was_hashed_goes_on(run: Run, tiny_data: Path, folder: Path) -> None:
    path = folder / checkpoint.CURRENT
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    _, state = checkpoint.read_checkpoint(path)
    metadata["state"] = metadata["state"].replace(f'"data_hash": "{state["data_hash"]}", ', "")
    save_file(load_file(path), path, metadata)
    forget(folder, "record.json")
    assert "data_hash" not in checkpoint.read_checkpoint(path)[1]
    assert again(run, tiny_data, folder)[1] == []


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_a_folder_that_another_process_trains_into_is_refused(run: Run, tiny_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hold = "import sys, time; from pathlib import Path; from unsmooth.training.engine.claim import claimed\n"
    hold += "with claimed(Path(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    other = Program(hold, [folder], tmp_path / "other")
    assert next(other.lines()) == "held"
    with pytest.raises(CheckpointError, match="another process is training into .*run: .*or choose another --out"):
        again(run, tiny_data, folder)
    assert list(folder.iterdir()) == []
    other.send(signal.SIGKILL)  # nothing is left to clean up
    other.wait()
    assert again(run, tiny_data, folder)[1] == [1, 2]


def test_a_folder_that_cannot_be_made_is_named_before_data_is_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=r"cannot write .*run \(.*\): choose another --out"):
        train(run, tmp_path / "nothing", tmp_path / "file" / "run", device="cpu")


def test_a_run_that_wrote_nothing_leaves_no_folder(run: Run, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no data at"):
        train(run, tmp_path / "nothing", tmp_path / "runs" / "run", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be_is_named(run: Run, tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(CheckpointError, match="run is a file: expected a folder for the run; choose another --out"):
        again(run, tiny_data, tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


@pytest.mark.skipif(sys.platform == "win32", reason="folders cannot be locked there")
def test_a_drive_without_locks_is_trained_into(
    run: Run, tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert again(run, tiny_data, tmp_path)[1] == [1, 2]


def test_a_run_that_broke_off_lets_its_folder_go(run: Run, tiny_data: Path, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(run, tiny_data, tmp_path, device="cpu", tensorboard=False, progress=stop)
    assert again(run, tiny_data, tmp_path)[1] == [2]
    del caught  # until here it kept the frames of the broken run, as a notebook does


def test_a_finished_run_needs_no_checkpoint(run: Run, tiny_data: Path, folder: Path) -> None:
    first, _ = again(run, tiny_data, folder)
    forget(folder, checkpoint.CURRENT, checkpoint.PREVIOUS)
    assert again(run, tiny_data, folder) == (first, [])


def test_a_lost_configuration_is_written_again(run: Run, tiny_data: Path, folder: Path) -> None:
    forget(folder, "config.json")
    assert again(run, tiny_data, folder)[1] == []
    load_trained(folder)


def test_a_finished_model_of_another_run_is_never_replaced(run: Run, tiny_data: Path, folder: Path) -> None:
    forget(folder, checkpoint.CURRENT, checkpoint.PREVIOUS)
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"record.json belongs to another run: its seed is 0, not 1; choose"):
        again(Run(run.recipe, seed=1), tiny_data, folder)
    forget(folder, "record.json")  # as in the zoo
    with pytest.raises(CheckpointError, match=r"holds a model, but no record or checkpoint.*choose another"):
        again(run, tiny_data, folder)
    assert (folder / "model.safetensors").read_bytes() == before


def test_drafts_of_other_programs_stay(run: Run, tiny_data: Path, folder: Path) -> None:
    forget(folder, "record.json")
    ours, theirs = folder / ".unsmooth-abc.part", (folder / "film.mkv.part", folder / ".film.part")
    for path in (ours, *theirs):
        path.write_bytes(b"half")
    again(run, tiny_data, folder)
    assert not ours.exists()
    assert all(path.exists() for path in theirs)
