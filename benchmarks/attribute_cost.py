"""What attribution costs: `attribute` beside the plain forward pass on the same batch.

    python -m benchmarks.attribute_cost [--device cuda] [--model vit_base_patch16_224] [--batch 64] [--depth 12]

Targets for ViT-B: ≤ 1.5× the forward pass on a CPU, ≤ 2× on an H200. The forward pass uses its fused attention. Beside
it stands the forward pass that forms attention matrices and hands them over, which no attribution by head can do
without. The check of the first batch (one input more) is not counted. On a loaded CPU, `--cpu-time` counts the
process's own seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.clock import header, take_turns
from unsmooth.analysis import Attributor
from unsmooth.models import capture_attention, view


def main(arguments: list[str] | None = None) -> None:
    """Print the ratios, measured in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--batch", type=int, default=None, help="64 on CUDA, 4 on the CPU")
    parser.add_argument("--depth", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true")
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    count = asked.batch or (64 if device.type == "cuda" else 4)
    import timm

    torch.manual_seed(0)
    model = timm.create_model(asked.model, pretrained=False, depth=asked.depth, num_classes=0).eval().to(device)
    size = int(model.pretrained_cfg["input_size"][-1])
    batch = torch.randn(count, 3, size, size, device=device)
    print(f"{asked.model}, {asked.depth} layers, batch {count}; {header(device)}")

    def forward() -> None:
        with torch.no_grad():
            model(batch)

    def unfused() -> None:
        with capture_attention(view(model), lambda layer, a: None):
            forward()

    with Attributor(model) as plain, Attributor(model, spectrum=True) as sides:
        for attributor in (plain, sides):
            attributor.update(batch)  # the check, and the folded weights
    found = [plain, sides]

    def attribute(which: int) -> Callable[[], None]:
        def run() -> None:
            with found[which]:
                found[which].update(batch)

        return run

    variants = {"forward": forward, "forward, matrices shown": unfused, "attribute": attribute(0),
                "attribute, spectrum": attribute(1)}  # fmt: skip
    seconds = cpu_turns(variants, asked.rounds) if asked.cpu_time else take_turns(variants, asked.rounds, device)
    for name, median in seconds.items():
        print(f"  {name:26s} {median * 1e3:10.1f} ms  {median / seconds['forward']:6.2f}×")


def cpu_turns(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of this process's own time, in turns after a warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if turn:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
