"""Curves of training runs: by depth or by epoch, one line for each kind of run, over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unsmooth.figures.axes import line_sample, panel, span
from unsmooth.figures.drawing import Drawing, grid

# What a run was trained to do has the colour of what that does; solid is the poster's form on the largest share of the
# data, dashed another form or less data.
RUN_COLOURS = {"plain": "ink", "sharpening": "sharp", "smoothing": "smooth"}
RUN_DASHES = ("", "7 3", "2 2.5")


class Run(NamedTuple):
    """A kind of run: its variant, the share of the data it saw, and what the legend says of it."""

    variant: str
    share: float
    name: str

    @property
    def colour(self) -> str:
        """That of the sign, whatever its form."""
        return RUN_COLOURS.get(self.variant.partition("-")[0], "soft")

    @property
    def kind(self) -> tuple[float, str]:
        """The share of the data, the largest first, and the form, the poster's first: runs of one kind look alike."""
        return -self.share, self.variant.partition("-")[2]


def runs_figure(
    panels: Mapping[str, Mapping[Run, tuple[Sequence[float], Sequence[Sequence[float]]]]], x_label: str, label: str
) -> Drawing:
    """One panel for each quantity.

    Args:
        panels: quantity -> kind of run -> where (depths, epochs), and one list of values for each seed.
        x_label: what the places are.
        label: what the figure shows.
    """
    runs = list(dict.fromkeys(run for found in panels.values() for run in found))
    kinds = sorted({run.kind for run in runs})
    styles = {run: (run.colour, RUN_DASHES[min(kinds.index(run.kind), 2)]) for run in runs}
    drawn = []
    for title, found in panels.items():
        lines = {run: (list(map(float, at)), *over_seeds(values)) for run, (at, values) in found.items()}
        edges = [v for _, mean, std in lines.values() for v in (*(mean - std), *(mean + std))]
        places = [x for at, _, _ in lines.values() for x in at]
        domain = (min(places), max(places)) if len(set(places)) > 1 else (places[0] - 0.5, places[0] + 0.5)
        plot = panel(330, 270, domain, span(map(float, edges)), title=title, x_label=x_label)
        plot.y_axis()
        plot.x_axis(whole=True)
        for run, (at, mean, std) in lines.items():
            colour, dash = styles[run]
            plot.band(at, mean - std, mean + std, colour)
            line = plot.at(zip(at, mean.tolist(), strict=True))
            plot.drawing.line(line, colour, 2, dash)
            plot.drawing.dots(line if len(line) <= 16 else [], colour, 4.5)
        drawn.append(plot.drawing)
    across = min(4, len(drawn))
    columns = max(1, int((across * 346) // 240))
    figure = grid(drawn, across=across, bottom=10 + 17 * math.ceil(len(runs) / columns))
    figure.label = label
    rows = math.ceil(len(runs) / columns)
    for i, run in enumerate(runs):
        x, y = 44 + 240 * (i % columns), figure.height - 4 - 17 * (rows - 1 - i // columns)
        line_sample(figure, x, y, *styles[run], run.name)
    return figure


def over_seeds(values: Sequence[Sequence[float]] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the first axis; one seed has none."""
    found = np.array(values, dtype=float)
    return found.mean(0), found.std(0, ddof=1) if len(found) > 1 else np.zeros(found.shape[1])
