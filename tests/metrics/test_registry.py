"""Metrics and presets by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from rich.console import Console
from small_models import images, vit

from unsmooth.analysis import Subject, compare, measure
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.cli.tables.measured import by_layer
from unsmooth.errors import OptionError
from unsmooth.metrics.features import Features
from unsmooth.metrics.registry import METRICS, PRESETS, Metric, Panel, metric_named, register_metric, resolve
from unsmooth.page import build_report
from unsmooth.page.course import leading_metrics
from unsmooth.page.data import page_data


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves_with_either_spelling(preset: str) -> None:
    assert [m.name for m in resolve(preset)] == list(PRESETS[preset])
    assert resolve(preset.replace("-", "_")) == resolve(preset)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_gives_one_value_per_sample_and_says_what_it_is(name: str) -> None:
    metric = METRICS[name]
    assert metric.value(Features(torch.randn(3, 5, 4))).shape == (3,)
    assert "float64" in metric.definition
    assert "mean over samples" in metric.definition


@pytest.mark.parametrize("name", [name for name, row in METRICS.items() if not row.over_data])
def test_a_metric_uses_the_spectrum_it_names_and_no_other(name: str) -> None:
    features = Features(torch.randn(3, 5, 4))
    METRICS[name].value(features)
    assert set(features.spectra) == ({METRICS[name].spectrum} if METRICS[name].spectrum else set())


def test_strings_lists_and_rows_mix_and_repeat() -> None:
    rows = resolve(["paper", METRICS["dirichlet"], "hfc-lfc", "rankme"])
    assert [m.name for m in rows] == ["hfc_lfc", "cosine_similarity", "effective_rank", "dirichlet", "rankme"]
    assert resolve(METRICS["rankme"]) == (METRICS["rankme"],)


def test_an_unknown_metric_lists_presets_and_names() -> None:
    with pytest.raises(OptionError, match=r"unknown metric 'cosin': expected one of 'paper'.*'cosine_similarity'"):
        resolve("paper,cosin")


def test_nothing_asked_for_is_an_error() -> None:
    with pytest.raises(OptionError, match="no metric was asked for"):
        resolve([])
    with pytest.raises(OptionError, match="expected the name of a metric, got 3"):
        resolve([3])  # type: ignore[list-item]


@pytest.fixture
def norm_spread() -> Iterator[Metric]:
    """A metric that nothing in the library knows: tokens of one length are smoother."""
    row = Metric(
        "norm_spread",
        "spread of norms",
        "standard deviation of ‖x_i‖ over their mean; float64; per sample, then mean over samples",
        lambda f: f.norms.std(-1) / f.norms.mean(-1),
        Panel("norms", "lower", "tokens have more similar lengths"),
        unit="of the mean norm",
        digits=".2f",
    )
    register_metric(row)
    yield row
    del METRICS[row.name]


def test_a_new_row_appears_in_frame_page_and_comparison_with_its_direction(norm_spread: Metric) -> None:
    spread, level = vit(), vit()
    with torch.no_grad():
        level.norm_pre = torch.nn.LayerNorm(level.embed_dim, elementwise_affine=False)  # all tokens of one length
        spread.norm_pre = torch.nn.Identity()
    batches = images(3)
    a, b = (measure(model, batches, ["norm_spread", "hfc_lfc"]) for model in (spread, level))
    assert set(a.frame()["metric"]) == {"norm_spread", "hfc_lfc"}
    here = compare(a, b).set_index(["metric", "point"]).loc[("norm_spread", "blocks.0.pre")]
    assert (here["difference"] < 0, here["smoother"]) == (True, "b")
    assert page_data([Subject("x", a)])["metrics"]["norm_spread"] == "spread of norms"
    assert leading_metrics([Subject("x", a)]) == ["hfc_lfc", "norm_spread"]  # a panel of its own
    assert (norm_spread.sign, norm_spread.panel.caption[:6]) == (-1, "Lower:")
    assert "spread of norms" in build_report([Subject("x", a)])
    console = Console(record=True, width=200)
    console.print(by_layer(a, "all"))
    value = a.cells[Cell("blocks.0.post", "norm_spread", "all")].mean
    assert f"{value:.2f} ±" in console.export_text()


def test_a_metric_that_is_not_registered_is_named_with_what_to_do() -> None:
    with pytest.raises(OptionError, match=r"unknown metric 'mine'.*register_metric"):
        metric_named("mine")
