"""Every page says where its numbers come from."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import torch
from results import about_explained, about_measured

from unsmooth.analysis import Explanation, Measurement, Subject
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.metrics.moments import Moments
from unsmooth.page.provenance import analysed, provenance

HOSTILE = "<i>&"


def measured(samples: int = 3, batches: int = 2, model: dict[str, Any] | None = None, **data: str) -> Measurement:
    """What is known of a model that was handed over in Python, and more where it is given."""
    moments = Moments()
    moments.update(torch.arange(samples, dtype=torch.float64))
    about = {
        "model": {
            "class": "ViT", "family": "timm-vit", "placement": "pre", "layers": 12, "width": 24, "dtype": "float32",
            "device": "cpu", **(model or {}),
        },
        "data": {"batches": batches, **data},
        "definitions": {"metrics": {"hfc_lfc": "a ratio"}, "tokens": {"all": "each"}, "changes": {HOSTILE: HOSTILE}},
        "created": "today",
        "versions": {"torch": "9.9"},
    }  # fmt: skip
    return Measurement({Cell("blocks.0.pre", "hfc_lfc", "all"): moments}, {}, about_measured(**about))


def listed(html: str, title: str) -> dict[str, str]:
    """The list below a title."""
    (found,) = re.findall(rf"<h3>{re.escape(title)}</h3><dl>(.*?)</dl>", html)
    return {unescape(k): unescape(v) for k, v in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", found)}


def test_a_model_says_its_weights_data_and_counts() -> None:
    where = {"reference": f"timm:{HOSTILE}", "weights": "abc"}
    measurement = measured(model=where, reference="photos", kind="images")
    measurement.partial, measurement.notes = True, [HOSTILE, "both"]
    rows = [{"layer": 0, "input": i} for i in range(5)]
    explanation = Explanation(
        rows, [], [], [], about_explained(definitions={"columns": {"gap": "1 − λ"}}), notes=["both", "one of the two"]
    )
    html = provenance([Subject("plain", measured()), Subject(HOSTILE, measurement, explanation)], f"unsmooth {HOSTILE}")
    assert listed(html, "&lt;i&gt;&amp;") == {
        "model": f"timm:{HOSTILE}",
        "class": "ViT, family timm-vit, pre-norm",
        "size": "12 layers, width 24, float32 on cpu",
        "weights (SHA-256)": "abc",
        "data": "photos (images)",
        "counts": "3 samples in 2 batches; 5 inputs explained; interrupted before the end",
    }
    assert re.findall("<ul>(.*?)</ul>", html) == ["<li>&lt;i&gt;&amp;</li><li>both</li><li>one of the two</li>"]
    assert "<h3>Command</h3><pre>unsmooth &lt;i&gt;&amp;</pre>" in html
    assert listed(html, "Definitions") == {"hfc_lfc": "a ratio", "tokens: all": "each", f"change: {HOSTILE}": HOSTILE}
    assert listed(html, "Definitions of the explanation") == {"gap": "1 − λ"}
    assert "<i>" not in html
    assert listed(html, "Versions") == {"made": "today", "torch": "9.9"}


def test_what_is_not_known_is_said_to_be_so() -> None:
    html = provenance([Subject("x", measured(1, 1, {"layers": 1}))], None)
    assert listed(html, "x") == {
        "model": "ViT",
        "class": "ViT, family timm-vit, pre-norm",
        "size": "1 layer, width 24, float32 on cpu",
        "weights (SHA-256)": "not recorded",
        "data": "given in Python (unknown kind)",
        "counts": "1 sample in 1 batch; 0 inputs explained",
    }
    assert not re.search("Command|<ul>|Definitions of the explanation", html)


def test_different_models_and_data_are_all_named() -> None:
    one = Subject("a", measured(2))
    other = Subject("b", measured(10, model={"class": "BERT"}, reference="random"))
    assert analysed([one]) == "ViT with 12 layers of width 24, measured on data given in Python (2 samples)."
    assert analysed([other, one, one]) == (
        "3 models, BERT with 12 layers of width 24 and ViT with 12 layers of width 24, measured on random inputs and "
        "data given in Python (2 samples or 10 samples)."
    )


def test_a_metric_of_fewer_samples_says_of_how_many() -> None:
    measurement, few = measured(samples=8), Moments()
    few.update(torch.arange(2, dtype=torch.float64))
    for point, found in (("blocks.0.pre", few), ("blocks.1.pre", few)):
        measurement.cells[Cell(point, "effective_rank", "all")] = found
    said = "8 samples, 2 of them for effective rank"
    assert measurement.samples_of == {"hfc_lfc": 8, "effective_rank": 2}
    assert f"({said})" in analysed([Subject("few", measurement)])
    assert listed(provenance([Subject("few", measurement)], None), "few")["counts"].startswith(f"{said} in 2 batches")
