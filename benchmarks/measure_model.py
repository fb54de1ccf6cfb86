"""What measuring costs beside the plain forward pass: ViT-B/16, the paper's three metrics.

    python -m benchmarks.measure_model [--device cuda] [--batch 64] [--precision float32|tf32|bf16]

Targets: CPU, batch 8: ≤ 1.25× at the residual points, ≤ 1.6× at all points, metrics ≥ 10× faster than the obvious
way; CUDA: ≤ 4× at all points.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor, nn

from benchmarks.clock import header, take_turns
from unsmooth.analysis import Measurer
from unsmooth.models import hook_points, select_points, view


def main(arguments: list[str] | None = None) -> None:
    """Time the variants in turn, so that all see the same machine; print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="float32", choices=["float32", "tf32", "bf16"])
    asked = parser.parse_args(arguments or [])
    import timm

    torch.set_float32_matmul_precision("high" if asked.precision == "tf32" else "highest")

    torch.manual_seed(0)
    device = torch.device(asked.device)
    model = timm.create_model(asked.model, pretrained=False).eval().to(device)
    batch = torch.randn(asked.batch, *model.pretrained_cfg["input_size"], device=device)
    variants = {
        "plain forward": lambda: plain(model, batch),
        "measured, residual points": lambda: measured(model, batch, "residual"),
        "measured, all points": lambda: measured(model, batch, "all"),
    }
    with torch.autocast(device.type, torch.bfloat16, enabled=asked.precision == "bf16"):
        seconds = take_turns(variants, asked.rounds, device)
        slow = take_turns({"obvious": lambda: obvious(model, batch)}, 1, device)["obvious"]
    forward = seconds["plain forward"]
    print(f"{asked.model}, batch {asked.batch}, {asked.precision}; {header(device)}")
    for name, median in seconds.items():
        print(f"  {name:28s} {median * 1e3:9.1f} ms  {median / forward:6.2f}×")
    ratio = (slow - forward) / (seconds["measured, all points"] - forward)
    print(f"  {'the obvious way, all points':28s} {slow * 1e3:9.1f} ms; its metrics take {ratio:.1f}× as long as ours")


def plain(model: nn.Module, batch: Tensor) -> None:
    """The forward pass alone."""
    with torch.no_grad():
        model(batch)


def measured(model: nn.Module, batch: Tensor, points: str) -> None:
    """One batch through the measurer, set-up included."""
    with Measurer(model, points=points) as measurer:
        measurer.update(batch)


def obvious(model: nn.Module, batch: Tensor) -> None:
    """Store all distinct activations, then a full SVD and an n × n cosine matrix of each."""
    stored: dict[int, Tensor] = {}
    v = view(model)
    with torch.no_grad(), hook_points(v, select_points(v, "all"), lambda point, x: stored.setdefault(id(x), x)):
        model(batch)
    for x in stored.values():
        n = x.shape[1]
        mean = x.mean(1, keepdim=True).expand_as(x)
        _ = (x - mean).norm(dim=(1, 2)) / mean.norm(dim=(1, 2))
        unit = nn.functional.normalize(x, dim=-1)
        _ = ((unit @ unit.mT).sum((1, 2)) - n) / (n * (n - 1))
        s = torch.linalg.svd(x.float()).S
        _ = torch.special.entr(s / s.sum(-1, keepdim=True)).sum(-1).exp()


if __name__ == "__main__":
    main(sys.argv[1:])
