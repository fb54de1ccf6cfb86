"""Two processes train as one does: same batches, same pairs, same weights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import ATTEMPTS, Aborted, free_port, train_in_two
from safetensors.torch import load_file
from training.toy import ToyRecipe, write_shards
from versions import NEEDS_FSDP_ON_A_CPU

from unsmooth.errors import OptionError
from unsmooth.training import Run, Speed, TrainingRecord, launch, train
from unsmooth.training.engine.checkpoint import CURRENT, PREVIOUS
from unsmooth.training.engine.journal import LOG, read_log
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


SHARED = ["drop_path=0", "epochs=2", "every=1", "batch_size=12", "clip_norm=0.5"]


def launched(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`accelerate launch` with two processes on the CPU, which write to `out`; again after an abort, as `run_twice`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    for _ in range(ATTEMPTS):
        command = [
            *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
            *("--num_processes", "2", "--num_machines", "1"),
            *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", free_port()),
        ]
        shutil.rmtree(out, ignore_errors=True)
        done = subprocess.run(
            [*command, *words, str(out)], capture_output=True, text=True, timeout=300, env=environment
        )
        if "(SIGABRT)" not in done.stderr:
            return done
    raise Aborted(done.stderr[-2000:])


def test_two_processes_equal_one(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    """Stochastic depth off: each process draws its own. `--multi_gpu` is the launcher that starts processes."""
    recipe = tiny_recipe.override(["drop_path=0", "epochs=2"])
    train(Run(recipe), tiny_data, tmp_path / "one", device="cpu", tensorboard=False)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = launched(tmp_path / "two", str(script), json.dumps(recipe.as_dict()), str(tiny_data))
    assert done.returncode == 0, done.stderr[-3000:]
    # Two processes write to one pipe, in any order and perhaps on one line.
    assert (done.stdout.count("no record"), done.stdout.count("record")) == (1, 2), done.stdout
    one, two = (load_file(tmp_path / name / CURRENT) for name in ("one", "two"))
    for name, value in one.items():
        if name.startswith("model."):
            torch.testing.assert_close(two[name], value, rtol=1e-3, atol=2e-5, msg=name)
    logs = [read_log(tmp_path / name) for name in ("one", "two")]
    assert [row["train_loss"] for row in logs[1]] == pytest.approx([row["train_loss"] for row in logs[0]], rel=1e-4)


@pytest.fixture
def fsdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `accelerate launch --use_fsdp --fsdp_version 2` says it."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("FSDP_VERSION", "2")


def assert_same_run(folder: Path, whole: Path) -> None:
    found, expected = TrainingRecord.load(folder), TrainingRecord.load(whole)
    assert [row["train_loss"] for row in found.rows] == pytest.approx(
        [r["train_loss"] for r in expected.rows], rel=1e-4
    )
    assert found.final["loss"] == pytest.approx(expected.final["loss"], rel=1e-4)
    assert found.rows[-1]["spectrum"] == expected.rows[-1]["spectrum"]
    one, two = (load_file(path / "model.safetensors") for path in (folder, whole))
    for name, value in two.items():  # in half precision
        torch.testing.assert_close(one[name], value, rtol=5e-3, atol=1e-3, msg=name)
    kept, wanted = (
        load_file(path / CURRENT) for path in (folder, whole)
    )  # moments too, as large as one process has them
    assert {name: t.shape for name, t in kept.items()} == {name: t.shape for name, t in wanted.items()}


@NEEDS_FSDP_ON_A_CPU
def test_processes_that_share_a_model_go_on_from_a_whole_one(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, fsdp: None
) -> None:
    """FSDP2 in the second of two epochs."""
    recipe, one, two = tiny_recipe.override(SHARED), tmp_path / "one", tmp_path / "two"
    train(Run(recipe, "sharpening"), tiny_data, one, device="cpu", tensorboard=False)
    two.mkdir()
    shutil.copy(one / PREVIOUS, two / CURRENT)
    shutil.copy(one / LOG, two / LOG)
    assert train_in_two(recipe, tiny_data, two, variant="sharpening") == ["record", "no record"]
    assert TrainingRecord.load(two).speed["sharded"] is True
    assert_same_run(two, one)


@NEEDS_FSDP_ON_A_CPU
def test_one_process_goes_on_from_a_model_that_three_have_shared(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, fsdp: None
) -> None:
    recipe, one, three = tiny_recipe.override(SHARED), tmp_path / "one", tmp_path / "three"
    train(Run(recipe), tiny_data, one, device="cpu", tensorboard=False)
    assert train_in_two(recipe, tiny_data, three, 3) == ["record", "no record", "no record"]
    assert_same_run(three, one)
    for path in (three / name for name in (CURRENT, "record.json", "model.safetensors")):
        path.unlink()
    train(Run(recipe), tiny_data, three, device="cpu", tensorboard=False)  # its second epoch again
    assert_same_run(three, one)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_a_sharded_model_trains_on_a_gpu(
    variant: str, tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    """One process holds all parts: what is tested is that hooks, fused AdamW, clipping and bfloat16 take them."""
    recipe = tiny_recipe.override([*SHARED, "precision=bf16"])
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        train(Run(recipe, variant), tiny_data, tmp_path / "one", device="cuda", tensorboard=False, sharded=True)
    finally:
        torch.distributed.destroy_process_group()
    plain = Speed(compile_mode=None, graph=False, shortcuts=())
    train(Run(recipe, variant), tiny_data, tmp_path / "whole", device="cuda", tensorboard=False, speed=plain)
    losses = [[row["train_loss"] for row in read_log(tmp_path / name)] for name in ("one", "whole")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_what_a_launcher_asks_of_sharding_and_cannot_be_done_is_refused(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("WORLD_SIZE", "2"), ("RANK", "0"), ("MASTER_ADDR", "localhost"), ("MASTER_PORT", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(OptionError, match="--use_fsdp came with version 1: expected --fsdp_version 2"):
        launch(Run(tiny_recipe), tiny_data, tmp_path)
    monkeypatch.setenv("FSDP_VERSION", "2")
    monkeypatch.setenv("FSDP_OFFLOAD_PARAMS", "true")
    with pytest.raises(OptionError, match="leave --fsdp_offload_params out"):
        launch(Run(tiny_recipe), tiny_data, tmp_path)
    with pytest.raises(OptionError, match="the model of toy cannot be sharded in training: leave --use_fsdp out"):
        train(Run(ToyRecipe("toy")), write_shards(tmp_path / "toy"), tmp_path / "run", device="cpu", sharded=True)


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
