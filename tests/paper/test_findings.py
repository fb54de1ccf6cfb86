"""Open questions from records: what is claimed follows from them, and no more."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from paper.records import SHORT, record

from unsmooth.errors import DataError
from unsmooth.paper import Context, find_item
from unsmooth.paper.questions import QUESTIONS
from unsmooth.training import Run, find_recipe
from unsmooth.training.engine.record import write_failure
from unsmooth.training.tasks.images import RECIPES

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


def short(variant: str, seed: int, accuracy: float, ends: dict[str, float] | None = None, **changes: Any) -> Any:
    """A run of the short recipe, with what was logged of the last block."""
    curves = {metric: [1.0, value] for metric, value in (ends or {"hfc_lfc": 2.0}).items()}
    name = f"short-{variant}-{seed}-{len(changes)}"
    about = {"run": name, "recipe": SHORT, "epochs": [{"epoch": 50, "smoothing": curves}]}
    return record(variant, seed, 0.1, accuracy, **about | changes)


def findings(folder: Path) -> dict[str, dict[str, Any]]:
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
    shown = find_item("findings").run(Context(runs=tmp_path))
    assert [s.heading.split(". ", 1)[1] for s in shown.sections] == list(found)
    assert not any(f["answer"] in note for f in found.values() for note in shown.notes)
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
            record("sharpening-eigen", seed, 0.1, 0.3 + 0.001 * seed, run=f"o{seed}"),
            record("sharpening-eigen", seed, 0.1, 0.2 + 0.0012 * seed, run=f"e{seed}", std=1.0),
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
    starts = next(f for q, f in found.items() if q.startswith("How should ψ"))
    assert "accuracy of sharpening-eigen" not in starts["answer"]
    assert "accuracy is below that of the form's own start with sharpening-eigen (ψ's std 1)" in starts["answer"]
    (table,) = starts["tables"]
    wide = next(row for row in table["rows"] if row[0] == "sharpening-eigen (ψ's std 1)")
    assert wide[2].startswith("-9.98 (")  # against the form's own start
    layers = found["In how many layers, and in which, should one sharpen?"]
    assert {row[0] for row in layers["tables"][0]["rows"]} == {"plain", "sharpening", "sharpening@first-half"}
    fixes = found["Do the fixes of other papers change what their papers say they change?"]
    assert "HFC/LFC of the last block is above plain's with contranorm" in fixes["answer"]
    ends = [row[:1] + row[4:5] for row in fixes["tables"][0]["rows"]]
    assert sorted(ends) == [["contranorm", "7.25"], ["plain", "2"], ["sharpening", "4"]]
    depth = found["Does accuracy fall with depth where features smooth?"]
    assert "In the paper's recipe, with 12 to 24 layers, accuracy changes per doubling of their" in depth["answer"]
    assert [row[:3] for row in depth["tables"][0]["rows"] if row[0] == 24] == [
        [24, "plain", "25.00 ± 0.00 (n=3)"], [24, "smoothing", "25.00 ± 0.00 (n=3)"],
    ]  # fmt: skip


def test_the_short_recipe_is_a_second_witness(tmp_path: Path) -> None:
    """Both recipes answer, each against its own plain; neither's runs are the other's."""
    runs(tmp_path, 0.0)
    alone = findings(tmp_path)["Does sharpening make training less a matter of luck?"]
    for seed in range(9):
        plain = 0.2 + 0.002 * seed
        write(
            tmp_path,
            short("plain", seed, plain, {"hfc_lfc": 2.0 + 0.01 * (seed % 3)}),
            short("sharpening", seed, plain + 0.02 + 0.0002 * (seed % 2), {"hfc_lfc": 3.0}),
            short("smoothing", seed, plain - 0.03 + 0.0002 * (seed % 2), {"hfc_lfc": 1.0}),
            short("sharpening-bounded", seed, plain - 0.01 + 0.0003 * (seed % 3), {"hfc_lfc": 2.5}),
        )
    found = findings(tmp_path)
    little = found["Does sharpening help with little data?"]
    assert "no difference of sharpening from plain can be claimed" in little["answer"].partition("In the short")[0]
    assert "In the short recipe sharpening is above plain (+2.01 points" in little["answer"]
    assert (
        "In the short recipe smoothing is below plain (-2.99"
        in found["Does smoothing cost accuracy, and why?"]["answer"]
    )
    control = found["Does the parametrisation control what features do?"]["answer"]
    assert "In the short recipe: smoothing -1.01 (-1.02 to -1.00); sharpening +0.99 (" in control
    spread = found["Does sharpening make training less a matter of luck?"]
    assert "In the short recipe, it is 1.0 times" in spread["answer"]
    assert alone["status"] == "leaning"
    assert spread["status"] == "open"  # what one recipe shows, another excludes
    assert "The intervals do not meet" in spread["answer"]
    assert "The intervals do not meet" not in alone["answer"]
    bounded = found["Does a bound on λ (−1/s or −2/s) keep the guarantee, and what does it cost?"]
    assert bounded["answer"].startswith(
        "In the short recipe, accuracy is above plain's with sharpening and below plain's with sharpening-bounded; "
        "HFC/LFC of the last block is above plain's with sharpening and sharpening-bounded. "
        "Minus free sharpening of the same start, in points: sharpening-bounded -2.98 ("
    )
    (table,) = bounded["tables"]
    assert table["title"].startswith("The short recipe (`cifar100-fast`: patch 4, 50 epochs) on 10 % of the images")
    assert [row[0] for row in table["rows"]] == ["sharpening", "plain", "sharpening-bounded"]
    forms = found["Which form of H: symmetric (poster), V Λ V⁻¹ (section 4) or split (footnote 2)?"]
    assert forms["n"] == "9 pairs in the short recipe and 9 pairs in the paper's recipe"
    assert len(forms["tables"]) == 2
    result = find_item("findings").run(Context(runs=tmp_path))
    assert "27 runs of the paper's recipe, 36 runs of the short recipe" in result.label
    assert "sharpening-bounded (n = 9)" in result.figures["findings-fast"].svg()
    assert "sharpening-bounded" not in result.figures["findings"].svg()
    section = next(s for s in result.sections if "bound on λ" in s.heading)
    assert section.tables[0].to_json() == table


def test_every_recipe_is_a_witness_of_its_own(tmp_path: Path) -> None:
    """Three recipes disagree, and each is quoted by its name."""
    runs(tmp_path, 0.0)
    for seed in range(4):
        for recipe, gain in (("cifar100-fast", 0.02), ("cifar100-small", -0.03)):
            about = {"recipe": RECIPES[recipe].as_dict()}
            rows = [{"epoch": 50, "smoothing": {"hfc_lfc": [1.0, 2.0]}, "train_loss": 3.0 + gain + 0.001 * seed}]
            accuracy = 0.2 + 0.001 * seed
            write(
                tmp_path,
                record("plain", seed, 0.1, accuracy, run=f"{recipe}-p{seed}", epochs=rows, **about),
                record("sharpening", seed, 0.1, accuracy + gain, run=f"{recipe}-s{seed}", epochs=rows, **about),
            )
    found = findings(tmp_path)
    little = found["Does sharpening help with little data?"]["answer"]
    assert "In the short recipe sharpening is above plain (+2.00 points" in little
    assert "In the small recipe sharpening is below plain (-3.00 points" in little
    losses = found["If sharpening helps, is it optimisation or generalisation?"]["answer"]
    assert "In the small recipe: training loss +0.000" in losses
    forms = next(f for f in found.values() if f["question"].startswith("Which form of H"))
    assert [table["title"].partition(" (")[0] for table in forms["tables"]] == [
        "The short recipe", "The small recipe", "The paper's recipe",
    ]  # fmt: skip
    figures = find_item("findings").run(Context(runs=tmp_path)).figures
    assert {"findings", "findings-fast", "findings-small"} <= set(figures)


def test_how_often_the_exponent_is_right_is_a_mean_over_the_models_that_were_explained(tmp_path: Path) -> None:
    from unsmooth.analysis import Origin, explain
    from unsmooth.paper.explains import rows_of
    from unsmooth.training.tasks.images import build_model

    recipe = RECIPES["cifar100"].override(["depth=2", "width=24", "heads=2", "image_size=8", "patch_size=4"])
    shares = []
    for seed in range(3):
        for variant in ("sharpening", "sharpening-bounded"):
            run = f"cifar100-small-10pct-{variant}-std1-seed{seed}"
            about = {"recipe": RECIPES["cifar100-small"].as_dict()}
            write(tmp_path, record("plain", seed, 0.1, 0.3, run=f"plain{seed}", **about))
            gain = 0.01 + 0.001 * seed if variant == "sharpening" else 0.0
            write(tmp_path, record(variant, seed, 0.1, 0.3 + gain, run=run, std=1.0, **about))
        if seed < 2:
            model = build_model(recipe, seed)
            origin = Origin(run, "", "noise", "images", "")
            explanation = explain(model, [torch.randn(2, 3, 8, 8)], origin=origin)
            (tmp_path / run).mkdir()
            explanation.save(tmp_path / run / "explanation.json")
            rows = rows_of("", explanation)
            shares += [row for row in rows if (row["candidate"], row["tokens"]) == ("exponent", "all")]
    found = next(f for q, f in findings(tmp_path).items() if q.startswith("Does a bound on λ"))
    assert "of the same start, in points: sharpening-bounded (ψ's std 1) -1.10 (-1.35 to -0.85)" in found["answer"]
    steps = [explanation.frame()[column] > 0 for column in ("exponent", "measured_ratio")]
    assert [shares[-1]["up"], shares[-1]["rises"]] == [share.mean() for share in steps]
    up, rises, right = (round(100 * sum(row[key] for row in shares) / 2) for key in ("up", "rises", "right"))
    assert f"share of attention's steps: where ψ starts at 1, in {up} % with sharpening-bounded." in found["answer"]
    assert found["tables"][-1]["rows"] == [["sharpening-bounded", 1.0, 2, up, rises, right]]


def test_a_fix_is_judged_by_the_metric_of_its_own_paper(tmp_path: Path) -> None:
    for seed in range(4):
        wobble = 0.01 * (seed % 2)
        ends = {"hfc_lfc": 2.0, "cosine_similarity": 0.4, "effective_rank": 30.0 + wobble}
        write(
            tmp_path,
            short("plain", seed, 0.2 + wobble, ends),
            short("contranorm", seed, 0.2 + wobble, ends | {"effective_rank": 35.0}),
            short("gfsa", seed, 0.2 + wobble, ends | {"cosine_similarity": 0.5 + wobble}),
            short("featscale", seed, 0.2 + wobble, ends | {"hfc_lfc": 2.0 + wobble * (-1) ** (seed // 2)}),
        )
    answer = findings(tmp_path)["Do the fixes of other papers change what their papers say they change?"]["answer"]
    meant = answer.partition("means to change, ")[2]
    assert meant.startswith("as its paper says: contranorm (effective rank +4.99 (")
    assert "against it: gfsa (cosine similarity +0.10 (" in meant
    assert "no change that can be claimed: featscale (HFC/LFC" in meant


def test_records_of_the_short_recipe_alone_are_enough(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, short("plain", seed, 0.2), short("neutreno", seed, 0.2 + 0.001 * seed))
    found = findings(tmp_path)
    assert found["Does sharpening help with little data?"]["answer"] == "No run so far."
    fixes = found["Do the fixes of other papers change what their papers say they change?"]
    assert fixes["answer"].startswith("In the short recipe, accuracy with neutreno cannot be told from plain's; ")


def test_a_depth_at_which_accuracy_falls_is_said_to_be_one(tmp_path: Path) -> None:
    runs(tmp_path, 0.0, seeds=3)
    for seed in range(3):
        for variant, gain in (("plain", 0.1), ("smoothing", -0.1)):
            name = f"cifar100-10pct-{variant}-seed{seed}"
            (shallow,) = (r for r in map(read, tmp_path.iterdir()) if (r["variant"], r["seed"]) == (variant, seed))
            accuracy = shallow["final"]["accuracy"] + gain + 0.001 * seed
            deep = record(variant, seed, 0.1, accuracy, run=f"deep-{name}", epochs=[log(0.5, 0.4)])
            write(tmp_path, deep | {"recipe": {**deep["recipe"], "name": "cifar100-depth24", "depth": 24}})
    found = findings(tmp_path)["Does accuracy fall with depth where features smooth?"]
    assert found["status"] == "leaning"
    doubled = re.search(r"plain ([-+.0-9]+) \(.*?\); smoothing ([-+.0-9]+) \(", found["answer"])
    assert doubled is not None
    assert [float(slope) for slope in doubled.groups()] == [10.1, -9.9]  # 12 to 24 layers are one doubling
    assert "Of accuracy, that of smoothing falls and that of plain rises (Holm)" in found["answer"]
    assert "that of plain and smoothing falls (Holm). So both fall for smoothing. Accuracy minus" in found["answer"]
    assert found["n"] == "12 runs"
    figures = find_item("findings").run(Context(runs=tmp_path)).figures
    assert all(name in figures["findings-depth"].svg() for name in ("plain (n = 3)", "smoothing (n = 3)", "layers"))
    assert "sharpening" not in figures["findings-depth"].svg()  # it was run at one depth


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_runs_that_broke_are_named_where_they_matter(tmp_path: Path) -> None:
    """An unbounded run that broke is no reason to say that bounds are not needed."""
    runs(tmp_path, 0.0)
    asked = "Must eigenvalues be bounded for training to be stable?"
    assert findings(tmp_path)[asked]["answer"].startswith("No: ±ψ² has no upper bound, and 18 runs of it ended")
    run = Run(find_recipe("cifar100"), "sharpening", 2, 0.1, std=1.0)
    failure = {"run": run.name, **run.state(), "failed": "the loss is nan in epoch 7: expected a finite number; lower"}
    write_failure(tmp_path / f"{run.name}.failed.json", failure)
    found = findings(tmp_path)
    assert found[asked]["status"] == "open"
    said = "1 run broke and is in no mean: cifar100-10pct-sharpening-std1-seed2."
    assert said in found[asked]["answer"]
    assert said == next(f["answer"] for question, f in found.items() if question.startswith("How should ψ"))
    notes = find_item("findings").run(Context(runs=tmp_path)).notes
    assert f"the run {run.name} broke: the loss is nan in epoch 7" in notes


def test_a_start_that_is_the_forms_own_and_a_run_cut_by_a_budget(tmp_path: Path) -> None:
    """The first is one more run of the variant; the second is a run of another recipe."""
    runs(tmp_path, 0.0, seeds=2)
    write(tmp_path, record("sharpening", 2, 0.1, 0.33, run="own", std=0.3))
    write(tmp_path, record("plain", 2, 0.1, 0.9, run="short", budget="60s"), record("plain", 2, 0.1, 0.32, run="p"))
    assert "n = 3)" in findings(tmp_path)["Does sharpening help with little data?"]["answer"]
    assert findings(tmp_path)["Does sharpening help with little data?"]["answer"].count("+0.90") == 0


def test_robustness_is_what_is_beyond_the_gap_on_clean_images(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    asked = "Does sharpening make models robust to corrupted images?"
    assert findings(tmp_path)[asked]["answer"] == "No run so far."
    for seed in range(4):
        for variant, clean, corrupted in (("plain", 0.3, 0.2), ("sharpening", 0.31, 0.23 + 0.001 * seed)):
            mean = {str(s): corrupted for s in range(1, 6)}
            about = {"variant": variant, "fraction": 0.1, "seed": seed, "clean": {"accuracy": clean}}
            path = tmp_path / f"{variant}{seed}.corruptions.json"
            path.write_text(json.dumps(about | {"corruptions": {"mean": mean}}), encoding="utf-8")
        found = findings(tmp_path)[asked]
        assert (found["status"], found["n"]) == (("leaning", f"{seed + 1} seeds") if seed else ("open", "1 seed"))
        assert ("one seed has no interval" in found["answer"]) == (seed == 0)
    assert "over all intensities, +2.15 (+1.94 to +2.36)." in found["answer"]


def test_what_is_not_so_is_not_said(tmp_path: Path) -> None:
    """Smoothing that costs nothing, sharpening that gains, one seed without an interval."""
    runs(tmp_path / "gain", 0.03)
    for path in (tmp_path / "gain").glob("smoothing*"):
        content = read(path)
        path.write_text(json.dumps(content | {"final": {"accuracy": 0.32 + 0.001 * content["seed"]}}))
    found = findings(tmp_path / "gain")
    assert found["Does smoothing cost accuracy, and why?"]["answer"].startswith("Not clearly. Accuracy of smoothing")
    losses = found["If sharpening helps, is it optimisation or generalisation?"]["answer"]
    assert "training loss can be claimed to be lower: sharpening fits" in losses
    runs(tmp_path / "one", 0.0, seeds=1)
    one = findings(tmp_path / "one")["Does sharpening help with little data?"]
    assert (one["n"], one["status"]) == ("1 pair", "open")
    assert "that interval" not in one["answer"]
    assert findings(tmp_path / "one")["Does control act alike in language models?"]["answer"].startswith("No result")


def test_without_records_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no record of a run of the recipe cifar100"):
        find_item("findings").run(Context(runs=tmp_path))


def test_the_drawing_names_every_variant(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    svg = find_item("findings").run(Context(runs=tmp_path)).figures["findings"].svg()
    assert "sharpening (n = 9)" in svg
    assert "smoothing (n = 9)" in svg


def test_the_longest_name_is_inside_the_drawing(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    mixed = "smoothing@first-half+sharpening@second-half"
    write(tmp_path, *(record(mixed, seed, 0.1, 0.1 + 0.01 * (seed % 2)) for seed in range(9)))
    drawing = find_item("findings").run(Context(runs=tmp_path)).figures["findings"]
    (name,) = (mark for mark in drawing.marks if mixed in getattr(mark, "said", ""))
    assert name.bold
    assert name.x > 6.5 * len(name.said)  # it ends there


def test_saved_results_are_whole_and_say_when_and_from_what() -> None:
    results = ROOT / "zoo" / "results"
    for path in (*results.glob("*.json"), *results.glob("study/*.json")):
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
