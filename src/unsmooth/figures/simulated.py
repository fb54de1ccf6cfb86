"""One layer, iterated: the paper's Figure 3, and the regimes over eigenvalues and temperature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from unsmooth.errors import OptionError
from unsmooth.figures.axes import line_sample, log_ticks, panel, span
from unsmooth.figures.by_head import colour_bar
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.palette import DIVERGING, ramp
from unsmooth.figures.text import number_text, power_text
from unsmooth.figures.trained import over_seeds
from unsmooth.prose import counted
from unsmooth.theory.phase import phase_grid
from unsmooth.theory.scenario import FORMS, NORMS, Scenario

_NORMS = {None: "no LN", "pre": "Pre-LN", "post": "Post-LN"}


def norm_impact(curves: Mapping[Scenario, Tensor]) -> Drawing:
    """HFC/LFC against iterations: without, with Pre- and with Post-LN, both signs of its weights, both forms of H.

    `curves` are log10 HFC/LFC by seed and iteration (`unsmooth.theory.scenario.log10_curves`). Lines are means over
    seeds, bands one standard deviation; orange is the sharpening H, blue the smoothing one.
    """
    if not curves:
        raise OptionError("seeds must name at least one seed")
    seeds, steps = next(iter(curves.values())).shape
    panels = []
    for form in FORMS:
        for norm in NORMS:
            chosen = {s: over_seeds(c.numpy()) for s, c in curves.items() if (s.form, s.norm) == (form, norm)}
            edges = [v for mean, std in chosen.values() for v in (*(mean - std), *(mean + std))]
            plot = panel(350, 270, (0.0, steps - 1.0), span(map(float, edges)), title=f"{_NORMS[norm]}, {form} H",
                         x_label="iteration", y_label="HFC/LFC", left=66)  # fmt: skip
            plot.y_axis(power_text, log_ticks(*plot.y_domain))
            plot.x_axis(whole=True)
            for scenario, (mean, std) in sorted(chosen.items(), key=lambda item: -item[0].sign):  # dashes lie on top
                colour = "sharp" if scenario.mode == "sharpening" else "smooth"
                plot.band(range(steps), mean - std, mean + std, colour)
                plot.drawing.line(plot.at(enumerate(mean.tolist())), colour, 2, "" if scenario.sign > 0 else "6 4")
            panels.append(plot.drawing)
    figure = grid(panels, across=3, top=26, bottom=26)
    figure.label = f"One layer iterated, {counted(seeds, 'seed')}: HFC/LFC by normalisation"
    figure.title(8, 16, figure.label)
    for i, (mode, colour) in enumerate((("sharpening", "sharp"), ("smoothing", "smooth"))):
        for j, (sign, dash) in enumerate((("positive", ""), ("negative", "6 4"))):
            said = f"{mode} H, {sign} LN weights"
            line_sample(figure, 60 + 260 * (2 * i + j), figure.height - 8, colour, dash, said)
    return figure


def phase(
    centres: Sequence[float] | None = None, temperatures: Sequence[float] | None = None, width: float = 0.5,
    seeds: Iterable[int] = range(4),
) -> Drawing:  # fmt: skip
    """γ of one head over the centre of H's eigenvalue range and the attention's temperature; the line is γ = 0."""
    across = list(centres) if centres is not None else np.linspace(-2.75, 1.25, 65).tolist()
    down = list(temperatures) if temperatures is not None else np.geomspace(0.03, 10, 30).tolist()
    found = phase_grid(across, down, width, seeds=seeds).numpy()
    finite = np.abs(found[np.isfinite(found)])
    most = (float(np.quantile(finite, 0.95)) if finite.size else 1.0) or 1.0
    logs = np.log10(down)
    half = [(values[-1] - values[0]) / max(1, len(values) - 1) / 2 for values in (across, logs)]
    plot = panel(
        640, 430, (across[0] - half[0], across[-1] + half[0]), (float(logs[0] - half[1]), float(logs[-1] + half[1])),
        title="Where one head smooths or sharpens", x_label=f"centre of H's eigenvalue range (width {width:g})",
        y_label="attention temperature",
    )  # fmt: skip
    drawing = plot.drawing
    drawing.image(*plot.frame, ramp(DIVERGING, 0.5 + found[::-1] / (2 * most)))
    plot.x_axis()
    for tick in (t for t in range(-3, 3) if plot.y_domain[0] <= t <= plot.y_domain[1]):
        drawing.text(plot.left - 6, plot.y(tick) + 3.8, power_text(tick), anchor="end")
    drawing.lines([plot.at(line) for line in _zero_line(across, logs.tolist(), found)], "ink", 1.8)
    drawing.height += 26
    reach = f"{number_text(most, 2)} nats per layer"
    colour_bar(drawing, plot.left, drawing.height - 16, True, f"smooths, γ = −{reach}", f"sharpens, γ = {reach}")
    return drawing


def _zero_line(across: list[float], down: list[float], found: np.ndarray) -> list[list[tuple[float, float]]]:
    """Where γ changes its sign from one centre to the next; a line follows one kind of change over the temperatures."""
    crossings: dict[tuple[bool, int], list[tuple[float, float]]] = {}
    for row, values in enumerate(found):
        count = {True: 0, False: 0}
        for i in np.flatnonzero(np.diff(np.sign(values)) != 0):
            left, right = values[i], values[i + 1]
            at = across[i] + left / (left - right) * (across[i + 1] - across[i])
            crossings.setdefault((bool(right > left), count[bool(right > left)]), []).append((at, down[row]))
            count[bool(right > left)] += 1
    return [line for line in crossings.values() if len(line) > 1]
