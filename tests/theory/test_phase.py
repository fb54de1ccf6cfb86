from __future__ import annotations

from unsmooth.theory.phase import phase_grid


def test_phase_grid_has_corollary_3s_regimes() -> None:
    grid = phase_grid([-0.5, 0.5], [0.3, 3.0], width=0.4, tokens=12, dim=6, seeds=range(2))
    assert bool((grid[:, 0] > 0).all())
    assert bool((grid[:, 1] < 0).all())
