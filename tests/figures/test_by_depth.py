"""Curves by depth, and bars step by step."""

from __future__ import annotations

import pytest
from figures.marks import flat, words

from unsmooth.analysis import Subject
from unsmooth.errors import OptionError, PointError
from unsmooth.figures import (
    depth,
    heads,
    spectra,
    steps,
)
from unsmooth.figures.by_depth import Stop, depth_panel, stream
from unsmooth.figures.by_step import arrow, measured_steps, steps_panel
from unsmooth.figures.marks import Stroke, Words
from unsmooth.figures.palette import direction
from unsmooth.metrics.registry import METRICS


def test_curves_go_through_the_measured_values(subjects: list[Subject]) -> None:
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


def test_models_of_different_depth_are_drawn_by_relative_depth(subjects: list[Subject]) -> None:
    curve = stream(subjects[0].measurement, "hfc_lfc", "all")
    drawing = depth_panel([curve, curve[:5]], [3, 2])
    assert str(drawing.data["frame"]).split()[4:6] == ["0", "1"]
    lines = [m for m, _, _ in flat(drawing.marks) if isinstance(m, Stroke) and m.width == 2]
    ends = [line.lines[0][-1][0] for line in lines]
    assert ends[0] == ends[1]
    assert any("relative depth" in text for text in words(drawing))


def test_no_point_of_the_stream_is_an_error(subjects: list[Subject]) -> None:
    import copy

    measurement = copy.copy(subjects[0].measurement)
    measurement.cells = {c: m for c, m in measurement.cells.items() if c.point.endswith("norm1")}
    with pytest.raises(PointError, match="no point of the residual stream"):
        depth(measurement)


@pytest.mark.parametrize("metric", ["hfc_lfc", "cosine_similarity"])
@pytest.mark.parametrize("reading", ["residual", "chain"])
def test_bars_point_up_or_down_and_their_colour_says_smoothing_or_sharpening(
    subjects: list[Subject],
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


def test_layers_have_the_numbers_of_their_points_everywhere(subjects: list[Subject]) -> None:
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


def test_no_two_labels_of_an_axis_are_the_same() -> None:
    """HFC/LFC may move by 1e-5 of itself, as with LayerScale at its start; 1e-8 is rounding of float32."""
    for step, most in ((1e-4, 1.2), (1e-5, 1.2), (1e-8, 1e-6)):
        curve = [Stop(f"blocks.{i}.post", float(i), 1.294 * (1 + step * i), 0.0) for i in range(4)]
        drawing = depth_panel([curve], [3])
        left, *_, low, high = map(float, str(drawing.data["frame"]).split())
        labels = [
            m.said for m, _, _ in flat(drawing.marks) if isinstance(m, Words) and m.anchor == "end" and m.x < left
        ]
        assert len(set(labels)) == len(labels) > 1
        assert (curve[-1].mean - curve[0].mean) / (high - low) < most
