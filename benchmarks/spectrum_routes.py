"""What the parts of a spectrum cost on a GPU, by size: Gram matrix, all eigenvalues, one shifted Cholesky factor.

    python -m benchmarks.spectrum_routes [--device cuda] [--sides 512 1024 2048 4096]

The effective rank follows from log det(I + G/t) at about twenty shifts t (metrics/determinants.py), so that a factor
twenty times faster than `eigvalsh` is where that route begins to win.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor

from benchmarks.clock import header, take_turns


def main(arguments: list[str] | None = None) -> None:
    """Milliseconds of each part, side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sides", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    torch.manual_seed(0)
    print(header(device))
    for side in asked.sides:
        x = torch.randn(side, side, dtype=torch.float64, device=device)
        shifted = x @ x.mT / side + torch.eye(side, dtype=torch.float64, device=device)
        narrow, four = shifted.float(), shifted.expand(4, side, side).contiguous()
        lanes = [torch.cuda.Stream(device) for _ in range(4)] if device.type == "cuda" else []
        inverse = torch.empty_like(shifted)
        runs = {
            "gram": lambda x=x: x @ x.mT,
            "eigvalsh": lambda a=shifted: torch.linalg.eigvalsh(a),
            "cholesky": lambda a=shifted: torch.linalg.cholesky_ex(a),
            "cholesky float32": lambda a=narrow: torch.linalg.cholesky_ex(a),
            "4 batched": lambda a=four: torch.linalg.cholesky_ex(a),
            "4 on streams": lambda a=four, lanes=lanes: on_streams(a, lanes),
            "geqrf of 64 columns": lambda a=shifted: torch.geqrf(a[:, :64]),
            "triangle inverse": lambda a=shifted, out=inverse: torch.linalg.solve_triangular(
                a, torch.eye(len(a), dtype=a.dtype, device=a.device), upper=False, out=out
            ),
        }
        seconds = take_turns(runs, asked.rounds, device)
        print(f"{side}: " + ", ".join(f"{name} {1e3 * s:.2f} ms" for name, s in seconds.items()))
    for side, count in ((64, 2240), (128, 1120), (256, 256), (512, 64)):
        x = torch.randn(count, side, side, dtype=torch.float64, device=device)
        a = x @ x.mT + torch.eye(side, dtype=torch.float64, device=device)
        seconds = take_turns(
            {
                "cholesky": lambda a=a: torch.linalg.cholesky_ex(a),
                "inverse": lambda a=a: torch.linalg.inv_ex(a),
                "product": lambda a=a: a @ a,
                "solve_triangular": lambda a=a: torch.linalg.solve_triangular(a, a, upper=False),
            },
            asked.rounds,
            device,
        )
        print(f"{count} of {side}: " + ", ".join(f"{name} {1e3 * s:.2f} ms" for name, s in seconds.items()))


def on_streams(matrices: Tensor, lanes: list[torch.cuda.Stream]) -> None:
    """One matrix a stream."""
    if not lanes:
        torch.linalg.cholesky_ex(matrices)
    here = torch.cuda.current_stream() if lanes else None
    for matrix, lane in zip(matrices, lanes, strict=False):
        lane.wait_stream(here)
        with torch.cuda.stream(lane):
            torch.linalg.cholesky_ex(matrix)
    for lane in lanes:
        here.wait_stream(lane)


if __name__ == "__main__":
    main(sys.argv[1:])
