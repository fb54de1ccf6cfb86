"""Every figure as a file."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from unsmooth.analysis import Subject
from unsmooth.errors import OptionError, UnsmoothError
from unsmooth.figures.browser import Browser, find_browser
from unsmooth.figures.drawing import Drawing, Panel, png, span, ticks
from unsmooth.figures.export import figures, save_figures
from unsmooth.figures.heads import DIVERGING, colour_at

SVG = "{http://www.w3.org/2000/svg}"


def test_every_figure_is_a_well_formed_svg_with_escaped_names(subjects: list[Subject], tmp_path: Path) -> None:
    written = save_figures(subjects, tmp_path)
    names = {path.stem for path in written}
    assert {
        "depth",
        "histograms",
        "exponents",
        "agreement",
        "heads-exponent",
        "heads-entropy",
        "shares",
        "phase",
    } <= names
    assert {"steps-plain", "spectra-plain", "tokens-plain"} <= names
    for path in written:
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert root.find(f".//{SVG}script") is None
        assert float(root.attrib["width"]) > 100
        assert "nan" not in path.read_text(), path.name


def test_curves_go_through_the_measured_values(subjects: list[Subject]) -> None:
    drawing = dict(figures(subjects))["depth"]
    lines = [part for part in drawing.parts if 'stroke-width="2"' in part and part.count("L") >= 6]
    assert len(lines) == 2 * 3  # two models, three metrics


def test_a_model_that_was_only_measured_has_fewer_figures(unexplained: Subject, tmp_path: Path) -> None:
    assert {path.name for path in save_figures([unexplained], tmp_path)} == {"depth.svg", "steps-plain.svg"}


def test_png_files_show_the_same(subjects: list[Subject], tmp_path: Path) -> None:
    if find_browser() is None:
        pytest.skip("no Chromium was found (set UNSMOOTH_BROWSER)")
    image = pytest.importorskip("PIL.Image")
    written = {path.name: path for path in save_figures(subjects, tmp_path, ["png"])}
    drawing = dict(figures(subjects))["depth"]
    found = image.open(written["depth.png"])
    assert found.size == (round(2 * drawing.width), round(2 * drawing.height))
    assert len(np.unique(np.asarray(found.convert("L")))) > 20  # something is drawn


def test_layers_are_counted_in_whole_numbers_and_small_shares_keep_their_digits() -> None:
    drawing = Drawing(300, 200)
    Panel(drawing, 0, 0, 240, 180, (0.0, 10.0), (0.0, 0.1)).axes("", "layer", percent=True)
    said = [part.partition(">")[2].partition("<")[0] for part in drawing.parts if part.startswith("<text")]
    assert "2.5" not in said
    assert {"0", "5", "10", "2.5 %", "7.5 %"} <= set(said)


def test_a_line_that_leaves_its_panel_is_cut_there() -> None:
    drawing = Drawing(300, 200)
    panel = Panel(drawing, 10, 10, 200, 100, (0.0, 1.0), (0.0, 1.0))
    drawing.line([(panel.x(0), panel.y(0)), (panel.x(1), panel.y(5))], "#000", inside=panel)
    root = ElementTree.fromstring(drawing.svg())
    clip, path = root.find(f"{SVG}clipPath"), root.find(f"{SVG}path")
    assert clip is not None
    assert path is not None
    assert path.attrib["clip-path"] == f"url(#{clip.attrib['id']})"
    assert clip[0].attrib == {"x": "10", "y": "10", "width": "200", "height": "100"}


def test_an_unknown_format_lists_the_known_ones(subjects: list[Subject], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown figure format 'pdf': expected one of 'svg', 'png'"):
        save_figures(subjects, tmp_path, ["pdf"])


def test_png_without_a_browser_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.figures.browser.find_browser", lambda: None)
    with pytest.raises(UnsmoothError, match="no Chromium was found .* UNSMOOTH_BROWSER"):
        Browser()


def test_a_program_that_is_no_browser_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsmoothError, match="/bin/true ended: is it a Chromium"), Browser("/bin/true", wait=5):
        pass


def test_a_browser_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_BROWSER", "/opt/mine")
    assert find_browser() == "/opt/mine"


def test_pixels_survive_the_png_writer() -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(image.open(io.BytesIO(png(pixels)))), pixels)


def test_a_panel_puts_its_ends_at_its_edges() -> None:
    panel = Panel(Drawing(100, 100), 10, 20, 60, 40, (-1.0, 1.0), (0.0, 2.0))
    assert (panel.x(-1), panel.x(1)) == (10, 70)
    assert (panel.y(0), panel.y(2)) == (60, 20)


def test_ranges_and_ticks_of_degenerate_values() -> None:
    low, high = span([3.0, 3.0, float("nan")])
    assert low < 3 < high
    assert span([]) == pytest.approx((-0.06, 1.06))
    assert all(-2e-9 <= tick <= 3e-9 for tick in ticks(-2e-9, 3e-9, 4))


def test_the_diverging_colours_end_in_blue_and_orange() -> None:
    assert colour_at(DIVERGING, -1.0) == DIVERGING[0]
    assert colour_at(DIVERGING, 2.0) == DIVERGING[-1]
