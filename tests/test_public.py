"""What `import unsmooth` promises: names, help, and one page from a model in memory."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from small_models import images, vit

import unsmooth
from unsmooth.errors import DataError
from unsmooth.metrics import definitions
from unsmooth.metrics.registry import METRICS

FUNCTIONS = {
    "dataset_rank": "effective_rank",
    "hfc_lfc": "hfc_lfc_ratio",
    "hfc_lfc_spectral": "hfc_lfc_ratio",
}


def test_every_public_name_is_there_and_says_what_it_is() -> None:
    for name in unsmooth.__all__:
        assert inspect.getdoc(getattr(unsmooth, name)), name
    assert issubclass(unsmooth.UnsmoothError, Exception)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_public_function_of_the_same_value(metric: str) -> None:
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    function = getattr(unsmooth, FUNCTIONS.get(metric, metric))
    assert function is getattr(definitions, function.__name__)
    options = {"norm": "spectral"} if metric == "hfc_lfc_spectral" else {}
    from unsmooth.metrics.features import Features

    torch.testing.assert_close(function(x, **options), METRICS[metric].value(Features(x)))


def test_help_shows_the_way_through() -> None:
    said = inspect.getdoc(unsmooth)
    assert said is not None
    for name in ("measure", "explain", "report", "load", "compare", "reparametrize", "watch", "register_metric"):
        assert f"unsmooth.{name}(" in said or f"`{name}" in said, name
        assert name in unsmooth.__all__


@pytest.mark.parametrize("function", ["dominance", "simulate", "layer_exponent", "limit"])
def test_arguments_come_as_features_attention_weights(function: str) -> None:
    names = [name for name in inspect.signature(getattr(unsmooth, function)).parameters if name in ("x", "a", "w")]
    assert names == [name for name in ("x", "a", "w") if name in names]
    assert names[-2:] == ["a", "w"]


def test_a_model_in_memory_becomes_a_page(tmp_path: Path) -> None:
    out = unsmooth.report(vit(), images(2), out=tmp_path / "one.html", metrics="paper", explain_inputs=1)
    assert out.read_text().startswith("<!doctype html>")
    assert "VisionTransformer" in out.read_text()
    both = unsmooth.report({"a": vit(), "b": vit()}, iter(images(2)), tmp_path / "two.html", explain_inputs=0)
    assert "<b>a</b>" in both.read_text()
    with pytest.raises(DataError, match=r"give \[x\]"):
        unsmooth.report(vit(), images(1)[0], tmp_path / "three.html")  # type: ignore[arg-type]
