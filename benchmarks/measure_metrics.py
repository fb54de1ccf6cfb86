"""What the metrics alone cost: against the obvious way, on long sequences, and by which route on a GPU.

    python -m benchmarks.measure_metrics [--device cuda] [--batch 64]

Targets: >= 10x shorter than the obvious way at ViT-B's shape; at n = d = 2,048 less than one block's forward.
`benchmarks.measure_model` times whole measurements; NOTES.md says what was tried.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.clock import header, take_turns
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.registry import resolve
from unsmooth.metrics.spectrum import eigenvalues, lapack_eigenvalues

POINTS = 6


def obvious(points: list[Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Stored activations, a full SVD, a token × token cosine matrix."""
    out = []
    for x in points:
        low = x.mean(-2, keepdim=True).expand_as(x)
        ratio = (x - low).norm(dim=(-2, -1)) / low.norm(dim=(-2, -1))
        unit = nn.functional.normalize(x, dim=-1)
        upper = torch.triu_indices(x.shape[-2], x.shape[-2], 1, device=x.device)
        cosine = (unit @ unit.mT)[:, upper[0], upper[1]].mean(-1)
        _, sigma, _ = torch.linalg.svd(x)
        p = sigma / sigma.sum(-1, keepdim=True)
        out.append((ratio, cosine, torch.special.entr(p).sum(-1).exp()))
    return out


def ours(points: list[Tensor]) -> dict[int, dict[str, Tensor]]:
    """The same values by the evaluator."""
    evaluator: Evaluator[int] = Evaluator(resolve("paper"))
    for index, x in enumerate(points):
        evaluator.add(index, x)
    return evaluator.flush()


def against_the_obvious(device: torch.device, batch: int, rounds: int) -> None:
    """Time both on stored features of ViT-B's shape."""
    points = [torch.randn(batch, 197, 768, device=device) + torch.randn(768, device=device) for _ in range(POINTS)]
    seconds = take_turns({"ours": partial(ours, points), "obvious": partial(obvious, points)}, rounds, device)
    each = {name: 1e3 * value / POINTS for name, value in seconds.items()}
    print(f"{batch} x 197 x 768: {each['ours']:.2f} ms per point, the obvious way {each['obvious']:.1f} ms", end=": ")
    print(f"{each['obvious'] / each['ours']:.1f}x shorter")


def long_sequence(device: torch.device, rounds: int, tokens: int = 2048, dim: int = 2048) -> None:
    """Time one point against one Transformer block's forward at that size."""
    block = nn.TransformerEncoderLayer(dim, 16, 4 * dim, batch_first=True, norm_first=True).eval().to(device)
    x = torch.randn(1, tokens, dim, device=device)
    seconds = take_turns({"block": partial(block, x), "ours": partial(ours, [x])}, rounds, device)
    mine, forward = 1e3 * seconds["ours"], 1e3 * seconds["block"]
    print(f"1 x {tokens} x {dim}: {mine:.0f} ms per point, one block's forward {forward:.0f} ms", end=": ")
    print(f"{mine / forward:.2f} of it")


def gpu_routes(device: torch.device, batch: int, rounds: int) -> None:
    """Time the ways to the eigenvalues of the Gram matrices of 12 points."""
    x = torch.randn(12 * batch, 197, 256, device=device, dtype=torch.float64)
    matrices = x @ x.mT
    routes = {
        "our kernel": partial(eigenvalues, matrices),
        "torch.linalg on the GPU": partial(torch.linalg.eigvalsh, matrices[:batch]),
        "LAPACK on the CPU, with transfer": lambda: lapack_eigenvalues(matrices[:batch].cpu()),
    }
    for name, seconds in take_turns(routes, rounds, device).items():
        count = len(matrices) if name == "our kernel" else batch
        print(f"{name}: {1e6 * seconds / count:.1f} us per 197 x 197 matrix")


def main(arguments: list[str] | None = None) -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    print(header(device))
    with torch.inference_mode():
        against_the_obvious(device, asked.batch, asked.rounds)
        long_sequence(device, asked.rounds)
        if device.type == "cuda":
            gpu_routes(device, asked.batch, asked.rounds)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
