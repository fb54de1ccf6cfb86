"""A run that is killed, meets a full disk, a cut checkpoint or a NaN: it goes on, or says what to do."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from pathlib import Path
from textwrap import indent

import pytest
import torch
from processes import Program
from safetensors.torch import load_file

from unsmooth.errors import CheckpointError, OptionError, UnknownModelError
from unsmooth.training import Run, Trainer, TrainingError, train
from unsmooth.training.engine import checkpoint
from unsmooth.training.engine.task import Rows
from unsmooth.training.tasks.images.recipe import ImageRecipe

SCRIPT = """
import json, sys, time, torch
torch.set_num_threads(1)
from unsmooth.training import Run, train
from unsmooth.training.tasks.images import ImageRecipe
recipe = ImageRecipe.from_dict(json.loads(sys.argv[1]))
def progress(done, total, row):
    print(done, flush=True)
    time.sleep(600 if done == int(sys.argv[5]) else 0)  # until it is killed, however busy the machine is
train(Run(recipe, sys.argv[4]), sys.argv[2], sys.argv[3], device="cpu", tensorboard=False, progress=progress)
"""


@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_a_killed_run_ends_in_the_same_weights(
    variant: str, tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    """A real kill -9 after the second of four epochs, with dropped paths and all augmentation on."""
    train(Run(tiny_recipe, variant), tiny_data, tmp_path / "whole", device="cpu", tensorboard=False)
    arguments = [json.dumps(tiny_recipe.as_dict()), tiny_data, tmp_path / "killed", variant, "2"]
    program = Program(SCRIPT, arguments, tmp_path)
    assert any(line == "2" for line in program.lines())
    program.send(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    done = checkpoint.read_checkpoint(tmp_path / "killed" / checkpoint.CURRENT)[1]["epoch"]
    assert done in (1, 2, 3)
    record = train(Run(tiny_recipe, variant), tiny_data, tmp_path / "killed", device="cpu", tensorboard=False)
    whole, again = (load_file(tmp_path / name / checkpoint.CURRENT) for name in ("whole", "killed"))
    assert whole.keys() == again.keys()
    for name, value in whole.items():
        assert torch.equal(value, again[name]), name
    assert [row["epoch"] for row in record.rows] == [1, 2, 3, 4]


def test_the_same_command_after_the_end_trains_no_more(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    run = Run(tiny_recipe.override(["epochs=1"]))
    first = train(run, tiny_data, tmp_path, device="cpu", tensorboard=False)
    epochs: list[int] = []
    again = train(run, tiny_data, tmp_path, device="cpu", tensorboard=False, progress=lambda e, *_: epochs.append(e))
    assert not epochs
    assert again == first  # its date, commit and minutes too
    (tmp_path / "record.json").write_text("{")  # killed while it finished
    once_more = train(run, tiny_data, tmp_path, device="cpu", tensorboard=False)
    assert once_more.final == first.final


def test_a_checkpoint_of_another_run_is_refused(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    recipe = tiny_recipe.override(["epochs=1"])
    train(Run(recipe), tiny_data, tmp_path, device="cpu", tensorboard=False)
    with pytest.raises(CheckpointError, match=r"belongs to another run: its seed is 0, not 1; choose another --out"):
        train(Run(recipe, seed=1), tiny_data, tmp_path, device="cpu", tensorboard=False)
    with pytest.raises(CheckpointError, match=r"its recipe is with lr=0.001, not 0.002"):
        train(Run(recipe.override(["lr=2e-3"])), tiny_data, tmp_path, device="cpu", tensorboard=False)


def test_a_truncated_checkpoint_is_named_and_the_previous_one_used(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    run = Run(tiny_recipe.override(["epochs=2"]))
    expected = train(run, tiny_data, tmp_path, device="cpu", tensorboard=False)
    current = tmp_path / checkpoint.CURRENT
    current.write_bytes(current.read_bytes()[:5000])
    with pytest.raises(CheckpointError, match=r"checkpoint.safetensors is truncated.*remove it to go on from previous"):
        train(run, tiny_data, tmp_path, device="cpu", tensorboard=False)
    current.unlink()
    (tmp_path / "record.json").unlink()
    assert train(run, tiny_data, tmp_path, device="cpu", tensorboard=False).final == expected.final


def test_a_foreign_file_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / checkpoint.CURRENT)
    with pytest.raises(CheckpointError, match=r"not ours: expected schema 'unsmooth-checkpoint/1', got None"):
        checkpoint.read_checkpoint(tmp_path / checkpoint.CURRENT)


@pytest.mark.parametrize("state", [None, "{", "[]", "{}"])
def test_a_checkpoint_that_does_not_say_its_epoch_is_named(state: str | None, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    metadata = {"schema": checkpoint.SCHEMA} | ({} if state is None else {"state": state})
    save_file({"rng.cpu": torch.get_rng_state()}, tmp_path / checkpoint.CURRENT, metadata)
    with pytest.raises(CheckpointError, match=r"checkpoint.safetensors is not complete.*remove it to go on from previ"):
        checkpoint.read_checkpoint(tmp_path / checkpoint.CURRENT)


def test_a_file_system_without_hard_links_gets_a_copy(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    train(Run(tiny_recipe.override(["epochs=2"])), tiny_data, tmp_path, device="cpu", tensorboard=False)
    epochs = [
        checkpoint.read_checkpoint(tmp_path / name)[1]["epoch"] for name in (checkpoint.CURRENT, checkpoint.PREVIOUS)
    ]
    assert epochs == [2, 1]


def test_a_full_disk_keeps_the_last_good_checkpoint(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(Run(tiny_recipe.override(["epochs=1"])), tiny_data, tmp_path, device="cpu", tensorboard=False)
    good = (tmp_path / checkpoint.CURRENT).read_bytes()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    model = torch.nn.Linear(2, 2)
    with pytest.raises(
        CheckpointError, match=r"cannot write .*the disk is full; the last good checkpoint is untouched"
    ):
        checkpoint.save_checkpoint(tmp_path, model, torch.optim.AdamW(model.parameters()), {})
    assert (tmp_path / checkpoint.CURRENT).read_bytes() == good
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
@pytest.mark.parametrize("limit", [300, 100_000])
def test_a_real_refusal_to_write_is_one_message_and_the_run_goes_on_later(
    limit: int, tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    """A limit on the size of files: 300 bytes refuse the log, 100,000 the first checkpoint."""
    script = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
try:
{indent(SCRIPT, "    ")}
finally:  # what is said goes to a file too
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""
    recipe = tiny_recipe.override(["epochs=2"])
    arguments = [json.dumps(recipe.as_dict()), tiny_data, tmp_path / "run", "plain", "0"]
    program = Program(script, arguments, tmp_path)
    assert program.wait() == 1
    last = program.stderr.strip().splitlines()[-1]
    assert "CheckpointError: cannot write" in last
    assert "the disk is full; the last good checkpoint is untouched: make room and run the same command again" in last
    expected = train(Run(recipe), tiny_data, tmp_path / "whole", device="cpu", tensorboard=False)
    again = train(Run(recipe), tiny_data, tmp_path / "run", device="cpu", tensorboard=False)
    assert again.final == expected.final


def test_what_a_kill_left_half_written_is_removed(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    for name in (".unsmooth-abc.part", "previous.part"):
        (tmp_path / name).write_bytes(b"half")
    train(Run(tiny_recipe.override(["epochs=1"])), tiny_data, tmp_path, device="cpu", tensorboard=False)
    assert not [*tmp_path.glob(".*.part"), *tmp_path.glob("*.part")]


def test_weights_that_break_in_the_last_step_never_become_a_checkpoint(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of an epoch is known before its last update: the test set sees what that update did."""
    run_chunk = Trainer.run_chunk

    def breaking(trainer: Trainer, rows: Rows, rates: torch.Tensor, seed: int) -> torch.Tensor:
        loss = run_chunk(trainer, rows, rates, seed)
        if trainer.done > len(rates):  # from the second epoch on
            trainer.parameters[0].data.fill_(float("nan"))
        return loss

    monkeypatch.setattr(Trainer, "run_chunk", breaking)
    with pytest.raises(TrainingError, match=r"the loss on the test set is nan in epoch 2"):
        train(Run(tiny_recipe), tiny_data, tmp_path, device="cpu", tensorboard=False)
    tensors, state = checkpoint.read_checkpoint(tmp_path / checkpoint.CURRENT)
    assert state["epoch"] == 1
    assert all(torch.isfinite(t).all() for name, t in tensors.items() if name.startswith("model."))


def test_a_loss_that_is_not_a_number_stops_the_run(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    recipe = tiny_recipe.override(["lr=1e30", "clip_norm=0"])
    with pytest.raises(TrainingError, match=r"the loss is nan in epoch \d.*the last good checkpoint is .*lower lr"):
        train(Run(recipe), tiny_data, tmp_path, device="cpu", tensorboard=False)
    kept = checkpoint.find_checkpoint(tmp_path)
    if kept is not None:
        tensors, _ = checkpoint.read_checkpoint(kept)
        assert all(torch.isfinite(t).all() for name, t in tensors.items() if name.startswith("model."))


def test_a_model_that_cannot_be_looked_into_is_refused_before_it_is_trained(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "run_chunk", lambda *_, **__: pytest.fail("trained"))
    recipe = tiny_recipe.override(["timm_name=xcit_nano_12_p8_224"])
    with pytest.raises(UnknownModelError, match="Xcit attends between features, not between tokens"):
        train(Run(recipe), tiny_data, tmp_path, device="cpu", tensorboard=False)


def test_too_little_data_for_a_batch_is_refused(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"48 images do not fill one batch of 64"):
        train(Run(tiny_recipe.override(["batch_size=64"])), tiny_data, tmp_path, device="cpu", tensorboard=False)


def test_keeping_a_checkpoint_that_is_kept_already_leaves_no_draft(tmp_path: Path) -> None:
    """After a failed write both names are one file, and renaming one onto the other does nothing."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint.save_checkpoint(tmp_path, model, optimizer, {"step": 1, "unit": "step"})
    os.link(tmp_path / checkpoint.CURRENT, tmp_path / checkpoint.PREVIOUS)
    checkpoint.save_checkpoint(tmp_path, model, optimizer, {"step": 2, "unit": "step", "total": 9})
    assert not list(tmp_path.glob("*.part"))
    assert checkpoint.progress_of(tmp_path) == "step 2 of 9"
