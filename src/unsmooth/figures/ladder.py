"""From the theorem to a real block: where layers end up as one assumption after another falls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from unsmooth.figures.axes import Panel
from unsmooth.figures.drawing import Drawing
from unsmooth.theory.ladder import Draw


def ladder(groups: Mapping[tuple[str, str], Sequence[Draw]]) -> Drawing:
    """Above, log10 HFC/LFC at the end, a tick where the theory's layer ends; below, how often a verdict is right."""
    rungs = list(dict.fromkeys(rung for rung, _ in groups))
    colours = {"sharpening": "sharp", "smoothing": "smooth"}
    picture = Drawing(1020, 606)
    top = Panel(picture, 70, 40, 920, 290, (-0.5, len(rungs) - 0.5), (-16.0, 16.0))
    low = Panel(picture, 70, 385, 920, 110, (-0.5, len(rungs) - 0.5), (0.0, 1.0))
    _frame(top, "log10 HFC/LFC after the last layer", range(-15, 16, 5), lambda v: f"{v:d}".replace("-", "−"))
    _frame(low, "share of layers with the right verdict", (0, 0.5, 1), lambda v: f"{100 * v:.0f} %")
    for (rung, mode), group in groups.items():
        centre = rungs.index(rung) + (-0.2 if mode == "sharpening" else 0.2)
        places = [centre + 0.14 * (2 * i / max(1, len(group) - 1) - 1) for i in range(len(group))]
        picture.dots(
            [(top.x(p), top.y(d.measured)) for p, d in zip(places, group, strict=True)], colours[mode], 5, 0.55
        )
        for place, draw in zip(places, group, strict=True):
            across = [(top.x(place) + side, top.y(draw.predicted)) for side in (-4, 4)]
            picture.line(across, "ink", 1.2)
        for offset, right, opacity in zip((-0.07, 0.07), rightness(group), (1.0, 0.4), strict=True):
            left, width = low.x(centre + offset - 0.06), low.x(0.12) - low.x(0)
            picture.rect(left, low.y(right), width, low.y(0) - low.y(right), colours[mode], opacity)
    for number, rung in enumerate(rungs):
        for line, words in enumerate(_two_lines(rung)):
            picture.text(low.x(number), 515 + 13 * line, words, anchor="middle", size=10.5, colour="ink")
    for row, (colour, said) in enumerate(
        (("sharp", "H held below zero (sharpening)"), ("smooth", "above (smoothing)"))
    ):
        picture.dots([(75 + 215 * row, 566)], colour, 8, 1)
        picture.text(85 + 215 * row, 570, said)
    picture.line([(420, 566), (428, 566)], "ink", 1.2)
    picture.text(436, 570, "predicted by the theory's linear layer; dots: measured, one for each layer")
    for x, opacity, said in ((70, 1.0, "Corollary 3: the sign of H's eigenvalues alone"),
                             (390, 0.4, "the exponent γ of the folded layer")):  # fmt: skip
        picture.rect(x, 583, 12, 12, "soft", opacity)
        picture.text(x + 18, 593, said)
    return picture


def rightness(group: Sequence[Draw]) -> tuple[float, float]:
    """How often Corollary 3's verdict is right, and how often γ's."""
    return (
        fmean(d.rose == (d.mode == "sharpening") for d in group),
        fmean(d.rose == (d.exponent > 0) for d in group),
    )


def _frame(panel: Panel, title: str, ticks: Sequence[float], said: Callable[[float], str]) -> None:
    d = panel.drawing
    d.text(panel.left, panel.top - 12, title, size=12, colour="ink", bold=True)
    for tick in ticks:
        d.line([(panel.left, panel.y(tick)), (panel.left + panel.width, panel.y(tick))], "line")
        d.text(panel.left - 6, panel.y(tick) + 3.5, said(tick), anchor="end", size=10)


def _two_lines(words: str) -> tuple[str, str]:
    """A label on two lines of about the same length.

    >>> _two_lines("+ A follows the features")
    ('+ A follows', 'the features')
    """
    parts = words.split()
    cut = min(range(1, len(parts)), key=lambda i: abs(len(" ".join(parts[:i])) - len(" ".join(parts[i:]))))
    return " ".join(parts[:cut]), " ".join(parts[cut:])
