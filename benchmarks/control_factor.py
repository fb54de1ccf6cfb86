"""Where the factorisation of all layers' Θ takes its time: its parts beside the whole, in one run.

python -m benchmarks.control_factor                 # 12 × 192 × 192, as ViT-Ti has them
python -m benchmarks.control_factor --device cuda   # each inside a CUDA graph, as the training step runs it
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.clock import header, microseconds, take_turns
from unsmooth.control.factor import gram_cholesky


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=192)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.manual_seed(0)
    # as runs start: √2 times the Q of a random matrix
    theta = 2**0.5 * torch.linalg.qr(torch.randn(options.layers, options.width, options.width, device=device))[0]
    wide = theta.double()
    gram = wide.mT @ wide
    lower = torch.linalg.cholesky_ex(gram)[0]
    eye = torch.eye(options.width, dtype=torch.float64, device=device).expand_as(lower)
    cuda = device.type == "cuda"
    whole = torch.compile(gram_cholesky, fullgraph=True, dynamic=False) if cuda else gram_cholesky
    runs = {
        "gram_cholesky, two passes": lambda: whole(theta),
        "one Gram product": lambda: wide.mT @ wide,
        "one Cholesky": lambda: torch.linalg.cholesky_ex(gram),
        "one Cholesky in float32": lambda: torch.linalg.cholesky_ex(gram.float()),
        "one inverse of a triangle": lambda: torch.linalg.solve_triangular(lower, eye, upper=False),
    }
    print(f"{options.layers} × {options.width} × {options.width}, float64; {header(device)}", flush=True)
    if cuda:
        found = {name: microseconds(run) for name, run in runs.items()}
    else:
        found = {name: 1e6 * seconds for name, seconds in take_turns(runs, 10, device).items()}
    (_, total), *_ = found.items()
    for name, spent in found.items():
        print(f"{name}: {spent:.1f} µs, {spent / total:.2f} of the whole", flush=True)


if __name__ == "__main__":
    main()
