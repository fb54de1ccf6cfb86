"""Every figure as a file, from results alone."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
from page.conftest import subjects, tiny, unexplained  # noqa: F401

from unsmooth.analysis import Explanation, Subject, explain
from unsmooth.control import bake, control_of, reparametrize
from unsmooth.errors import MissingExtraError, OptionError, OutputError, PointError
from unsmooth.figures import (
    agreement,
    check_figure,
    check_folder,
    depth,
    difference,
    heads,
    histograms,
    norm_impact,
    phase,
    save_figures,
    spectra,
    steps,
    subject_figures,
)
from unsmooth.figures.by_depth import depth_panel, stream
from unsmooth.figures.by_step import arrow, measured_steps, steps_panel
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.eigenvalues import plane_panel, pooled, spectra_by_layer
from unsmooth.figures.marks import Group, Mark, Stroke, Words
from unsmooth.figures.palette import direction
from unsmooth.figures.trained import Run, runs_figure
from unsmooth.metrics.registry import METRICS
from unsmooth.theory.scenario import log10_curves

SVG = "{http://www.w3.org/2000/svg}"


def flat(marks: list[Mark], x: float = 0.0, y: float = 0.0) -> list[tuple[Stroke | Words, float, float]]:
    """Every mark with what its groups moved it by."""
    found = []
    for mark in marks:
        if isinstance(mark, Group):
            found += flat(mark.marks, x + mark.x, y + mark.y)
        elif isinstance(mark, Stroke | Words):
            found.append((mark, x, y))
    return found


def words(drawing: Drawing) -> list[str]:
    return [mark.said for mark, _, _ in flat(drawing.marks) if isinstance(mark, Words)]


def dots(drawing: Drawing, colour: str) -> int:
    return sum(
        len(m.lines) for m, _, _ in flat(drawing.marks) if isinstance(m, Stroke) and m.dots and m.stroke == colour
    )


def test_every_figure_is_a_well_formed_svg_with_escaped_names(subjects: list[Subject], tmp_path: Path) -> None:  # noqa: F811
    written = save_figures(subject_figures(subjects), tmp_path, ["svg"])
    names = {path.stem for path in written}
    assert {"depth", "histograms", "exponents", "agreement", "heads-exponent", "heads-entropy", "shares"} <= names
    assert {"steps-plain", "spectra-plain", "tokens-plain"} <= names
    for path in written:
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert root.find(f".//{SVG}script") is None
        assert float(root.attrib["width"]) > 100
        assert "nan" not in path.read_text(), path.name


def test_every_figure_is_printed_without_a_browser(
    subjects: list[Subject],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("PATH", "")
    drawings = dict(subject_figures(subjects[:1]))
    written = {path.name: path for path in save_figures(drawings, tmp_path, ["png", "pdf"])}
    assert len(written) == 2 * len(drawings)
    for name, drawing in drawings.items():
        found = image.open(written[f"{name}.png"])
        assert np.abs(np.array(found.size) - 2 * np.array([drawing.width, drawing.height])).max() <= 1
        assert len(np.unique(np.asarray(found.convert("L")))) > 20  # something is drawn


def test_a_model_that_was_only_measured_has_fewer_figures(unexplained: Subject, tmp_path: Path) -> None:  # noqa: F811
    written = save_figures(subject_figures([unexplained]), tmp_path, ["svg"])
    assert {path.name for path in written} == {"depth.svg", "steps-plain.svg"}


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        check_folder(tmp_path / "file", ["svg"])
    with pytest.raises(OutputError, match="cannot be written"):
        check_folder(tmp_path / "file" / "folder", ["svg"])
    check_folder(tmp_path / "new", ["svg"])
    with pytest.raises(OptionError, match=r"a\.gif names no figure: expected a name that ends in \.svg, \.png, \.pdf"):
        check_figure(tmp_path / "a.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(OptionError, match="unknown figure format 'gif'"):
        save_figures({}, tmp_path, ["gif"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"unsmooth\[report\]"):
        check_folder(tmp_path / "new")


def test_curves_go_through_the_measured_values(subjects: list[Subject]) -> None:  # noqa: F811
    measurement = subjects[0].measurement
    curve = stream(measurement, "hfc_lfc", "all")
    assert [stop.depth for stop in curve] == [0, 0.5, 1, 1.5, 2, 2.5, 3]
    drawing = depth_panel([curve], [3])
    left, top, width, height, x0, x1, y0, y1 = map(float, str(drawing.data["frame"]).split())
    (line,) = [m for m, _, _ in flat(drawing.marks) if isinstance(m, Stroke) and m.stroke == "model-0" and m.width == 2]
    for (x, y), stop in zip(line.lines[0], curve, strict=True):
        assert x == pytest.approx(left + (stop.depth - x0) / (x1 - x0) * width)
        assert y0 + (top + height - y) / height * (y1 - y0) == pytest.approx(stop.mean, rel=1e-5)
    assert (x0, x1) == (0, 3)
    assert "depth: i is the input of layer i, 3 the output of layer 2" in words(drawing)
    whole = depth({"a": measurement})
    assert {METRICS[name].title for name in measurement.about.settings.metrics} <= set(words(whole))
    assert measurement.plot().svg() == depth({measurement.about.model.name: measurement}).svg()
    with pytest.raises(OptionError, match="token policy of this measurement"):
        depth(measurement, tokens="content")
    with pytest.raises(OptionError, match="metric of these measurements"):
        depth(measurement, metrics=["nothing"])


def test_models_of_different_depth_are_drawn_by_relative_depth(subjects: list[Subject]) -> None:  # noqa: F811
    curve = stream(subjects[0].measurement, "hfc_lfc", "all")
    drawing = depth_panel([curve, curve[:5]], [3, 2])
    assert str(drawing.data["frame"]).split()[4:6] == ["0", "1"]
    lines = [m for m, _, _ in flat(drawing.marks) if isinstance(m, Stroke) and m.width == 2]
    ends = [line.lines[0][-1][0] for line in lines]
    assert ends[0] == ends[1]
    assert any("relative depth" in text for text in words(drawing))


def test_no_point_of_the_stream_is_an_error(subjects: list[Subject]) -> None:  # noqa: F811
    import copy

    measurement = copy.copy(subjects[0].measurement)
    measurement.cells = {c: m for c, m in measurement.cells.items() if c.point.endswith("norm1")}
    with pytest.raises(PointError, match="no point of the residual stream"):
        depth(measurement)


@pytest.mark.parametrize("metric", ["hfc_lfc", "cosine_similarity"])
@pytest.mark.parametrize("reading", ["residual", "chain"])
def test_bars_point_up_or_down_and_their_colour_says_smoothing_or_sharpening(
    subjects: list[Subject],  # noqa: F811
    metric: str,
    reading: str,
) -> None:
    found = measured_steps(subjects[0].measurement, metric, "all", reading)
    assert len(found) == 3 * {"residual": 2, "chain": 4}[reading]
    drawing = steps_panel(found, metric, 3)
    bars = {
        line: mark.stroke if mark.fill == "card" else mark.fill
        for mark, _, _ in flat(drawing.marks)
        if isinstance(mark, Stroke) and mark.closed
        for line in mark.lines
    }
    assert len(bars) == len(found)
    for (_, x, *_), colour in bars.items():
        assert isinstance(x, tuple)
        assert colour in ("smooth", "sharp", "zero")
    frame = [float(v) for v in str(drawing.data["frame"]).split()]
    for step in found:
        middle = frame[0] + step.at / 3 * frame[2]
        ((line, colour),) = [(bar, c) for bar, c in bars.items() if abs((bar[0][0] + bar[1][0]) / 2 - middle) < 1e-6]
        assert colour == direction(step.end - step.start, METRICS[metric].sign)
        if len(line) == 5:  # an arrow: its tip is on the side of the end
            assert (line[3][1] < line[0][1]) == (step.end > step.start)


def test_arrows_end_at_their_tips_however_short() -> None:
    for start, end in ((100.0, 40.0), (40.0, 100.0), (50.0, 53.0)):
        shape = arrow(0, 20, start, end)
        assert shape[3] == (10, end)
        assert {shape[0][1], shape[1][1]} == {start}
    assert {y for _, y in arrow(0, 20, 50.0, 50.2)} == {49.5, 50.5}


def test_layers_have_the_numbers_of_their_points_everywhere(subjects: list[Subject]) -> None:  # noqa: F811
    subject = subjects[0]
    assert subject.explanation is not None
    assert {"0", "1", "2"} <= set(words(steps(subject.measurement)))
    assert "3" not in words(steps(subject.measurement))
    assert [w for w in words(spectra(subject.explanation)) if w.startswith("layer")] == [
        "layer 0",
        "layer 1",
        "layer 2",
    ]
    assert {"0", "1", "2"} <= set(words(heads(subject.explanation)))


@pytest.fixture(scope="module")
def found() -> Explanation:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=48, embed_dim=24, depth=2, num_heads=3, num_classes=0)
    return explain(model, [torch.randn(2, 3, 48, 48)], spectra=0)


def test_every_eigenvalue_is_shown_before_and_after_folding(found: Explanation) -> None:
    drawing = spectra(found)
    key = 2  # the legend's own dots
    zeros = sum(int((f.layer == 0).sum()) for each in spectra_by_layer(found).values() for f in each.values())
    shown = dots(drawing, "sharp") + dots(drawing, "smooth") + dots(drawing, "ink")
    rims = dots(drawing, "zero")
    assert shown >= 2 * 2 * 24 - zeros + key - 1
    assert rims <= 2 * 2 + 1
    counts = {
        (f, of): len(pooled(spectra_by_layer(found), f, of)) for f in ("raw", "folded") for of in ("heads", "layer")
    }
    assert set(counts.values()) == {2 * 24}


def test_eigenvalues_that_are_zero_up_to_rounding_are_on_neither_side() -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, embed_dim=24, depth=2, num_heads=3, num_classes=0)
    reparametrize(model, "sharpening", form="symmetric", std=0.3)
    with torch.no_grad():
        control_of(model).psi[:, :5] = 1e-9  # −ψ² = −1e−18: rounding gives it any sign
    baked = explain(bake(model), [torch.randn(1, 3, 32, 32)], spectra=0, max_products=1)
    values = pooled(spectra_by_layer(baked), "raw", "layer")
    assert [int((values == 0).sum()), int((values < 0).sum()), int((values > 0).sum())] == [2 * 5, 2 * 19, 0]


def test_every_model_has_its_own_range_of_eigenvalues(found: Explanation) -> None:
    import copy

    wide = copy.deepcopy(found)
    for row in wide.spectra:
        row["layer_values"] = row["layer_values"] * 100
        row["head_values"] = row["head_values"] * 100
    drawing = histograms({"one": found, "two": wide})
    frames = [g for g in drawing.marks if isinstance(g, Group)]
    ticks_of = [[m.said for m, _, _ in flat(g.marks) if isinstance(m, Words)] for g in frames]
    assert ticks_of[0] != ticks_of[1]
    widest = max(dict(flat_areas(g)).get("height", 0.0) for g in frames)
    assert widest > 20  # no panel is one spike at zero


def flat_areas(group: Group) -> dict[str, float]:
    """How tall the coloured bars of a panel are."""
    bars = [line for m, _, _ in flat(group.marks) if isinstance(m, Stroke) and m.closed for line in m.lines]
    return {"height": max(abs(p[1] - q[1]) for line in bars for p in line for q in line)}


def test_the_plane_draws_far_eigenvalues_at_its_edge_and_zeros_on_top() -> None:
    values = np.array([-0.5, 90.0, 0.0, 0.1 + 0.1j, *[0.2] * 200], dtype=np.complex128)
    drawing, sides = plane_panel({"raw": values}, 1.0)
    for wide, title in ((346, ""), (260, "layer 0"), (1072, "")):  # a circle is round
        shapes = flat(plane_panel({"raw": values}, 1.0, wide=wide, title=title)[0].marks)
        filled = [m for m, _, _ in shapes if isinstance(m, Stroke) and m.closed and m.fill == "sharp"]
        circle = max(filled, key=lambda m: len(m.lines[0]))
        x, y = np.array(circle.lines[0]).T
        assert np.ptp(x) == pytest.approx(np.ptp(y), rel=1e-2)
    assert sides == {
        "left of zero", "right of zero", "outside the frame, drawn at its edge", "zero: a direction that H takes away",
    }  # fmt: skip
    assert dots(drawing, "sharp") == 1
    assert dots(drawing, "smooth") == 201
    assert dots(drawing, "zero") == 1


def test_predicted_against_measured_shows_every_row(found: Explanation) -> None:
    drawing = agreement(found)
    panels = [g for g in drawing.marks if isinstance(g, Group)]
    assert len(panels) == 4
    for panel in panels:
        assert sum(len(m.lines) for m, _, _ in flat(panel.marks) if isinstance(m, Stroke) and m.dots) == 4


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
