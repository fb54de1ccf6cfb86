from __future__ import annotations

from pathlib import Path

import pytest
import torch

from unsmooth.analysis import Explanation, explain
from unsmooth.analysis.patches import image_patches
from unsmooth.control import bake, control_of, reparametrize
from unsmooth.errors import DataError, OptionError
from unsmooth.sources import PICTURES
from unsmooth.theory.phase import phase_grid

pytest.importorskip("plotly")
from unsmooth.figures.plotly_explain import (
    eigenvalue_distribution,
    norm_impact,
    phase_diagram,
    predicted_against_measured,
)


@pytest.fixture(scope="module")
def found() -> Explanation:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=48, embed_dim=24, depth=2, num_heads=3, num_classes=0)
    return explain(model, [torch.randn(2, 3, 48, 48)], spectra=0)


def test_figure_5_shows_every_eigenvalue_before_and_after_folding(found: Explanation) -> None:
    figure = eigenvalue_distribution({"one": found, "two": found})
    planes = [trace for trace in figure.data if trace.type == "scattergl"]
    assert [len(trace.x) for trace in planes] == [2 * 24] * 4
    heads = eigenvalue_distribution(found, heads=True)
    assert [len(t.x) for t in heads.data if t.type == "scattergl"] == [2 * 3 * 8] * 2


def test_eigenvalues_that_are_zero_up_to_rounding_are_on_neither_side() -> None:
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, embed_dim=24, depth=2, num_heads=3, num_classes=0)
    reparametrize(model, "sharpening", form="symmetric", std=0.3)
    with torch.no_grad():
        control_of(model).psi[:, :5] = 1e-9  # −ψ² = −1e−18: rounding gives it any sign
    found = explain(bake(model), [torch.randn(1, 3, 32, 32)], spectra=0, max_products=1)
    figure = eigenvalue_distribution(found)
    bars = [trace for trace in figure.data if trace.type == "histogram"][:3]  # bare: neither, sharpening, smoothing
    assert [len(trace.x) for trace in bars] == [2 * 5, 2 * 19, 0]
    shares = [row["re_positive"] for row in found.weight_frame().to_dict("records") if not row["folded"]]
    assert max(shares) == 0
    assert figure.layout.yaxis.range[1] > 1e-3  # not the rounding of imaginary parts, magnified


def test_figure_3_has_one_line_per_cell_on_a_real_images_patches() -> None:
    x = image_patches(next(Path(str(PICTURES)).glob("*.jpg")), patch=4, side=16)
    figure = norm_impact(seeds=range(2), layers=5, x=x)
    lines = [trace for trace in figure.data if trace.fill is None]
    assert len(lines) == 20
    assert all(len(trace.y) == 6 for trace in lines)
    with pytest.raises(OptionError, match="at least one seed"):
        norm_impact(seeds=[])


def test_phase_grid_has_corollary_3s_regimes() -> None:
    grid = phase_grid([-0.5, 0.5], [0.3, 3.0], width=0.4, tokens=12, dim=6, seeds=range(2))
    assert bool((grid[:, 0] > 0).all())
    assert bool((grid[:, 1] < 0).all())
    assert len(phase_diagram([-0.5, 0.5], [0.3, 3.0], seeds=[0]).data) == 2


def test_predicted_against_measured_shows_every_row(found: Explanation) -> None:
    figure = predicted_against_measured(found)
    assert [len(trace.x) for trace in figure.data] == [4] * 4


def test_images_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image at"):
        image_patches(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(DataError, match="not an image that pillow can read"):
        image_patches(tmp_path / "text.png")
