"""Two processes that a launcher started write one result, and it is that of one process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import unsmooth
from unsmooth.cli.app import app

transformers = pytest.importorskip("transformers")
COMMANDS = """
import sys
from unsmooth.cli.app import app
for words in sys.argv[1].split(";"):
    app(words.split(), standalone_mode=False)
"""


def started(folder: Path, commands: list[str], size: int) -> None:
    """The commands one after the other in each of `size` processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    workers = []
    for rank in range(size):
        own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, "-c", COMMANDS, ";".join(commands)]
        workers.append(subprocess.Popen(command, env=own, cwd=folder, stderr=subprocess.PIPE, text=True))
    for worker in workers:
        _, said = worker.communicate(timeout=600)
        assert worker.returncode == 0, said


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
        assert two.cells[cell].mean == pytest.approx(moments.mean, rel=1e-9)
    assert one.per_sample is not None
    assert two.per_sample is not None
    assert sorted(one.per_sample.keys) == sorted(two.per_sample.keys)
    one, two = (unsmooth.load(tmp_path / f"explained{size}.json") for size in (1, 2))
    for frame in ("frame", "head_frame"):
        rows, others = (getattr(e, frame)() for e in (one, two))
        assert rows["input"].tolist() == others["input"].tolist()
        assert rows["layer"].tolist() == others["layer"].tolist()
    assert two.frame()["exponent"].tolist() == pytest.approx(one.frame()["exponent"].tolist(), rel=1e-6)
    assert two.about.data == one.about.data
