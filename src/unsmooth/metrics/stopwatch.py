"""How long a part of the work takes, without waiting for the device that does it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Adds up the seconds spent inside `on`; a GPU's are marked on its stream and read later."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._marks: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def on(self, device: torch.device) -> Iterator[None]:
        """Work on this device."""
        if device.type == "cuda":
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record(torch.cuda.current_stream(device))
            yield
            stop.record(torch.cuda.current_stream(device))
            self._marks.append((start, stop))
        else:
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began

    def read(self) -> float:
        """The seconds since the last reading; waits for a GPU's last mark."""
        for _, stop in self._marks[-1:]:
            stop.synchronize()
        total = self._seconds + sum(start.elapsed_time(stop) for start, stop in self._marks) / 1e3
        self._seconds, self._marks = 0.0, []
        return total
