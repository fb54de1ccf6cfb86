"""Figures of explanations: eigenvalues in the plane and as histograms, predicted against measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from figures.marks import dots, flat

from unsmooth.analysis import Explanation, explain
from unsmooth.control import bake, control_of, reparametrize
from unsmooth.figures import (
    agreement,
    histograms,
    spectra,
)
from unsmooth.figures.eigenvalues import plane_panel, pooled, spectra_by_layer
from unsmooth.figures.marks import Group, Stroke, Words


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
