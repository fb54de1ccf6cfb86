"""Several processes walk over parts of the same data and give one result, as one process would.

`accelerate launch -m unsmooth.cli measure …` and `torchrun` start the same command several times and say so in the
environment. Batch by batch the data are dealt out; numbers are merged by their own rules at the end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from unsmooth.analysis.attributing.attributor import Attributor
from unsmooth.analysis.explaining.explanation import Explanation
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.errors import OptionError
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.processes import everybodys


@dataclass(frozen=True)
class Team:
    """This process among all; alone it is the first and only one."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def device(self, asked: str) -> str:
        """The device of this process, where `auto` or `cuda` was asked for and there are several GPUs."""
        if self.size == 1 or asked not in ("auto", "cuda") or not torch.cuda.is_available():
            return asked
        return f"cuda:{int(os.environ.get('LOCAL_RANK', self.rank)) % torch.cuda.device_count()}"

    def own(self, batches: Iterable[Any], alone: int = 0) -> Iterator[tuple[int, Any]]:
        """The batches of this process with their numbers; the first process has the first `alone` of them."""
        for number, batch in enumerate(batches):
            if (0 if number < alone else (number - alone) % self.size) == self.rank:
                yield number, batch

    def share(self, batches: Iterable[Any], alone: int = 0) -> Iterator[Any]:
        """The same without their numbers."""
        return (batch for _, batch in self.own(batches, alone))

    def check(self, batches: int) -> None:
        """OptionError on every process if one of them got no batch."""
        if self.size == 1:
            return
        busy = sum(count > 0 for count in self._all(batches))
        if busy < self.size:
            raise OptionError(
                f"{self.size} processes, but batches for {busy} only: start fewer, or take smaller batches "
                "(--batch-size) or more samples"
            )

    def anybody(self, said: bool) -> bool:
        """Whether any process says so, on every process: a signal comes to each at a time of its own."""
        return any(self._all(said))

    def told(self, mine: Any) -> Any:
        """What the first process has, on every process: a file may be there for one and not yet for another."""
        return self._all(mine if self.first else None)[0]

    def measured(self, mine: Measurement) -> Measurement:
        """The measurement of all samples, on every process."""
        return mine if self.size == 1 else mine.all_reduce()

    def explained(self, mine: Explanation, batch_size: int) -> Explanation:
        """The explanation of all inputs, on every process; rows are in the order of one process."""
        if self.size == 1:
            return mine
        everyone = self._all((mine.layers, mine.heads, mine.notes, mine.about.data.batches, mine.partial))
        layers, heads = (
            sorted((row for part in everyone for row in part[i]), key=lambda row: row["input"] // batch_size)
            for i in (0, 1)
        )
        notes = list(dict.fromkeys(note for part in everyone for note in part[2]))
        counted = replace(mine.about.data, batches=sum(part[3] for part in everyone),
                          inputs=len({row["input"] for row in layers}))  # fmt: skip
        partial = any(part[4] for part in everyone)
        about = replace(mine.about, data=counted)
        return replace(mine, layers=layers, heads=heads, notes=notes, about=about, partial=partial)

    def attributed(self, mine: Attributor) -> None:
        """Give the attributor of every process the sums over all inputs, in the order of processes."""
        everyone = self._all((mine.sums, mine.inputs, mine.batches, mine.carriers))
        mine.sums, _, _, mine.carriers = everyone[0]
        for sums, _, _, carriers in everyone[1:]:
            for policy, found in mine.sums.items():
                found.merge(sums[policy])
            if mine.carriers is not None:
                mine.carriers.merge(carriers)
        mine.inputs, mine.batches = (sum(part[i] for part in everyone) for i in (1, 2))

    def merged(self, mine: list[Moments]) -> list[Moments]:
        """Each of these over the inputs of all processes."""
        first: list[Moments]
        first, *rest = self._all(mine)
        for others in rest:
            for moments, other in zip(first, others, strict=True):
                moments.merge(other)
        return first

    def _all(self, mine: Any) -> list[Any]:
        """What every process has, on every process."""
        return [mine] if self.size == 1 else everybodys(mine)


@contextmanager
def launched() -> Iterator[Team]:
    """The team that a launcher started, if one did; every process must come here, and leaves together."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size < 2 or "RANK" not in os.environ or not dist.is_available():
        yield Team()
        return
    if dist.is_initialized():  # somebody else's: it stays
        yield Team(dist.get_rank(), dist.get_world_size())
        return
    # Without it a process whose work ends at once may close a connection before the other one has accepted it.
    os.environ.setdefault("TORCH_DIST_INIT_BARRIER", "1")
    dist.init_process_group("nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        yield Team(dist.get_rank(), dist.get_world_size())
    finally:
        let_go()
        dist.destroy_process_group()


def let_go() -> None:
    """Give the group's threads time to free the last collective's tensors, before the group is ended.

    They need Python's lock for that. Before torch 2.8 the group's end holds it while it waits for them (pytorch's pull
    request 154976), so both may wait for ever.
    """
    if torch.__version__ < "2.8":  # versions, not text: "2.15" is newer
        time.sleep(0.5)
