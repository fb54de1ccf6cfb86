"""What explains a step: from saved results, from files that `explain` wrote, and in words that count right."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from small_models import bert, images, vit, words

import unsmooth
from unsmooth.analysis.explaining.tables import CANDIDATES, FORECAST
from unsmooth.errors import DataError, OptionError
from unsmooth.paper import Context, find_item
from unsmooth.paper.explains import Explained, in_words, rows_of
from unsmooth.paper.steps import steps_of, tables
from unsmooth.training.engine.record import TrainingRecord


def row(model: str, candidate: str, spearman: float, low: float = 0.1, clear: bool = False) -> Explained:
    return Explained(model=model, tokens="all", layers=3, inputs=4, candidate=candidate, spearman=spearman, low=low,
                     high=1.0, right=0.5, guessing=0.5, clear=clear)  # fmt: skip


def test_words_count_models() -> None:
    found = [row("a", "mean_field", 0.9, clear=True), row("a", FORECAST, 0.5), row("b", "mean_field", math.nan),
             row("b", FORECAST, 0.4), row("c", "mean_field", 0.2, low=-0.1), row("c", FORECAST, 0.8)]  # fmt: skip
    first, second = in_words(found)
    assert first == (
        "mean field: rank correlation +0.20 to +0.90, its interval above 0 in 1 of 2; the sign clearly more often "
        "right than by guessing in 1; a higher rank correlation than the step on other inputs in 1"
    )
    assert second.startswith("other inputs: rank correlation +0.40 to +0.80, its interval above 0 in 3 of 3")


def test_files_of_explanations_are_taken_as_they_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    explanation = unsmooth.explain(vit().eval(), images(2), spectra=0)
    path = explanation.save(tmp_path / "mine.json")
    result = find_item("explains").run(Context(models=(f"Mine={path}",)))
    assert [table.rows[0][0] for table in result.tables[:2]] == ["Mine", "Mine"]
    rows = rows_of("Mine", explanation)
    assert [r["candidate"] for r in rows] == list(CANDIDATES)
    assert result.about["explained"] == rows
    exact = explanation.agreement("frozen_ratio")
    assert rows[0]["guessing"] == exact.majority


def test_models_are_added_to_a_result_that_was_written(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = unsmooth.explain(vit().eval(), images(2), spectra=0).save(tmp_path / "mine.json")
    item, written = find_item("explains"), tmp_path / "before.json"
    before = item.run(Context(models=(f"A={path}", f"B={path}")))
    written.write_text(json.dumps({"name": "explains", **before.to_json()}), encoding="utf-8")
    both = item.run(Context(models=(f"C={path}", str(written))))
    assert [row[0] for row in both.tables[0].rows] == ["C", "A", "B"]
    for part in ("explained", "steps"):
        assert [row for row in both.about[part] if row["model"] != "C"] == before.about[part]
    with pytest.raises(OptionError, match="several models are called B"):
        item.run(Context(models=(f"B={path}", str(written))))
    written.write_text('{"name": "explains"}', encoding="utf-8")
    with pytest.raises(DataError, match="is not what `unsmooth reproduce explains --out` writes"):
        item.run(Context(models=(str(written),)))


def test_saved_results_cover_public_shipped_and_larger_models_and_need_no_model() -> None:
    result = find_item("explains").run(Context())
    models = {r["model"] for r in result.about["explained"]}
    assert {"DINOv2 ViT-S/14", "text, plain", "tiny-imagenet, smoothing", "crammed-bert, plain"} <= models
    assert not [model for model in models if model.startswith("small-text")]  # they ship, as text
    assert all(FORECAST in {r["candidate"] for r in result.about["explained"] if r["model"] == m} for m in models)


def test_explanations_that_trainings_left_are_rows_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    explanation = unsmooth.explain(vit().eval(), images(2), spectra=0)
    for recipe in ("tiny-imagenet", "small-text"):
        name = f"{recipe}-plain-seed0"
        TrainingRecord(name, "plain", 0, 1.0, "unsmooth train …", 1.0, {"loss": 3.0}, {"name": recipe}, []).save(
            tmp_path / name / "record.json"
        )
        explanation.save(tmp_path / name / "explanation.json")
    result = find_item("explains").run(Context(runs=tmp_path))
    assert rows_of("tiny-imagenet, plain", explanation) == [
        r for r in result.about["explained"] if r["model"] == "tiny-imagenet, plain"
    ]
    assert "on 1 larger one" in result.label
    assert not [r for r in result.about["explained"] if r["model"].startswith("small-text")]


def test_without_saved_results_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.paper.explains.saved_result", lambda item: {})
    with pytest.raises(OptionError, match="--recompute"):
        find_item("explains").run(Context())


def test_steps_say_what_constants_outliers_and_norms_do() -> None:
    """A norm after the sum and biases in both sub-layers; one token of one input far outside the others."""
    torch.manual_seed(0)
    model = bert().double().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("attention.output.dense.bias"):
            torch.nn.init.normal_(parameter)
    torch.nn.init.normal_(model.get_submodule("embeddings.LayerNorm").weight)
    explanation = unsmooth.explain(model, words(2), tokens=("all", "no-outliers"), spectra=0)
    whole, without = steps_of("Mine", explanation)
    frame = explanation.frame("all")
    assert whole["raises"] == (frame["measured_ratio"] > 0).mean()
    assert whole["other_sign"] == 0
    assert whole["attention"] + whole["norm"] == pytest.approx(frame["measured_ratio"].mean())
    assert whole["post_norm"]
    assert [layer["constant"] for layer in whole["layers"]] == frame.groupby("layer")["constant"].mean().tolist()
    signs = [explanation.frame(policy)["measured_ratio"].to_numpy() > 0 for policy in ("all", "no-outliers")]
    assert without["other_sign"] == (signs[0] != signs[1]).mean()
    titles = [table.title for table in tables([whole, {**without, "other_sign": 0.5}])]
    assert titles == ["Constants", "Mine, by layer", "Without outlying tokens", "Norms after the sum"]
    bare = {**whole, "post_norm": False, "layers": [{**layer, "constant": 0.0} for layer in whole["layers"]]}
    assert tables([bare]) == []  # type: ignore[list-item]
    flips = {**whole, "model": "Flips", "raises": 1.0, "raises_without_constant": 0.0,
             "layers": [{**layer, "without_constant": layer["measured"]} for layer in whole["layers"]]}  # fmt: skip
    shown = tables([flips, whole])[1]  # type: ignore[list-item]
    assert shown.title == "Mine, by layer"  # where constants move the steps farthest, not where signs are closest to 0
