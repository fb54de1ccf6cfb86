"""How far LayerNorm's weights carry eigenvalues out of the interval a form guarantees (docs/control.md).

    python -m benchmarks.control_leak

Sharpening (Λ uniform in [−1, 0]), d = 32; the largest real part of the eigenvalues of C Γ W_V W_proj.
"""

from __future__ import annotations

import torch

from unsmooth.control.forms import FORMS
from unsmooth.metrics.tolerance import tolerance

DIM, DRAWS = 32, 200


def main() -> None:
    """One line per form and kind of weight: the worst real part, and the share of draws with a positive one."""
    generator = torch.Generator().manual_seed(0)
    centring = torch.eye(DIM, dtype=torch.float64) - 1 / DIM
    for name, form in FORMS.items():
        theta = torch.randn(DRAWS, DIM, DIM, generator=generator, dtype=torch.float64) * (2 / DIM) ** 0.5
        eigenvalues = -torch.rand(DRAWS, DIM, generator=generator, dtype=torch.float64)
        w_v, w_proj = form.assemble(theta, eigenvalues)
        varying = torch.rand(DRAWS, DIM, generator=generator, dtype=torch.float64)
        for label, weight in {
            "weights in [0, 1]": varying,
            "weight 1 (centring alone)": torch.ones_like(varying),
        }.items():
            real = torch.linalg.eigvals(centring * weight[:, None] @ w_v @ w_proj).real.amax(-1)
            positive = (real > tolerance(torch.float64, DIM, factor=1e4)).double().mean()
            print(
                f"  {name:10s} {label:26s} largest real part {real.max():+.3g}, positive in {positive:.0%} of {DRAWS}"
            )


if __name__ == "__main__":
    main()
