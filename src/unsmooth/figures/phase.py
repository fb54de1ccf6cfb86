"""The playground's phase diagram as a static figure: exact exponents instead of simulated ones."""

from __future__ import annotations

import numpy as np

from unsmooth.figures.drawing import Drawing, Panel, label
from unsmooth.figures.heads import DIVERGING, colour_at

WIDTH = 1.0  # of the eigenvalue range, as the playground begins


def phase_figure(across: int = 61, down: int = 25) -> Drawing:
    """γ of one head over the centre of H's eigenvalue range and the attention's temperature."""
    from unsmooth.theory.phase import phase_grid

    centres, logs = np.linspace(-1.5, 1.5, across), np.linspace(-1.0, 1.0, down)
    grid = phase_grid(centres.tolist(), (10**logs).tolist(), WIDTH).numpy()
    most = float(np.quantile(np.abs(grid[np.isfinite(grid)]), 0.95)) or 1.0
    drawing = Drawing(520, 360)
    half = (centres[1] - centres[0]) / 2, (logs[1] - logs[0]) / 2
    panel = Panel(drawing, 70, 32, 420, 260, (-1.5 - half[0], 1.5 + half[0]), (-1 - half[1], 1 + half[1]))
    pixels = [[colour_at(DIVERGING, 0.5 + value / (2 * most)) for value in row] for row in grid[::-1]]
    drawing.image(panel.left, panel.top, panel.width, panel.height, np.array(pixels, dtype=np.uint8))
    drawing.text(panel.left, 20, "Where one head smooths or sharpens", size=12, weight="bold", colour="#1c1d20")
    for tick in (-1, 0, 1):
        drawing.text(panel.left - 6, panel.y(tick) + 4, f"{10.0**tick:g}", anchor="end", size=10)
    for centre in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5):
        drawing.text(panel.x(centre), panel.top + panel.height + 15, label(centre), anchor="middle", size=10)
    drawing.text(panel.left + 210, 322, f"centre of H's eigenvalue range (width {WIDTH:g})", anchor="middle")
    drawing.text(24, panel.top + 130, "attention temperature", anchor="middle", turn=-90)
    drawing.text(panel.left, 346, f"exponent γ: blue smooths, orange sharpens, ±{most:.2g} nats per layer", size=10)
    return drawing
