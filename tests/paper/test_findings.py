"""Open questions from records: what is claimed follows from them, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paper.answers import findings, log, read, runs, short, write
from paper.records import record

from unsmooth.errors import DataError
from unsmooth.paper import Context, find_item
from unsmooth.paper.questions import QUESTIONS
from unsmooth.training import Run, find_recipe
from unsmooth.training.engine.record import write_failure
from unsmooth.training.tasks.images import RECIPES

ROOT = Path(__file__).parents[2]


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
