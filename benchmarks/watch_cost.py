"""What `unsmooth.watch` costs at its default rate, as a share of the training time.

    python -m benchmarks.watch_cost [--device cuda] [--batch 96] [--steps 2000 --every 0] [--compile]

Target: ≤ 2 %. A ViT-Ti for 32 × 32 images (patch 4) trains on noise with AdamW; the probe is one training batch, read
at `blocks.*.post` with the paper's three metrics. `cost` is the share that the readings after the first one took;
`against plain` is the watched time over that of as many plain steps, half of them before and half after. To be quick it
reads every 10 steps, and says what one reading costs at the default rate of 500; `--every 0` really uses that rate.
`--compile` compiles the model; `between` is then a watched step without a reading over a plain one, and graphs that are
compiled again and breaks between graphs are counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.clock import header, synchronize
from unsmooth.callbacks import watch
from unsmooth.callbacks.watcher import DEFAULT_EVERY


def main(arguments: list[str] | None = None) -> None:
    """Train twice in turn, once watched, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--every", type=int, default=10, help="0: the default rate")
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--compile", action="store_true")
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    print(header(device))
    import timm

    torch.manual_seed(0)
    options = {"img_size": 32, "patch_size": 4, "num_classes": 100, "depth": asked.depth}
    model = timm.create_model("vit_tiny_patch16_224", **options).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    images = torch.randn(asked.batch, 3, 32, 32, device=device)
    labels = torch.randint(100, (asked.batch,), device=device)
    if asked.compile:
        model = torch.compile(model)
    train(model, optimizer, images, labels, 5)  # warm-up
    graphs, breaks = compiled_graphs(), graph_breaks()
    half = asked.steps // 2
    plain = train(model, optimizer, images, labels, half)
    with watch(model, images, asked.every or None) as watcher:
        watched = train(model, optimizer, images, labels, 2 * half)
        cost = watcher.cost
    plain += train(model, optimizer, images, labels, half)
    readings, step = watcher.history[1:], plain / (2 * half)
    print(f"ViT-Ti, {asked.depth} layers, 65 tokens, batch {asked.batch}, {2 * half} steps of {1e3 * step:.1f} ms")
    print(
        f"  read after steps {[r.step for r in readings]}: cost {100 * cost:.2f} %; "
        f"against plain {watched / plain:.3f}×"
    )
    if asked.compile:
        between = [hooked(model, optimizer, images, labels, half) for _ in range(5)]
        print(
            f"  compiled: between {statistics.median(between):.3f}× ({min(between):.3f} to {max(between):.3f} in 5 "
            f"turns), {compiled_graphs() - graphs} graphs compiled again, {graph_breaks() - breaks} graph "
            f"breaks beside {breaks}"
        )
    if readings:
        each = statistics.median(reading.seconds for reading in readings)
        share = 100 * each / (DEFAULT_EVERY * step)
        print(f"  one reading takes {1e3 * each:.0f} ms, {each / step:.2f} steps: {share:.2f} % at the default rate")


def hooked(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, steps: int) -> float:
    """Steps under a watch that reads at their end only, over plain ones, by the CPU's time where it does the work."""
    clock = time.perf_counter if x.is_cuda else time.process_time
    plain = train(model, optimizer, x, y, steps, clock)
    with watch(model, x, steps + 1):
        watched = train(model, optimizer, x, y, steps, clock)
    return watched / plain


def compiled_graphs() -> int:
    """How many graphs torch has compiled so far."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def graph_breaks() -> int:
    """At how many places torch has cut a graph so far."""
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    steps: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Seconds of so many steps."""
    model.train()
    synchronize(x.device)
    start = clock()
    for _ in range(steps):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    synchronize(x.device)
    return clock() - start


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
