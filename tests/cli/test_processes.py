"""Two processes that a launcher started write one result, and it is that of one process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from processes import free_port, run_twice

import unsmooth
from unsmooth.cli.app import app

transformers = pytest.importorskip("transformers")


def started(folder: Path, commands: list[str], size: int) -> None:
    """The commands one after the other in each of `size` processes; the first error of one ends all."""
    run_twice(_commands, free_port(), folder, commands, size, processes=size)


def _commands(rank: int, port: str, folder: Path, commands: list[str], size: int) -> None:
    launched = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {key: str(value) for key, value in launched.items()} | {"CUDA_VISIBLE_DEVICES": ""}
    torch.set_num_threads(1)
    os.chdir(folder)
    for words in commands:
        app(words.split(), standalone_mode=False)


def test_two_processes_write_what_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers.GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    torch.manual_seed(0)
    transformers.GPT2Model(config).save_pretrained(tmp_path / "model")
    given = "hf:model --data random --samples 10 --batch-size 3 --max-length 12 --device cpu --json --out"
    commands = [f"measure --metrics paper,dataset_rank {given} measured", f"explain {given} explained"]
    monkeypatch.chdir(tmp_path)
    for command in commands:
        app(f"{command}1.json".split(), standalone_mode=False)
    started(tmp_path, [f"{command}2.json" for command in commands], 2)
    one, two = (unsmooth.load(tmp_path / f"measured{size}.json") for size in (1, 2))
    assert two.samples == 10
    assert two.about.data == one.about.data
    for cell, moments in one.cells.items():
        assert two.cells[cell].count == moments.count
        assert two.cells[cell].mean == pytest.approx(moments.mean, rel=1e-5)  # float32 in other batches
    assert one.per_sample is not None
    assert two.per_sample is not None
    assert sorted(one.per_sample.keys) == sorted(two.per_sample.keys)
    one, two = (unsmooth.load(tmp_path / f"explained{size}.json") for size in (1, 2))
    for frame in ("frame", "head_frame"):
        rows, others = (getattr(e, frame)() for e in (one, two))
        assert rows["input"].tolist() == others["input"].tolist()
        assert rows["layer"].tolist() == others["layer"].tolist()
    assert two.frame()["exponent"].tolist() == pytest.approx(one.frame()["exponent"].tolist(), rel=1e-4, abs=1e-5)
    assert two.about.data == one.about.data
