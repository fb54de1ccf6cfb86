"""Two processes train as one does: same batches, same pairs, same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import free_port, train_in_two
from safetensors.torch import load_file

from unsmooth.errors import OptionError
from unsmooth.training import Run, launch, train
from unsmooth.training.engine.checkpoint import CURRENT
from unsmooth.training.engine.journal import read_log
from unsmooth.training.tasks.images.recipe import ImageRecipe

SCRIPT = """
import json, sys, torch
torch.set_num_threads(1)
from unsmooth.training import Run, launch
from unsmooth.training.tasks.images import ImageRecipe
record = launch(Run(ImageRecipe.from_dict(json.loads(sys.argv[1]))), sys.argv[2], sys.argv[3],
                device="cpu", tensorboard=False)
print("record" if record else "no record")
"""


def launched(*words: str) -> subprocess.CompletedProcess[str]:
    """`accelerate launch` with two processes on the CPU."""
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
        *("--num_processes", "2", "--num_machines", "1"),
        *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", free_port()),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, env=environment)


def test_two_processes_equal_one(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    """Stochastic depth off: each process draws its own. `--multi_gpu` is the launcher that starts processes."""
    recipe = tiny_recipe.override(["drop_path=0", "epochs=2"])
    train(Run(recipe), tiny_data, tmp_path / "one", device="cpu", tensorboard=False)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = launched(str(script), json.dumps(recipe.as_dict()), str(tiny_data), str(tmp_path / "two"))
    assert done.returncode == 0, done.stderr[-3000:]
    # Two processes write to one pipe, in any order and perhaps on one line.
    assert (done.stdout.count("no record"), done.stdout.count("record")) == (1, 2), done.stdout
    one, two = (load_file(tmp_path / name / CURRENT) for name in ("one", "two"))
    for name, value in one.items():
        if name.startswith("model."):
            torch.testing.assert_close(two[name], value, rtol=1e-3, atol=2e-5, msg=name)
    logs = [read_log(tmp_path / name) for name in ("one", "two")]
    assert [row["train_loss"] for row in logs[1]] == pytest.approx([row["train_loss"] for row in logs[0]], rel=1e-4)


def test_when_one_process_fails_the_other_does_not_wait(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    """Only the first process writes: a folder that cannot be made must end both, within seconds."""
    (tmp_path / "file").write_text("not a folder")
    said = train_in_two(tiny_recipe.override(["epochs=3"]), tiny_data, tmp_path / "file" / "run")
    assert "cannot write" in said[0]
    assert "record" not in said[1]


def test_a_batch_that_does_not_divide_is_refused(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WORLD_SIZE", "3"), ("RANK", "0"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    with pytest.raises(OptionError, match="batch_size 8 does not divide into pairs among 3 processes"):
        launch(Run(tiny_recipe), tiny_data, tmp_path)


@pytest.mark.parametrize("size", ["2", "many"])
def test_a_number_of_processes_that_no_launcher_set_is_named(
    size: str, tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some clusters set it for whatever runs there."""
    monkeypatch.setenv("WORLD_SIZE", size)
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    said = rf"WORLD_SIZE is '{size}', but no launcher started this process \(RANK, MASTER_ADDR, MASTER_PORT are"
    with pytest.raises(OptionError, match=said + r" not set\): unset it, or use `accelerate launch`"):
        launch(Run(tiny_recipe), tiny_data, tmp_path)


def test_an_empty_number_of_processes_is_one(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "")
    run = Run(tiny_recipe.override(["epochs=1"]))
    assert launch(run, tiny_data, tmp_path, device="cpu", tensorboard=False).speed["processes"] == 1
