"""The eigenvalues of H: in the complex plane with the regions of Corollary 3, and how their real parts are spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unsmooth.analysis import Explanation
from unsmooth.figures.axes import panel, ticks
from unsmooth.figures.drawing import Drawing, box, grid
from unsmooth.figures.text import number_text, percent_text, tick_text
from unsmooth.metrics.tolerance import is_zero

if TYPE_CHECKING:
    from torch import Tensor


Values = NDArray[np.complex128]
BINS = 41  # odd, so that one bin is centred on 0
MANY = 0.05  # the share of zeros that is worth a word
AT_ZERO = "zero: a direction that H takes away"
# in the order of drawing: what lies at zero lies on top
SIDES = {
    "left of zero": "sharp",
    "right of zero": "smooth",
    "outside the frame, drawn at its edge": "ink",
    AT_ZERO: "zero",
}


NOT_FOUND = "Not computed: a dense problem of the model’s width (layer_spectrum=True, --layer-spectrum)."


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of one layer, of the sum of its heads and of each head, and the condition of the eigenvectors."""

    layer: Values
    heads: Values
    condition: float


def spectra_by_layer(explanation: Explanation) -> dict[int, dict[str, Spectrum]]:
    """Per layer, λ of the bare weights (`raw`) and sλ of the folded ones (`folded`; s is the step the norm leaves)."""
    steps = explanation.frame().groupby("layer")["step"].mean()
    weights = explanation.weight_frame()
    conditions = weights[weights["head"] == -1].set_index(["layer", "folded"])["condition"]
    found: dict[int, dict[str, Spectrum]] = {}
    for row in explanation.spectra:
        layer, folded = row["layer"], row["folded"]
        scale = float(steps[layer]) if folded else 1.0
        found.setdefault(layer, {})["folded" if folded else "raw"] = Spectrum(
            _clean(row["layer_values"] * scale),
            _clean(row["head_values"].flatten() * scale),
            float(conditions[layer, folded]),
        )
    return dict(sorted(found.items()))


def _clean(values: Tensor) -> Values:
    found: Values = values.where(~is_zero(values), 0).numpy()  # what rounding left of a 0 has no sign
    return found


def plane_size(clouds: Sequence[Values]) -> float:
    """Half the width of a frame for these eigenvalues: a few far ones do not push the others into one spot."""
    sizes = np.abs(np.concatenate(clouds)) if clouds else np.zeros(1)
    return max(float(min(sizes.max(), 4 * np.quantile(sizes, 0.98))) * 1.12, 1e-9) if sizes.any() else 1.0


def plane_panel(
    clouds: Mapping[str, Values], most: float, *, title: str = "", label: str = "", wide: float = 346
) -> tuple[Drawing, set[str]]:
    """One layer's eigenvalues before (`raw`, small) and after (`folded`, large) folding; and which sides there are."""
    tall = min(wide - (4 if title else 22), 460)  # a square plot, or a wider one
    plot = panel(wide, tall, (-most, most), (-most, most), title=title, x_label="real part", y_label="imaginary part",
                 label=label)  # fmt: skip
    reach = most * plot.width / plot.height  # the same scale for both axes
    plot.x_domain = (-reach, reach)
    drawing = plot.drawing
    inside = drawing.group(clip=plot.frame)
    inside.rect(plot.x(0), plot.top, plot.right - plot.x(0), plot.height, "smooth", 0.08)
    circle = [(math.cos(turn) - 1, math.sin(turn)) for turn in np.linspace(0, 2 * math.pi, 91)]
    inside.areas([plot.at(circle)], "sharp", 0.09)
    inside.line(plot.at(circle), "sharp", 1, "3 3")
    plot.y_axis(at=ticks(-most, most, 4))
    plot.x_axis(at=ticks(-reach, reach, max(3, round(plot.width / 70))))
    plot.upright(0)
    plot.level(0)
    # Corollary 3: [−1, 0) sharpens, (0, ∞) smooths
    for colour, ends in (("sharp", (max(-1.0, -most), 0.0)), ("smooth", (0.0, reach))):
        drawing.line(plot.at([(end, 0.0) for end in ends]), colour, 3.5, opacity=0.5)
    there: set[str] = set()
    for name, values in clouds.items():
        mine = drawing.group(cloud=name)
        far = (np.abs(values.real) > reach) | (np.abs(values.imag) > most)
        near = ~far & (values != 0)
        sides = (near & (values.real < 0), near & (values.real > 0), far, values == 0)
        size, opacity = (2.6, 0.5) if name == "raw" and len(clouds) > 1 else (4.4, 0.72)
        for (said, colour), chosen in zip(SIDES.items(), sides, strict=True):
            if not chosen.any():
                continue
            there.add(said)
            if said == AT_ZERO:  # many in one spot: larger, with a rim
                mine.dots([(plot.x(0), plot.y(0))], "ink", 9)
                mine.dots([(plot.x(0), plot.y(0))], colour, 7.5)
                continue
            kept = values[chosen]
            at = zip(np.clip(kept.real, -reach, reach), np.clip(kept.imag, -most, most), strict=True)
            mine.dots(plot.at(at), colour, size, opacity)
        still = values[near & (values.real == 0)]  # on neither side, and no zeros
        if len(still):
            mine.dots(plot.at(zip(still.real, still.imag, strict=True)), SIDES[AT_ZERO], size, opacity)
    return drawing, there


def spectra(explanation: Explanation, *, name: str = "") -> Drawing:
    """The eigenvalues of every layer's Σ_h H_h, before and after folding."""
    layers = spectra_by_layer(explanation)
    there: set[str] = set()
    panels = []
    for layer, found in layers.items():
        clouds = {kind: spectrum.layer for kind, spectrum in found.items()}
        drawing, sides = plane_panel(clouds, plane_size(list(clouds.values())), title=f"layer {layer}", wide=260)
        panels.append(drawing)
        there |= sides
    figure = grid(panels, across=min(4, len(panels)), top=30, bottom=44)
    figure.label = f"{name or 'the model'}: eigenvalues of H by layer"
    figure.title(8, 16, figure.label)
    y, x = figure.height - 24, 16.0
    for side in (side for side in SIDES if side in there):
        figure.dots([(x, y - 4)], SIDES[side], 7)
        figure.text(x + 9, y, side)
        x += 30 + 6 * len(side)
    if any(len(found) > 1 for found in layers.values()):
        said = "large: with the normalisation and LayerScale folded in; small: the bare weights"
        figure.text(16, figure.height - 6, said)
    return figure


def spectrum_note(found: Mapping[str, Spectrum], of: str, most: float) -> str:
    """How many lie left of zero, before and after folding."""
    parts = []
    if not any(len(getattr(spectrum, of)) for spectrum in found.values()):
        return NOT_FOUND
    for name, spectrum in found.items():
        values: Values = getattr(spectrum, of)
        zero, left = (float(chosen.mean()) for chosen in (values.real == 0, values.real < 0))
        beside = f" and {percent_text(zero)} at it" if zero >= MANY else ""
        condition = (
            f", eigenvectors’ condition {number_text(spectrum.condition, 2)}" if of == "layer" and
            math.isfinite(spectrum.condition) else ""
        )  # fmt: skip
        when = "Before" if name == "raw" else "After"
        parts.append(f"{when} folding {percent_text(left)} lie left of zero{beside}{condition}.")
    values = np.concatenate([getattr(spectrum, of) for spectrum in found.values()])
    outside = int(((np.abs(values.real) > most) | (np.abs(values.imag) > most)).sum())
    return " ".join(parts) + (f" Outside the frame and drawn at its edge: {outside}." if outside else "")


def pooled(layers: Mapping[int, Mapping[str, Spectrum]], folding: str, of: str) -> NDArray[np.float64]:
    """Real parts over all layers; where nothing was folded, those of the bare weights."""
    return np.concatenate([getattr(found.get(folding, found["raw"]), of).real for found in layers.values()])


def histogram_panel(
    values: NDArray[np.float64], *, title: str = "", label: str = "", wide: float = 346, tall: float = 210
) -> Drawing:
    """The form of the paper's Figure 5, in a range of its own: a few far eigenvalues are counted at its ends."""
    most = float(np.quantile(np.abs(values), 0.995)) or float(np.abs(values).max()) or 1.0 if len(values) else 1.0
    counts, _ = np.histogram(np.clip(values, -most, most), bins=BINS, range=(-most, most))
    return counts_panel(counts.tolist(), most, title=title, label=label, wide=wide, tall=tall)


def counts_panel(
    counts: Sequence[int], most: float, *, title: str = "", label: str = "", wide: float = 346, tall: float = 210
) -> Drawing:
    """Bars of counts between −most and most; their number is odd, so that the middle one is around zero."""
    shares = np.array(counts) / max(sum(counts), 1)
    edges = np.linspace(-most, most, len(counts) + 1)
    plot = panel(wide, tall, (-most, most), (0.0, float(shares.max()) * 1.05 or 1.0), title=title, x_label="Re λ",
                 label=label, left=48)  # fmt: skip
    plot.y_axis(lambda share: f"{tick_text(share * 100)} %")
    plot.x_axis()
    middle = len(counts) // 2
    for colour, chosen in (("sharp", range(middle)), ("zero", [middle]), ("smooth", range(middle + 1, len(counts)))):
        tops = {plot.x(edges[i]) + 0.5: plot.y(shares[i]) for i in chosen if counts[i]}
        plot.drawing.areas([box(x, y, plot.width / len(counts) - 1, plot.bottom - y) for x, y in tops.items()], colour)
    plot.drawing.data["counts"] = " ".join(map(str, counts))
    return plot.drawing


def histogram_note(values: NDArray[np.float64]) -> str:
    """What the bars add up to."""
    if not len(values):
        return NOT_FOUND
    zero = float((values == 0).mean())
    beside = f" and {percent_text(zero)} zero" if zero >= MANY else ""
    mean = number_text(float(values.mean()))
    return f"{percent_text(float((values < 0).mean()))} negative{beside} of {len(values)} eigenvalues; mean {mean}."


def histograms(explanations: Mapping[str, Explanation] | Explanation) -> Drawing:
    """Real parts of the heads' eigenvalues over all layers, a column a model: bare weights, folded ones below."""
    named = explanations if isinstance(explanations, Mapping) else {"": explanations}
    layers = {name: spectra_by_layer(explanation) for name, explanation in named.items()}
    foldings = ["raw", *(["folded"] if any("folded" in f for each in layers.values() for f in each.values()) else [])]
    wide = 760.0 if len(named) == 1 else 360.0
    panels = [
        histogram_panel(
            pooled(each, folding, "heads"), wide=wide, tall=230,
            title=f"{name + ', ' if name else ''}{'bare weights' if folding == 'raw' else 'folded'}",
        )
        for folding in foldings
        for name, each in layers.items()
    ]  # fmt: skip
    figure = grid(panels, across=len(named), bottom=24)
    figure.label = "Real parts of the eigenvalues of H (each head), all layers"
    said = f"{figure.label}. Left of zero pushes towards sharpening, right of it towards smoothing."
    figure.text(8, figure.height - 6, said if figure.width > 640 else figure.label)
    return figure
