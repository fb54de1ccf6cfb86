"""Marks, and what they become: SVG for pages and files, PNG and PDF for papers."""

from __future__ import annotations

import io
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from figures.marks import luminance

from unsmooth.errors import MissingExtraError, OptionError
from unsmooth.figures.axes import log_ticks, panel, span, ticks
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.marks import Group, Stroke, Words
from unsmooth.figures.palette import COLOURS, DIVERGING, colour_at, direction, style_sheet, value
from unsmooth.figures.svg import png

SVG = "{http://www.w3.org/2000/svg}"


def example() -> Drawing:
    """One of everything."""
    drawing = Drawing(200, 100, "example")
    drawing.rect(20, 10, 30, 40, "smooth")
    drawing.line([(0, 90), (100, 90), (float("nan"), 1), (120, 90), (200, 90)], "sharp", 3, "4 2")
    drawing.dots([(150, 30)], "ink", 20)
    drawing.image(60, 10, 40, 40, np.array([[[255, 0, 0], [0, 255, 0]]], dtype=np.uint8))
    drawing.text(10, 70, "a < b & c", colour="ink")
    return drawing


def test_names_become_values_in_a_file_and_variables_in_a_page() -> None:
    file, page = example().svg(), example().html(metric="<x>")
    assert COLOURS["smooth"][0] in file
    assert "var(--" not in file
    assert "var(--smooth)" in page
    assert COLOURS["smooth"][0] not in page
    assert COLOURS["smooth"][1] in example().svg(dark=True)
    assert 'data-metric="&lt;x&gt;"' in page
    for text in (file, page):
        assert "a &lt; b &amp; c" in text
        ElementTree.fromstring(text)


def absolute(d: str) -> list[list[tuple[float, float]]]:
    """The subpaths of our relative paths, as a browser reads them."""
    lines: list[list[tuple[float, float]]] = []
    x = y = 0.0
    for command, rest in re.findall(r"([mlhvz])([^mlhvz]*)", d):
        numbers = [float(n) for n in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", rest)]
        dx, dy = (
            (numbers[0], 0.0) if command == "h" else (0.0, numbers[0]) if command == "v" else (*numbers, 0.0, 0.0)[:2]
        )
        x, y = x + dx, y + dy
        if command == "m":
            lines.append([(x, y)])
        elif command == "z":
            x, y = lines[-1][0]
        else:
            lines[-1].append((x, y))
    return lines


def test_relative_paths_go_where_the_points_are() -> None:
    rng = np.random.default_rng(0)
    lines = [[(round(float(x), 1), round(float(y), 1)) for x, y in rng.uniform(-50, 300, (7, 2))] for _ in range(5)]
    for closed in (False, True):
        drawing = Drawing(300, 300)
        if closed:
            drawing.areas(lines, "sharp")
        else:
            drawing.lines(lines, "sharp")
        path = ElementTree.fromstring(drawing.svg()).find(f"{SVG}path")
        assert path is not None
        np.testing.assert_allclose(np.array(absolute(path.attrib["d"])), np.array(lines), atol=1e-6)


def test_gaps_stay_gaps_and_dots_are_lines_of_no_length() -> None:
    (stroke, *_) = [m for m in example().marks if isinstance(m, Stroke) and m.stroke == "sharp"]
    assert [len(line) for line in stroke.lines] == [2, 2]
    assert 'd="m150 30h0"' in example().svg()


def test_a_cloud_of_dots_is_drawn_to_the_pixel_and_each_place_once() -> None:
    points = np.random.default_rng(0).uniform(0, 90, (500, 2))
    drawing = Drawing(100, 100)
    drawing.dots([*map(tuple, points), *map(tuple, points)], "ink", 3)
    path = ElementTree.fromstring(drawing.svg()).find(f"{SVG}path")
    assert path is not None
    drawn = {line[0] for line in absolute(path.attrib["d"])}
    assert drawn == {(float(x), float(y)) for x, y in points.round()}
    assert path.attrib["d"].count("h0") == len(drawn)


def test_png_and_pdf_show_the_marks_where_they_are(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    found = np.asarray(image.open(example().save(tmp_path / "a.png")).convert("RGB")).astype(int)
    assert found.shape == (200, 400, 3)  # twice the size

    def near(x: float, y: float, colour: str) -> bool:
        wanted = [int(value(colour)[i : i + 2], 16) for i in (1, 3, 5)] if colour in COLOURS else None
        return bool(np.abs(found[round(2 * y), round(2 * x)] - (wanted or eval(colour))).max() < 12)

    assert near(35, 30, "smooth")
    assert near(150, 30, "ink")
    assert near(70, 30, "[255, 0, 0]")
    assert near(90, 30, "[0, 255, 0]")
    assert near(190, 60, "[255, 255, 255]")
    assert (found[124:142, 20:120].min(axis=-1) < 120).any()  # words
    pdf = example().save(tmp_path / "a.pdf").read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"/FontFile2" in pdf  # its letters travel with it
    assert pdf == example().render("pdf")  # and it does not tell when it was made


def test_what_leaves_a_clip_is_cut_off(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    drawing = Drawing(100, 100)
    drawing.group(clip=(10, 10, 30, 30)).rect(0, 0, 100, 100, "ink")
    inner = ElementTree.fromstring(drawing.svg()).find(f"{SVG}svg")
    assert inner is not None
    assert inner.attrib["viewBox"] == "10 10 30 30"
    dark = np.asarray(image.open(io.BytesIO(drawing.render("png"))).convert("L")) < 128
    rows, columns = np.flatnonzero(dark.any(1)), np.flatnonzero(dark.any(0))
    assert abs(rows[0] - 20) <= 1 and abs(rows[-1] - 79) <= 1  # noqa: PT018
    assert abs(columns[0] - 20) <= 1 and abs(columns[-1] - 79) <= 1  # noqa: PT018


def test_formats_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown figure format 'gif': expected one of 'svg', 'png', 'pdf'"):
        example().save(tmp_path / "a.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"unsmooth\[report\]"):
        example().save(tmp_path / "a.png")
    assert example().save(tmp_path / "a.svg").read_text() == example().svg() == example()._repr_svg_()
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


def test_a_drawing_is_shown_by_its_label_and_size_not_by_its_marks() -> None:
    assert repr(example()) == "Drawing('example', 200 × 100)"


def test_a_grid_puts_panels_side_by_side() -> None:
    found = grid([example() for _ in range(3)], across=2, gap=10, top=5, bottom=7)
    assert (found.width, found.height) == (410, 5 + 100 + 10 + 100 + 7)
    assert [(g.x, g.y) for g in found.marks if isinstance(g, Group)] == [(0, 5), (210, 5), (0, 115)]


def test_pixels_survive_the_png_writer() -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    many = rng.integers(0, 256, (50, 70, 3), dtype=np.uint8)
    few = many[:4, :5]
    for pixels in (many, few):
        np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(png(pixels))).convert("RGB")), pixels)
    clear = np.eye(4, 5, dtype=bool)
    seen = np.asarray(image.open(io.BytesIO(png(few, clear))).convert("RGBA"))
    np.testing.assert_array_equal(seen[..., 3] == 0, clear)
    np.testing.assert_array_equal(seen[~clear][:, :3], few[~clear])


def test_a_panel_puts_its_ends_at_its_edges() -> None:
    plot = panel(100, 90, (-1.0, 1.0), (0.0, 2.0), left=10)
    assert (plot.x(-1), plot.x(1)) == (10, 86)
    assert (plot.y(0), plot.y(2)) == (66, 10)
    assert plot.drawing.data["frame"] == "10 10 76 56 -1 1 0 2"


def test_layers_are_counted_in_whole_numbers() -> None:
    plot = panel(300, 200, (0.0, 10.0), (0.0, 0.1))
    plot.x_axis(whole=True)
    said = [mark.said for mark in plot.drawing.marks if isinstance(mark, Words)]
    assert {"0", "5", "10"} <= set(said)
    assert "2.5" not in said


def test_ranges_and_ticks_of_degenerate_values() -> None:
    low, high = span([3.0, 3.0, float("nan")])
    assert low < 3 < high
    low, high = span([1.0, 1.0 + 1e-15])  # rounding is not magnified
    assert high - low > 0.1
    assert span([]) == pytest.approx((-0.06, 1.06))
    assert all(-2e-9 <= tick <= 3e-9 for tick in ticks(-2e-9, 3e-9, 4))
    for ends in ((-0.01, 0.01), (0.2, 0.9), (-17.0, 3.0)):
        found = log_ticks(*ends)
        assert 2 <= len(found) <= 9
        assert all(ends[0] - 1e-9 <= tick <= ends[1] + 1e-9 for tick in found)


def test_blue_smooths_orange_sharpens_and_both_can_be_seen_on_light_and_dark() -> None:
    assert colour_at(DIVERGING, -1.0) == DIVERGING[0]
    assert colour_at(DIVERGING, 2.0) == DIVERGING[-1]
    assert direction(-1.0, smoother=-1) == direction(1.0, smoother=1) == "smooth"
    for dark in (False, True):
        smooth, sharp, paper = (value(name, dark) for name in ("smooth", "sharp", "paper"))
        assert int(smooth[5:], 16) > int(smooth[1:3], 16)  # bluer than red
        assert int(sharp[5:], 16) < int(sharp[1:3], 16)
        for colour in (smooth, sharp, *(value(f"model-{i}", dark) for i in range(6))):
            light, deep = sorted((luminance(colour), luminance(paper)), reverse=True)
            assert (light + 0.05) / (deep + 0.05) > 3  # WCAG's contrast of graphics
    assert f"--smooth:light-dark({COLOURS['smooth'][0]},{COLOURS['smooth'][1]})" in style_sheet()
