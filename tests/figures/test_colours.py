"""Blue smooths and orange sharpens, in simulations, runs and differences."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest
from figures.marks import dots, flat, luminance, words

from unsmooth.errors import OptionError
from unsmooth.figures import (
    difference,
    norm_impact,
    phase,
)
from unsmooth.figures.marks import Stroke
from unsmooth.figures.palette import (
    DIVERGING,
    RGB,
    SEQUENTIAL,
    colour_at,
    model_colour,
    model_dash,
    readable,
    value,
)
from unsmooth.figures.trained import Run, runs_figure
from unsmooth.theory.scenario import log10_curves


def test_figure_3_has_one_line_for_each_cell_in_the_colour_of_its_mode() -> None:
    curves = log10_curves(range(2), layers=5, tokens=8, dim=4)
    drawing = norm_impact(curves)
    lines = [m for m, _, _ in flat(drawing.marks) if isinstance(m, Stroke) and m.width == 2 and len(m.lines[0]) == 6]
    assert len(lines) == 20
    assert sum(line.stroke == "sharp" for line in lines) == sum(line.stroke == "smooth" for line in lines) == 10
    with pytest.raises(OptionError, match="at least one seed"):
        log10_curves([])


def test_the_phase_diagram_is_orange_left_of_zero_and_blue_right_of_it() -> None:
    from unsmooth.figures.marks import Pixels

    drawing = phase([-0.5, 0.5], [0.3, 3.0], width=0.4, seeds=[0])
    (image,) = [m for m in drawing.marks if isinstance(m, Pixels) and m.height > 50]
    red, blue = image.pixels[..., 0].astype(int), image.pixels[..., 2].astype(int)
    assert (red[:, 0] > blue[:, 0]).all()
    assert (red[:, 1] < blue[:, 1]).all()


def test_runs_have_the_colour_of_what_they_were_trained_to_do() -> None:
    runs = {Run(v, s, f"{v} {s}"): ([1, 2, 3], [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]) for v, s in
            (("plain", 1.0), ("sharpening", 1.0), ("sharpening-split", 1.0), ("smoothing", 0.1))}  # fmt: skip
    drawing = runs_figure({"accuracy": runs}, "epoch", "training")
    lines = {(m.stroke, m.dash) for m, _, _ in flat(drawing.marks) if isinstance(m, Stroke) and m.width == 2}
    assert {colour for colour, _ in lines} == {"ink", "sharp", "smooth"}
    assert {dash for colour, dash in lines if colour in ("ink", "smooth")} >= {""} < {dash for _, dash in lines}
    assert len({dash for colour, dash in lines if colour == "sharp"}) == 2  # a form of its own
    assert ("smooth", "") not in lines
    assert "smoothing 0.1" in words(drawing)


def test_differences_are_blue_where_the_second_is_smoother() -> None:
    import pandas as pd

    rows = pd.DataFrame(
        [("p", 2.0, 1.0, 3.0, True), ("q", -1.0, -2.0, 0.5, False), ("gone", math.nan, math.nan, math.nan, False),
         ("r", -3.0, -4.0, -2.0, True), ("s", 1.0, math.nan, math.nan, False)],
        columns=["point", "difference", "low", "high", "differs"],
    )  # fmt: skip
    for metric, up in (("hfc_lfc", "sharp"), ("cosine_similarity", "smooth")):
        drawing = difference(rows, metric)
        assert drawing is not None
        down = {"sharp": "smooth", "smooth": "sharp"}[up]
        assert (dots(drawing, up), dots(drawing, down), dots(drawing, "paper")) == (2, 2, 2)
        assert {"p", "q", "r", "s"} <= set(words(drawing))
        assert "gone" not in words(drawing)
        assert "nan" not in drawing.svg()
        frame = [float(v) for v in re.findall(r"\S+", str(drawing.data["frame"]))]
        assert frame[6] < -4 < 3 < frame[7]
    assert difference(rows[rows["point"] == "gone"], "hfc_lfc") is None


def test_no_two_of_36_lines_look_alike() -> None:
    assert len({(model_colour(index), model_dash(index)) for index in range(36)}) == 36


def contrast(first: str, second: str) -> float:
    """As WCAG 2 defines it; its level AA asks for 4.5 of small words."""
    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "soft", "link", "smooth", "sharp"])
def test_words_in_a_colour_can_be_read(text: str, dark: bool) -> None:
    for paper in ("paper", "card"):
        assert contrast(value(text, dark), value(paper, dark)) >= 4.5, f"{text} on {paper}"


@pytest.mark.parametrize("stops", [SEQUENTIAL, DIVERGING], ids=["sequential", "diverging"])
def test_words_on_a_colour_can_be_read(stops: Sequence[RGB]) -> None:
    for share in range(101):
        colour = colour_at(stops, share / 100)
        words = {"#000": "#000000", "#fff": "#ffffff"}[readable(colour)]
        assert contrast("#" + bytes(colour).hex(), words) >= 4.5, colour
