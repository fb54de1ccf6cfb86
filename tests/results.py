"""Results that tests make up, or make of one batch: what they do not care about is filled in."""

from __future__ import annotations

from typing import Any

from unsmooth.analysis.about import About
from unsmooth.analysis.explaining.explanation import ExplainSettings
from unsmooth.analysis.measuring.measurement import MeasureSettings
from unsmooth.analysis.token_view import TokenView, TokenViewer

_MODEL = {  # what a file says of one
    "class": "X", "family": "timm-vit", "placement": "pre", "layers": 2, "width": 24, "dtype": "float32",
    "device": "cpu",
}  # fmt: skip
_EXPLAIN = {"folded": True, "layers": [0, 1], "spectra": 8, "max_products": 240, "accuracy": 0.01}


def _about(parts: dict[str, Any]) -> dict[str, Any]:
    known = {"data": {}, "settings": {}, "definitions": {}, "versions": {"torch": "9.9"}, "created": "today"}
    return {**known, **parts, "model": {**_MODEL, **parts.get("model", {})}}


def about_measured(**parts: Any) -> About[MeasureSettings]:
    """Of a measurement, from parts as they stand in its file."""
    settings = {"metrics": [], "tokens": ["all"], "points": [], **parts.get("settings", {})}
    return About.from_json(_about({**parts, "settings": settings}), MeasureSettings)


def about_explained(**parts: Any) -> About[ExplainSettings]:
    """Of an explanation, from parts as they stand in its file."""
    return About.from_json(_about({**parts, "settings": {**_EXPLAIN, **parts.get("settings", {})}}), ExplainSettings)


def view_tokens(model: Any, batch: Any, example: int = 0) -> TokenView:
    """What the page shows of the tokens of one sample."""
    with TokenViewer(model, example) as viewer:
        viewer.update(batch)
    return viewer.result()
