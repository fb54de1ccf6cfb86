"""What measuring costs beside the plain forward pass: ViT-B/16, the paper's three metrics.

    python -m benchmarks.measure_model [--device cuda] [--batch 64]

Targets: CPU, batch 8: ≤ 1.25× at the residual points, ≤ 1.6× at all points, metrics ≥ 10× faster than the obvious
way; CUDA: ≤ 4× at all points.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from unsmooth.measure import Measurer
from unsmooth.models import hook_points, select_points, view


def main(arguments: list[str] | None = None) -> None:
    """Time the variants in turn, round after round, so that all see the same machine; print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(arguments or [])
    import timm

    torch.manual_seed(0)
    model = timm.create_model(asked.model, pretrained=False).eval().to(asked.device)
    batch = torch.randn(asked.batch, *model.pretrained_cfg["input_size"], device=asked.device)
    variants: dict[str, Callable[[], object]] = {
        "plain forward": lambda: plain(model, batch),
        "measured, residual points": lambda: measured(model, batch, "residual"),
        "measured, all points": lambda: measured(model, batch, "all"),
    }
    times = {name: [] for name in variants}
    for number in range(asked.rounds + 1):
        for name, run in variants.items():
            seconds = clock(run, asked.device)
            if number:  # the first round warms up
                times[name].append(seconds)
    medians = {name: statistics.median(values) for name, values in times.items()}
    forward = medians["plain forward"]
    print(
        f"{asked.model}, batch {asked.batch}, {asked.device}, {torch.get_num_threads()} threads, {asked.rounds} rounds"
    )
    for name, median in medians.items():
        spread = max(times[name]) - min(times[name])
        print(f"  {name:28s} {median * 1e3:9.1f} ms  {median / forward:6.2f}×  (spread {spread * 1e3:.1f} ms)")
    slow = clock(lambda: obvious(model, batch), asked.device) - forward
    fast = medians["measured, all points"] - forward
    print(
        f"  metrics, the obvious way     {slow * 1e3:9.1f} ms more than the forward: ours is {slow / fast:.1f}× faster"
    )


def plain(model: nn.Module, batch: Tensor) -> None:
    """The forward pass alone."""
    with torch.no_grad():
        model(batch)


def measured(model: nn.Module, batch: Tensor, points: str) -> None:
    """One batch through the measurer, set-up included."""
    with Measurer(model, points=points, degenerate="keep") as measurer:
        measurer.update(batch)


def obvious(model: nn.Module, batch: Tensor) -> None:
    """Store all distinct activations, then a full SVD and an n × n cosine matrix of each."""
    stored: dict[int, Tensor] = {}
    v = view(model)
    with torch.no_grad(), hook_points(v, select_points(v, "all"), lambda point, x: stored.setdefault(id(x), x)):
        model(batch)
    for x in stored.values():
        mean = x.mean(1, keepdim=True)
        _ = (x - mean).norm(dim=(1, 2)) / mean.expand_as(x).norm(dim=(1, 2))
        s = torch.linalg.svd(x, full_matrices=False).S
        p = s / s.sum(-1, keepdim=True)
        _ = torch.special.entr(p).sum(-1).exp()
        n = x.shape[1]
        cosine = gram(x)
        _ = (cosine.sum((1, 2)) - n) / (n * (n - 1))


def gram(x: Tensor) -> Tensor:
    """The n × n cosine matrix."""
    unit = nn.functional.normalize(x, dim=-1)
    return unit @ unit.mT


def clock(run: Callable[[], object], device: str) -> float:
    """Seconds of one call, the device's work included."""
    synchronise = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    synchronise()
    start = time.perf_counter()
    run()
    synchronise()
    return time.perf_counter() - start


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
