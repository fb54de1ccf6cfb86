"""Exponents: what theory predicts for every attention sub-layer beside what it did on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from unsmooth.analysis import Explanation
from unsmooth.analysis.explaining.agreement import Agreement
from unsmooth.figures.axes import line_sample, panel, span
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.palette import model_colour
from unsmooth.figures.text import number_text, percent_text
from unsmooth.prose import counted

if TYPE_CHECKING:
    import pandas as pd


class Series(NamedTuple):
    """A line of the exponents: the page's name, the explanation's column, what it is called and what it is."""

    name: str
    column: str
    title: str
    meaning: str
    colour: str
    dash: str


MEASURED = Series(
    "measured", "measured_ratio", "measured", "the change of log HFC/LFC over the attention sub-layer", "series-0", ""
)
PREDICTIONS = (
    Series("exponent", "exponent", "exponent γ", "log ρ_H − log ρ_L: the rate if this layer were repeated for ever",
           "series-1", "7 3"),
    Series("with_constant", "exponent_constant", "γ with the constant",
           "log ρ_H − log max(ρ_L, 1): γ counts what every token gets, norm bias, b_v and b_proj", "series-1", "2 4"),
    Series("small_step", "small_step", "small-step exponent",
           "γ for a vanishing step, which pre-norm layers approach as the stream grows", "series-2", "9 3 2 3"),
    Series("frozen", "frozen_ratio", "exact linear step",
           "the same change with the normalisation's statistics frozen: one step, no limit", "series-3", "2 2.5"),
    Series("without_constant", "without_constant", "step without the constant",
           "the exact step if norm bias, b_v and b_proj were 0", "series-3", "10 4"),
)  # fmt: skip
SERIES = (MEASURED, *PREDICTIONS)
# What is compared with what on paper: predicted, measured, in words
PAIRS = (
    ("exponent", "measured_ratio", "exponent γ", "Δ log HFC/LFC"),
    ("small_step", "measured_ratio", "small-step γ", "Δ log HFC/LFC"),
    ("log_rho_hfc", "measured_hfc", "log ρ_H", "log HFC gain"),
    ("frozen_hfc", "measured_hfc", "exact linear map", "log HFC gain"),
)


def rates_by_layer(frame: pd.DataFrame) -> dict[str, tuple[list[float], list[float]]]:
    """Mean and standard deviation over inputs of every series that is there, by layer."""
    groups = frame.replace([np.inf, -np.inf], np.nan).groupby("layer")
    return {
        series.name: (groups[series.column].mean().tolist(), groups[series.column].std().tolist())
        for series in SERIES
        if series.column in frame
    }


def rows_of(frame: pd.DataFrame) -> dict[str, list[float]]:
    """Every layer and input whose series are all finite, in columns."""
    series = [each for each in SERIES if each.column in frame]
    kept = frame[np.isfinite(frame[[each.column for each in series]]).all(axis=1)]
    return {name: kept[name].tolist() for name in ("layer", "input")} | {
        s.name: kept[s.column].tolist() for s in series
    }


def line_key(series: Series) -> Drawing:
    """A piece of a series' line, for a legend."""
    drawing = Drawing(30, 10)
    drawing.line([(0, 5), (30, 5)], series.colour, 2, series.dash)
    return drawing


def exponents_panel(
    frame: pd.DataFrame, *, title: str = "", label: str = "", wide: float = 346, tall: float = 240
) -> Drawing:
    """Predicted and measured exponents by layer; the band is one standard deviation of the measured one over inputs."""
    layers = sorted({int(layer) for layer in frame["layer"]})
    found = rates_by_layer(frame)
    mean, std = found["measured"]
    edges = [[m + sign * (s if math.isfinite(s) else 0.0) for m, s in zip(mean, std, strict=True)] for sign in (1, -1)]
    everything = [v for means, _ in found.values() for v in means] + edges[0] + edges[1]
    domain = (layers[0] - 0.4, layers[-1] + 0.4)
    plot = panel(wide, tall, domain, span([*everything, 0.0], 0.08), title=title, x_label="layer",
                 y_label="nats per layer", label=label)  # fmt: skip
    plot.y_axis()
    plot.x_axis(lambda at: str(int(at)), [float(v) for v in layers[:: max(1, math.ceil(len(layers) * 24 / wide))]])
    plot.level(0)
    upper, lower = (plot.at(zip(map(float, layers), edge, strict=True)) for edge in edges)
    plot.drawing.areas([[*upper, *lower[::-1]]], MEASURED.colour, 0.1)
    for series in SERIES:
        if series.name in found:
            line = plot.at(zip(map(float, layers), found[series.name][0], strict=True))
            plot.drawing.line(line, series.colour, 2.5 if series is MEASURED else 2, series.dash)
            plot.drawing.dots(line if len(line) == 1 else [], series.colour, 6)  # no line has one point
    return plot.drawing


def exponents(explanations: Mapping[str, Explanation] | Explanation) -> Drawing:
    """One panel for each model."""
    named = explanations if isinstance(explanations, Mapping) else {"": explanations}
    wide = 760.0 if len(named) == 1 else 400.0
    panels = [
        exponents_panel(explanation.frame(), title=name or "Predicted and measured exponents", wide=wide, tall=290)
        for name, explanation in named.items()
    ]
    figure = grid(panels, across=min(3, len(panels)), bottom=8 + 17 * math.ceil(len(SERIES) / 2))
    figure.label = "Predicted and measured exponents by layer; above zero attention sharpens, below it smooths"
    lines = math.ceil(len(SERIES) / 2)
    for i, series in enumerate(SERIES):
        line_sample(figure, 60 + 170 * (i % 2), figure.height + 12 - 17 * (lines - i // 2), series.colour, series.dash,
                    series.title)  # fmt: skip
    return figure


def agreement_panel(
    predicted: Sequence[float], measured: Sequence[float], colour: str, *, title: str = "", label: str = "",
    x_label: str = "predicted, nats", y_label: str = "measured, nats", wide: float = 346,
) -> Drawing:  # fmt: skip
    """One dot for each layer and input; in the shaded quadrants the predicted sign is the measured one."""
    x, y = np.array(predicted, dtype=float), np.array(measured, dtype=float)
    far = [float(np.abs(v).max(initial=0.0)) * 1.08 or 1.0 for v in (x, y)]
    plot = panel(wide, min(wide * 0.88, 400), (-far[0], far[0]), (-far[1], far[1]), title=title, x_label=x_label,
                 y_label=y_label, label=label)  # fmt: skip
    plot.drawing.rect(plot.x(0), plot.top, plot.width / 2, plot.height / 2, "sharp", 0.07)
    plot.drawing.rect(plot.left, plot.y(0), plot.width / 2, plot.height / 2, "smooth", 0.07)
    plot.y_axis()
    plot.x_axis()
    plot.level(0)
    plot.upright(0)
    plot.drawing.dots(plot.at(zip(x, y, strict=True)), colour, 5.2, 0.6)
    return plot.drawing


def agreement_note(found: Agreement) -> str:
    """How often the sign is right, and how well the order is."""
    if not found.count:
        return "No layer changed anything: there is nothing to agree with."
    steps = counted(found.count, "step")
    said = f"Same sign in {percent_text(found.accuracy)} of {steps} (always guessing the more frequent sign: "
    said += f"{percent_text(found.majority)})"
    if not math.isfinite(found.spearman):
        return f"{said}."
    low, high = (number_text(v, 2) for v in (found.spearman_low, found.spearman_high))
    interval = f" [{low}, {high}], layers and inputs drawn anew" if math.isfinite(found.spearman_low) else ""
    return f"{said}; rank correlation {number_text(found.spearman, 2)}{interval}."


def agreement(explanations: Mapping[str, Explanation] | Explanation) -> Drawing:
    """Predictions against what was measured: a row for each model, a column for each prediction."""
    named = explanations if isinstance(explanations, Mapping) else {"": explanations}
    panels = []
    for index, (name, explanation) in enumerate(named.items()):
        frame = explanation.frame()
        for predicted, measured, said, what in PAIRS:
            if predicted not in frame or measured not in frame:
                continue
            kept = frame[np.isfinite(frame[[predicted, measured]]).all(axis=1)]
            drawing = agreement_panel(
                kept[predicted].tolist(), kept[measured].tolist(), model_colour(index), wide=300,
                title=f"{name + ': ' if name else ''}{said}", x_label=f"predicted: {said}", y_label=f"measured: {what}",
            )  # fmt: skip
            found = explanation.agreement(predicted, measured)
            drawing.height += 18
            if found.count:
                right = f"right sign {percent_text(found.accuracy)} (guessing {percent_text(found.majority)})"
                order = f", ρ {number_text(found.spearman, 2)}" if math.isfinite(found.spearman) else ""
                drawing.text(60, drawing.height - 4, right + order)
            panels.append(drawing)
    figure = grid(panels, across=max(1, len(panels) // len(named)))
    figure.label = "Predicted against measured, one dot for each layer and input"
    return figure
