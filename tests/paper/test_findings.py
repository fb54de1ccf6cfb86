"""Open questions from records: what is claimed follows from them, and no more."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper.records import record

from unsmooth.errors import DataError
from unsmooth.paper import Context, find_item
from unsmooth.paper.questions import QUESTIONS

ROOT = Path(__file__).parents[2]


def log(negative: float, ratio: float, epoch: int = 300, loss: float = 3.5) -> dict[str, Any]:
    spectrum = {"in_minus_one_zero": [negative] * 2, "positive": [1 - negative] * 2}
    return {"epoch": epoch, "spectrum": spectrum, "smoothing": {"hfc_lfc": [1.0, ratio]}, "train_loss": loss}


def write(folder: Path, *records: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for content in records:
        (folder / f"{content['run']}.json").write_text(json.dumps(content), encoding="utf-8")


def runs(folder: Path, gain: float, seeds: int = 9) -> None:
    """Plain with some spread, sharpening with less, smoothing clearly below."""
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        plain = 0.32 + 0.008 * rng.normal()
        write(
            folder,
            record("plain", seed, 0.1, plain, epochs=[log(0.5, 1.0, 100), log(0.55 + 0.001 * seed, 2.0)]),
            record("sharpening", seed, 0.1, 0.32 + gain + 0.001 * rng.normal(), epochs=[log(0.99, 4.0, loss=3.4)]),
            record("smoothing", seed, 0.1, plain - 0.05 + 0.001 * rng.normal(), epochs=[log(0.0, 0.5)]),
        )


def findings(folder: Path) -> dict[str, dict[str, str]]:
    found = find_item("findings").run(Context(runs=folder)).about["findings"]
    return {f["question"]: f for f in found}


def test_every_question_is_answered_or_open(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    found = findings(tmp_path)
    assert set(found) == {question.asked for question in QUESTIONS}
    for f in found.values():
        assert f["status"] in ("settled", "leaning", "open")
        assert f["command"].startswith("unsmooth reproduce ")
        assert bool(f["settle"]) == (f["status"] != "settled")
    assert found["Do the fixes of other papers change what their papers say they change?"]["answer"] == "No run so far."


def test_a_gain_that_is_not_there_is_not_claimed_and_one_that_is_there_is(tmp_path: Path) -> None:
    asked = "Does sharpening help with little data?"
    runs(tmp_path / "none", 0.0)
    none = findings(tmp_path / "none")[asked]
    assert none["status"] in ("leaning", "open")
    assert "no difference of sharpening from plain can be claimed" in none["answer"]
    runs(tmp_path / "some", 0.03)
    some = findings(tmp_path / "some")[asked]
    assert some["status"] == "settled"
    assert "sharpening is above plain" in some["answer"]


def test_spread_smoothing_and_drift_follow_from_the_records(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    found = findings(tmp_path)
    assert found["Does smoothing cost accuracy, and why?"]["status"] == "settled"
    assert "the others alone give" in found["Does sharpening make training less a matter of luck?"]["answer"]
    drift = next(f for asked, f in found.items() if "drift" in asked)
    assert "0.500 after epoch 100, 0.554 after 300" in drift["answer"]
    assert "up in 9 of 9 seeds" in drift["answer"]
    control = found["Does the parametrisation control what features do?"]
    assert control["status"] == "settled"
    assert "sharpening +2.00 (+2.00 to +2.00)" in control["answer"]
    assert "does not hold on all data" not in control["answer"]
    losses = found["If sharpening helps, is it optimisation or generalisation?"]
    assert "training loss -0.100 (-0.100 to -0.100)" in losses["answer"]


def test_control_of_one_data_set_names_those_on_which_it_fails(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    for variant, ratio in (("plain", 0.5), ("smoothing", 0.75)):
        tiny = {"recipe": {"name": "tiny-imagenet"}, "run": f"tiny-imagenet-{variant}-seed0"}
        (tmp_path / variant).mkdir()
        content = record(variant, 0, 1.0, 0.4, epochs=[log(0.5, ratio)], **tiny)
        (tmp_path / variant / "record.json").write_text(json.dumps(content), encoding="utf-8")
    control = findings(tmp_path)["Does the parametrisation control what features do?"]
    assert (
        "smoothing ends with a higher HFC/LFC than plain in tiny-imagenet (see the questions below)"
        in control["answer"]
    )


def test_two_seeds_settle_nothing_about_spread(tmp_path: Path) -> None:
    runs(tmp_path, 0.0, seeds=2)
    assert findings(tmp_path)["Does sharpening make training less a matter of luck?"]["status"] == "open"


def test_other_draws_starts_layers_fixes_and_depths_are_read(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    for seed in range(3):
        write(
            tmp_path,
            record("plain", seed, 0.1, 0.31 + 0.002 * seed, run=f"p{seed}", subset=1),
            record("sharpening", seed, 0.1, 0.32 + 0.001 * seed, run=f"s{seed}", subset=1),
            record("sharpening-eigen", seed, 0.1, 0.2 + 0.001 * seed, run=f"e{seed}", std=1.0),
            record("sharpening@first-half", seed, 0.1, 0.31, run=f"h{seed}"),
            record("contranorm", seed, 0.1, 0.30, run=f"c{seed}", epochs=[log(0.5, 7.25)]),
        )
        for variant in ("plain", "smoothing"):
            deep = record(variant, seed, 0.1, 0.25, run=f"d{variant}{seed}", epochs=[log(0.5, 0.4)])
            deep["recipe"] = {**deep["recipe"], "name": "cifar100-depth24", "depth": 24}
            write(tmp_path, deep)
    found = findings(tmp_path)
    answers = {asked: f["answer"] for asked, f in found.items()}
    assert "Other draws of the images: +0.90 (" in answers["Does sharpening help with little data?"]
    assert "over 2 draws +0.45 (" in answers["Does sharpening help with little data?"]
    assert "sharpening-eigen, ψ's std 1 -" in next(a for q, a in answers.items() if q.startswith("How should ψ"))
    assert "sharpening@first-half" in answers["In how many layers, and in which, should one sharpen?"]
    fixes = answers["Do the fixes of other papers change what their papers say they change?"]
    assert "contranorm -" in fixes
    assert "HFC/LFC 7.25" in fixes
    depth = answers["Does accuracy fall with depth where features smooth?"]
    assert "24 layers: plain 25.00 ± 0.00 (n=3), HFC/LFC 0.40" in depth
    assert "12 layers: plain" in depth


def test_without_records_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no record of a run of the recipe cifar100"):
        find_item("findings").run(Context(runs=tmp_path))


def test_the_drawing_names_every_variant(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    svg = find_item("findings").run(Context(runs=tmp_path)).figures["findings"].svg()
    assert "sharpening (n = 9)" in svg
    assert "smoothing (n = 9)" in svg


def test_saved_results_are_whole_and_say_when_and_from_what() -> None:
    for path in (ROOT / "zoo" / "results").glob("*.json"):
        saved = json.loads(path.read_text(encoding="utf-8"))
        assert saved["name"] == path.stem
        assert find_item(saved["name"]).name == path.stem
        assert saved["tables"][0]["rows"]
        assert saved["about"]


def test_fine_tuning_is_answered_from_its_runs(tmp_path: Path) -> None:
    from unsmooth.training.finetuning import FineTuned
    from unsmooth.training.finetuning.study import SCHEMA

    records = tmp_path / "records"
    runs(records, 0.0, seeds=2)
    for data, gain in (("birds", 0.05), ("bees", 0.0)):
        for arm, more in (
            ("plain", 0.0), ("adapter-smoothing", gain), ("adapter-smoothing-strong", 0.0), ("featscale", 0.0)
        ):  # fmt: skip
            for seed in range(5):
                noise = 0.001 * ((7 * seed + len(arm)) % 5 - 2)
                after = 0.6 if arm == "plain" else 0.15 if arm.endswith("-strong") else 0.3
                scores = {"score": 0.5 + more + noise, "hfc_lfc_after": after}
                run = FineTuned("m", data, "accuracy", arm, seed, scores, 1.0, {})
                path = tmp_path / "finetuned" / run.file
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps({"schema": SCHEMA, **asdict(run)}))
    question = next(q.asked for q in QUESTIONS if "fine-tuned (adapters" in q.asked)
    found = findings(records)[question]
    assert found["status"] == "leaning"
    assert found["answer"].startswith("Of 6 comparisons with plain fine-tuning (5 pairs each, in points) 1 can be")
    assert "adapter-smoothing +5.0" in found["answer"]
    assert "(m on birds)" in found["answer"]
    assert "The other differences are" in found["answer"]
    assert "Plain reaches 50.0 (m on bees, n = 5); 50.0 (m on birds, n = 5)." in found["answer"]
    possible = r"an adapter or a penalty is at most \+0\.\d points \(m on bees\); \+5\.\d points \(m on birds\)"
    assert re.search(possible, found["answer"])
    doses = "0.50 with smoothing (0.50 to 0.50), 0.25 with smoothing in a larger dose (0.25 to 0.25)."
    assert found["answer"].endswith(f"plain's with the same seed, is {doses}")
    for path in (tmp_path / "finetuned").glob("birds-adapter*"):
        path.unlink()
    nothing = findings(records)[question]["answer"]
    assert nothing.startswith("No gain was found. Of 4 comparisons")
    assert "none can be claimed" in nothing
    assert "birds)" not in nothing[: nothing.index("Plain reaches")]
    for seed in range(5):
        scores = {"score": 0.9, "hfc_lfc_after": 9.0}
        run = FineTuned("m", "bees", "accuracy", "penalty-sharpening-bare", seed, scores, 1.0, {})
        (tmp_path / "finetuned" / run.file).write_text(json.dumps({"schema": SCHEMA, **asdict(run)}))
    told = findings(records)[question]["answer"]
    assert "Of m no penalty of the folded H was run: arms called `…-bare`" in told
    assert "with sharpening" not in told
    assert "+40" not in told[told.index("A gain of") : told.index("Plain reaches")]
