"""Timing that is fair under noise: the contenders take turns, and each reports its median."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping

import torch


def take_turns(runs: Mapping[str, Callable[[], object]], rounds: int, device: torch.device) -> dict[str, float]:
    """Median seconds of each run, all of them called once per round after one round of warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            synchronize(device)
            start = time.perf_counter()
            run()
            synchronize(device)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def synchronize(device: torch.device) -> None:
    """Wait for the device's queue."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def header(device: torch.device) -> str:
    """Where the numbers come from."""
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    else:
        where = f"{platform.machine()} CPU, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
    return f"{where}; torch {torch.__version__}; {time.strftime('%Y-%m-%d')}"


def captured(run: Callable[[], object], times: int = 1) -> Callable[[], None]:
    """The replay of a CUDA graph that holds `run` so many times."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            run()

    def replay(_kept: Callable[[], object] = run) -> None:  # a graph keeps nothing alive: whoever replays it must
        graph.replay()

    return replay


def microseconds(run: Callable[[], object], times: int = 20, rounds: int = 6) -> float:
    """Of one run on a CUDA GPU: the fastest replay of a graph that holds many."""
    replay, best = captured(run, times), float("inf")
    for _ in range(rounds):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        replay()
        stop.record()
        torch.cuda.synchronize()
        best = min(best, 1e3 * start.elapsed_time(stop) / times)
    return best
