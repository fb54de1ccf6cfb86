"""Two processes that train together: the first reads, both stop, nobody waits for ever."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from processes import joined, run_twice
from torch import nn
from versions import NEEDS_FSDP_ON_A_CPU

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


def work(rank: int, folder: str) -> None:
    """One process; it trains once for each kind, because starting processes is slow."""
    torch.set_num_threads(1)
    with joined(rank, folder):
        found = {kind: trained(rank, kind, options) for kind, options in KINDS.items()}
        torch.save(found, f"{folder}/{rank}.pt")


def trained(rank: int, kind: str, options: dict[str, Any]) -> dict[str, Any]:
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
    return {"said": said, "steps": steps, "state": model.module.state_dict()}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of the two processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    run_twice(work, str(folder))
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


def fail_in_the_middle(rank: int, folder: str) -> None:
    """A sharded model, one of whose processes fails while both measure it."""
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    model: Any = encoder()
    if rank:
        model.layers[0].register_forward_pre_hook(_no_memory)
    try:
        with joined(rank, folder):
            for layer in model.layers:
                fully_shard(layer)
            with watch(model, PROBE):
                raise AssertionError("the first reading is on entering")
    except (MemoryError, UnsmoothError, RuntimeError) as error:
        Path(folder, f"{rank}.txt").write_text(f"{type(error).__name__}: {error}")


def _no_memory(*given: Any) -> None:
    raise MemoryError("no memory is left")


@NEEDS_FSDP_ON_A_CPU
def test_a_process_that_fails_among_shards_says_nothing_that_could_be_taken_for_one(tmp_path: Path) -> None:
    run_twice(fail_in_the_middle, str(tmp_path))  # Aborted, if gloo meets a word where it expects a weight
    first, second = ((tmp_path / f"{rank}.txt").read_text() for rank in (0, 1))
    assert "no memory is left" in second
    assert "RuntimeError: " in first  # of gloo: the other end is gone
