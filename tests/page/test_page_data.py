"""What the page's script reads is what was measured, of what all models have in common."""

from __future__ import annotations

import pytest
import torch
from results import about_measured

from unsmooth.analysis import Measurement, Subject
from unsmooth.analysis.measuring.cells import Cell, Change
from unsmooth.analysis.measuring.changes import BLOCK_STEPS
from unsmooth.metrics.features import Features
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import METRICS, by_panel
from unsmooth.page.data import page_data

POINTS = ("blocks.0.pre", "blocks.0.mid", "blocks.0.post")


def moments(*values: float) -> Moments:
    found = Moments()
    found.update(torch.tensor(values, dtype=torch.float64))
    return found


def subject(name: str, metrics: list[str], tokens: list[str]) -> Subject:
    """A model of one layer; every number tells where it belongs."""
    kinds = [(m, t) for m in metrics for t in tokens]
    cells = {
        Cell(point, m, t): moments(i + len(m) + 100 * len(t), i + len(m) + 100 * len(t) + 1.2345)
        for m, t in kinds for i, point in enumerate(POINTS)
    }  # fmt: skip
    changes = {Change("residual", "MLP", m, t): moments(len(m), len(m) + 1, len(m) + 5) for m, t in kinds}
    about = {
        "model": {"layers": 1, "width": 24, "placement": "post"},
        "settings": {"metrics": metrics, "tokens": tokens},
        "definitions": {
            "metrics": {m: f"formula of {m}" for m in metrics},
            "tokens": {"all": "each one", "patches": "no class token", "content": "words"},
            "changes": {"residual": "differences"},
        },
    }
    return Subject(name, Measurement(cells, changes, about_measured(**about)))


def test_every_number_of_a_model_stands_where_it_belongs() -> None:
    page = page_data([subject("one", ["hfc_lfc", "vita2022"], ["all", "patches"])])
    (model,) = page["models"]
    assert {name: model[name] for name in ("name", "layers", "points", "distance", "explain")} == {
        "name": "one", "layers": 1, "points": list(POINTS), "distance": None, "explain": None,
    }  # fmt: skip
    column = model["values"]["patches"]["vita2022"]
    assert column["mean"] == pytest.approx([708.62, 709.62, 710.62])  # five digits
    assert column["std"] == [0.873] * 3
    assert model["steps"]["residual"] == BLOCK_STEPS["residual", "post"]
    assert page["metrics"] == {name: METRICS[name].title for name in ("hfc_lfc", "vita2022")}


def test_models_share_what_all_of_them_were_measured_by() -> None:
    three = [
        subject("a", ["effective_rank", "hfc_lfc"], ["all", "patches"]),
        subject("b", ["hfc_lfc"], ["patches", "content"]),
        subject("c", ["hfc_lfc", "effective_rank"], ["all", "patches"]),
    ]
    page = page_data(three)
    assert list(page["metrics"]) == ["hfc_lfc"]
    for model in page["models"]:
        assert {policy: list(found) for policy, found in model["values"].items()} == {"patches": ["hfc_lfc"]}


def test_the_papers_metrics_come_first_and_readings_fit_the_values() -> None:
    panels = by_panel(METRICS)
    assert [names[0] for names in panels.values()] == ["hfc_lfc", "cosine_similarity", "effective_rank"]
    noise = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    near, far = Features(1 + 0.1 * noise), Features(1 + noise)
    for panel, names in panels.items():
        for name in names:
            higher = bool(METRICS[name].value(near) > METRICS[name].value(far))
            assert (METRICS[name].sign > 0) == panel.caption.startswith("Higher") == higher, name
