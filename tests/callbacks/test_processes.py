"""Two processes that train together: the first reads, both stop, nobody waits for ever."""

from __future__ import annotations

import os
import socket
import sys
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import run_twice
from torch import nn

from unsmooth.callbacks import Reading, watch
from unsmooth.errors import UnsmoothError

pytestmark = pytest.mark.skipif(
    not dist.is_available() or sys.platform == "win32", reason="needs torch.distributed with gloo"
)
PROBE = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(1))


def encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def alarm_at_four(reading: Reading) -> str | None:
    return "four" if reading.step == 4 else None


def broken_at_four(reading: Reading) -> None:
    if reading.step == 4:
        raise OSError("disk full")


def train(model: nn.Module, rank: int, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(steps):
        model(torch.randn(2, 7, 16)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "watched": {},
    "alarm": {"alarm": alarm_at_four},
    "failing": {"alarm": broken_at_four},
}


def work(rank: int, port: int, folder: str) -> None:
    """One process; it trains once for each kind, because starting processes is slow."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=60))
    found: dict[str, Any] = {}
    for kind, options in KINDS.items():
        model = nn.parallel.DistributedDataParallel(encoder())
        said, steps = "finished", []
        if kind == "plain":
            train(model, rank, 6)
        else:
            watcher = watch(model, PROBE, every=2, **options)
            try:
                with watcher:
                    train(model, rank, 6)
            except (UnsmoothError, OSError) as error:
                said = f"{type(error).__name__}: {error}"
            steps = [r.step for r in watcher.history]
        found[kind] = {"said": said, "steps": steps, "state": model.module.state_dict()}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run_twice(work, port, str(folder))
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)]


def test_only_the_first_process_reads_and_the_training_is_bit_equal(ranks: list[dict[str, Any]]) -> None:
    assert [found["watched"]["said"] for found in ranks] == ["finished", "finished"]
    assert [found["watched"]["steps"] for found in ranks] == [[0, 2, 4, 6], []]
    for found in ranks:
        for name, value in ranks[0]["plain"]["state"].items():
            assert torch.equal(value, found["watched"]["state"][name]), name


def test_an_alarm_stops_every_process(ranks: list[dict[str, Any]]) -> None:
    assert [found["alarm"]["said"] for found in ranks] == [
        "SmoothingAlarm: step 4: four",
        "SmoothingAlarm: a bound was crossed at step 4: see the first process",
    ]


def test_a_failure_of_the_first_process_reaches_the_others(ranks: list[dict[str, Any]]) -> None:
    assert [found["failing"]["said"] for found in ranks] == [
        "OSError: disk full",
        "UnsmoothError: measuring failed on another process at step 4: see its error",
    ]
