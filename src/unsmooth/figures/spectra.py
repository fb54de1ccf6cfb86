"""Static figures of an explanation: eigenvalues, their distribution, exponents, prediction against measurement."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsmooth.figures.drawing import INK, MODEL_COLOURS, SHARP, SMOOTH, SOFT, ZERO, Drawing, Panel, span
from unsmooth.figures.text import percent_text

AT_ZERO = "zero: a direction that H takes away"
# in the order of drawing: what lies at zero lies on top
SIDES = {"left of zero": SHARP, "right of zero": SMOOTH, "outside the frame, drawn at its edge": INK, AT_ZERO: ZERO}
Indexed = list[tuple[int, dict[str, Any]]]
SERIES = (
    ("measured", "measured", "#1c1d20", ""),
    ("frozen", "exact linear step", "#9a958a", "2 2.5"),
    ("exponent", "exponent γ", "#7a4fb5", "7 3"),
    ("small_step", "small-step exponent", "#11866f", "9 3 2 3"),
)


def spectra_figure(model: dict[str, Any]) -> Drawing:
    """Eigenvalues of Σ_h H_h of every layer, as they act: folded where that is known."""
    layers = model["explain"]["spectra"]
    across = min(4, len(layers))
    bottom = 40 + 222 * math.ceil(len(layers) / across)
    drawing = Drawing(20 + 220 * across, bottom)
    drawing.text(20, 20, f"{model['name']}: eigenvalues of H by layer", size=13, weight="bold", colour="#1c1d20")
    there: set[str] = set()
    for i, layer in enumerate(layers):
        values = layer.get("folded", layer["raw"])["layer"]
        where = (50 + 220 * (i % across), 56 + 222 * (i // across))
        there |= _plane(drawing, where, np.array(values["re"]), np.array(values["im"]), f"layer {layer['layer']}")
    for row, side in enumerate(side for side in SIDES if side in there):
        drawing.height = bottom + 16 * (row + 1)
        drawing.dots([(25, drawing.height - 14)], SIDES[side], 7, 1)
        drawing.text(35, drawing.height - 10, side)
    return drawing


def _plane(
    drawing: Drawing, where: tuple[float, float], re: NDArray[np.float64], im: NDArray[np.float64], title: str
) -> set[str]:
    """One layer's eigenvalues with the regime's regions; returns the sides on which there are any."""
    sizes = np.hypot(re, im)  # one far eigenvalue does not push the others into one spot
    most = float(min(sizes.max(), 4 * np.quantile(sizes, 0.98))) * 1.15 or 1.0
    panel = Panel(drawing, *where, 160, 160, (-most, most), (-most, most))
    drawing.rect(panel.x(0), panel.top, panel.width / 2, panel.height, SMOOTH, 0.08)
    panel.axes(title)
    drawing.line([(panel.x(0), panel.top), (panel.x(0), panel.top + panel.height)], SOFT)
    # Corollary 3: [−1, 0) sharpens, (0, ∞) smooths
    for colour, ends in ((SHARP, (max(-1.0, -most), 0.0)), (SMOOTH, (0.0, most))):
        drawing.line([(panel.x(end), panel.y(0)) for end in ends], colour, 2.5)
    circle = [(math.cos(turn) - 1, math.sin(turn)) for turn in np.linspace(0, 2 * math.pi, 121)]
    drawing.line([(panel.x(a), panel.y(b)) for a, b in circle], SHARP, 1, "3 3", inside=panel)
    far, zero = (np.abs(re) > most) | (np.abs(im) > most), sizes == 0
    near = ~far & ~zero
    drawn = dict(zip(SIDES, (near & (re < 0), near & (re >= 0), far, zero), strict=True))
    for side, chosen in drawn.items():
        points = zip(np.clip(re[chosen], -most, most), np.clip(im[chosen], -most, most), strict=True)
        if side == AT_ZERO:  # many in one spot: larger, with a rim
            drawing.dots([(panel.x(0), panel.y(0))] if chosen.any() else [], INK, 8, 1)
        size, opacity = (6.5, 1.0) if side == AT_ZERO else (3, 0.7)
        drawing.dots([(panel.x(a), panel.y(b)) for a, b in points], SIDES[side], size, opacity)
    return {side for side, chosen in drawn.items() if chosen.any()}


def histograms_figure(models: Indexed) -> Drawing:
    """Figure 5's form: real parts of the heads' eigenvalues over all layers, bare weights."""
    drawing = Drawing(30 + 330 * len(models), 270)
    for column, (_, model) in enumerate(models):
        values = np.array([v for layer in model["explain"]["spectra"] for v in layer["raw"]["heads"]["re"]])
        most = float(np.quantile(np.abs(values), 0.99)) or 1.0
        counts, edges = np.histogram(np.clip(values, -most, most), bins=41, range=(-most, most))
        shares = counts / len(values)
        panel = Panel(drawing, 60 + 330 * column, 32, 260, 180, (-most, most), (0.0, float(shares.max()) * 1.05))
        panel.axes(model["name"], "Re λ", percent=True)
        for i, share in enumerate(shares):
            left, right = panel.x(edges[i]), panel.x(edges[i + 1])
            colour = ZERO if i == 20 else SHARP if i < 20 else SMOOTH
            drawing.rect(left + 0.5, panel.y(share), right - left - 1, panel.y(0) - panel.y(share), colour)
    return drawing


def exponents_figure(models: Indexed) -> Drawing:
    """Predicted and measured exponents by layer."""
    drawing = Drawing(30 + 360 * len(models), 300)
    for column, (_, model) in enumerate(models):
        found = model["explain"]["exponents"]
        lines = {key: [math.nan if v is None else v for v in found[key]["mean"]] for key, *_ in SERIES if key in found}
        # The small-step exponent may lie far outside; it does not set the frame.
        framed = [v for key, line in lines.items() if key != "small_step" for v in line]
        panel = Panel(
            drawing, 65 + 360 * column, 32, 285, 200, (-0.4, len(found["layer"]) - 0.6), span([*framed, 0.0], 0.1)
        )
        panel.axes(model["name"], "layer", "nats per layer")
        drawing.line([(panel.left, panel.y(0)), (panel.left + panel.width, panel.y(0))], SOFT)
        for key, _, colour, dash in SERIES:
            line = [(panel.x(i), panel.y(v)) for i, v in enumerate(lines.get(key, []))]
            drawing.line(line, colour, 2, dash, inside=panel)
            drawing.dots(line if len(line) == 1 else [], colour, 5)
    for i, (_, said, colour, dash) in enumerate(SERIES):
        x, y = 65 + 160 * (i % 2 if len(models) == 1 else i), 280 + (15 * (i // 2) if len(models) == 1 else 0)
        drawing.line([(x, y - 4), (x + 26, y - 4)], colour, 2, dash)
        drawing.text(x + 32, y, said)
    return drawing


def agreement_figure(models: Indexed) -> Drawing:
    """γ against the measured step, one dot per layer and input."""
    drawing = Drawing(30 + 300 * len(models), 330)
    for column, (index, model) in enumerate(models):
        rows = model["explain"]["rows"]
        x, y = np.array(rows["exponent"], dtype=float), np.array(rows["measured"], dtype=float)
        far = [float(np.abs(v).max(initial=0.0)) * 1.08 or 1.0 for v in (x, y)]
        panel = Panel(drawing, 65 + 300 * column, 32, 220, 220, (-far[0], far[0]), (-far[1], far[1]))
        panel.axes(model["name"], "predicted γ, nats", "measured, nats")
        for a, b in (((panel.left, panel.y(0)), (panel.left + panel.width, panel.y(0))),
                     ((panel.x(0), panel.top), (panel.x(0), panel.top + panel.height))):  # fmt: skip
            drawing.line([a, b], SOFT)
        dots = [(panel.x(a), panel.y(b)) for a, b in zip(x, y, strict=True)]
        drawing.dots(dots, MODEL_COLOURS[index % 6], 5, 0.6)
        found = model["explain"]["agreement"].get("exponent")
        if found and found["count"]:
            drawing.text(panel.left, 305, f"same sign in {percent_text(found['accuracy'])} of {found['count']}")
    return drawing
