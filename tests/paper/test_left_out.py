"""Records, results and models that a table cannot use are named, never dropped in silence or met with a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from paper.records import corrupted, record, write

from unsmooth.errors import OptionError
from unsmooth.paper import Context, find_item
from unsmooth.paper.changes import variant_of
from unsmooth.training import Evaluation
from unsmooth.training.tasks.images.scores import Scores


@pytest.mark.parametrize("item", ["poster-table2", "fig2", "training", "variants"])
def test_a_record_that_is_not_whole_is_named(item: str, tmp_path: Path) -> None:
    rows = [{"epoch": 1, "spectrum": {"in_minus_one_zero": [1.0], "positive": [0.0]}, "test": {"accuracy": 0.5}}]
    rows[0]["smoothing"] = {name: [1.0] for name in ("hfc_lfc", "cosine_similarity", "effective_rank")}
    needed = ["run", "recipe", "variant", "seed", "fraction", "final", "command", "minutes", "epochs"]
    whole = record("plain", 1, 0.1, 0.35, epochs=rows)
    cut = [{key: value for key, value in whole.items() if key != lacking} for lacking in needed]
    write(tmp_path, *cut, whole, {"schema": "unsmooth-failure/1"})
    notes = find_item(item).run(Context(runs=tmp_path)).notes
    for number, lacking in enumerate(needed):
        assert f"left out: {number}.json is not a whole record: its {lacking} is None" in notes
    assert f"the run {len(needed) + 1}.json broke: nothing says how" in notes


def test_what_only_has_the_name_of_a_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    write(tmp_path, {**record("plain", 0, 0.1, 0.33), "recipe": "cifar100"})
    notes = find_item("poster-table2").run(Context(runs=tmp_path)).notes
    for name in ("folder.json", "gone.json"):
        assert f"left out, not readable as JSON: {name}" in notes
    assert "left out: 0.json is not a whole record: its recipe is 'cifar100'" in notes


def test_a_corruption_result_that_is_not_whole_is_named(tmp_path: Path) -> None:
    corrupted(tmp_path, "m", fraction=1.0)
    whole = json.loads((tmp_path / "m.corruptions.json").read_text())
    for lacking in ("model", "variant", "clean", "corruptions"):
        cut = {key: value for key, value in whole.items() if key != lacking}
        (tmp_path / f"{lacking}.corruptions.json").write_text(json.dumps(cut))
    (tmp_path / "mean.corruptions.json").write_text(json.dumps({**whole, "corruptions": {"seed": 0}}))
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    assert list(result.about) == ["m"]
    for lacking in ("model", "clean"):
        name = f"{lacking}.corruptions.json"
        assert f"left out: {name} is no evaluation that `unsmooth evaluate --out` wrote (KeyError: '{lacking}')" in (
            result.notes
        )
    for name, lacking in (("variant", "variant"), ("corruptions", "corruptions"), ("mean", "corruptions")):
        assert f"left out: {name}.corruptions.json has no {lacking}" in result.notes


def test_the_posters_form_by_its_full_name_fills_its_cell(tmp_path: Path) -> None:
    """`--variant sharpening-symmetric` trains what `--variant sharpening` does."""
    write(tmp_path, record("sharpening-symmetric", 0, 0.1, 0.34))
    corrupted(tmp_path, "m", fraction=1.0, variant="smoothing-symmetric")
    rows = find_item("poster-table2").run(Context(runs=tmp_path)).tables[0].rows
    assert [row[:3] for row in rows if row[2]] == [["10 %", "ViT-Ti⁻ (sharpening)", "34.00 (n=1)"]]
    rows = find_item("poster-table3").run(Context(runs=tmp_path)).tables[0].rows
    assert {row[1] for row in rows if row[2]} == {"ViT-Ti⁺ (smoothing)"}
    assert "1 runs" in find_item("fig2").run(Context(runs=tmp_path)).label


def evaluation(reference: str, data: str, **_: Any) -> Evaluation:
    variant = reference.partition(":")[2]
    share = 0.2 if variant == "plain" else 0.1
    mean = {str(s): 0.5 for s in range(1, 6)}
    clean = Scores({"one": 0.25, "two": 0.75}[data], 1.5, 0.05, 10)
    stamp = dict.fromkeys(("date", "commit", "hardware", "torch", "command"), "")
    return Evaluation(
        reference, **stamp, run=reference, variant=variant, seed=0, fraction=share, precision="float32", clean=clean,
        smoothing={}, smoothing_definition="", corruptions={"seed": 0, "mean": mean},
    )  # fmt: skip


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.paper.evaluated.evaluate_trained", evaluation)


@pytest.mark.usefixtures("evaluated")
def test_named_models_that_have_no_cell_are_named() -> None:
    models = ("zoo:sharpening", "zoo:sharpening-eigen", "zoo:plain", "zoo:attnscale")
    context = Context(models=models, data=("one",), device="cpu")
    two, three = (find_item(name).run(context) for name in ("poster-table2", "poster-table3"))
    other = "left out, of a variant that the table does not have: zoo:sharpening-eigen, zoo:attnscale"
    assert other in two.notes
    assert other in three.notes
    assert "left out, of a share of the data that the table does not have: zoo:plain" in two.notes
    assert [row[2] for row in two.tables[0].rows if row[2]] == ["25.00 (n=1)"]


@pytest.mark.usefixtures("evaluated")
def test_each_model_is_evaluated_on_its_own_data() -> None:
    context = Context(models=("A=zoo:sharpening", "B=zoo:smoothing"), data=("one", "two"), device="cpu")
    result = find_item("poster-table2").run(context)
    assert [row[2] for row in result.tables[0].rows if row[2]] == ["75.00 (n=1)", "25.00 (n=1)"]
    assert "on one, two" in result.label
    with pytest.raises(OptionError, match="expected one --data for all models or one for each of 2, got 3"):
        find_item("poster-table2").run(Context(models=context.models, data=("one",) * 3, device="cpu"))


def test_a_variant_is_a_word_of_its_own() -> None:
    names = ("explained", "my_plain_model", "plainer", "unsmoothing", "resharpening-eigen", "runs/plain")
    assert [variant_of(name) for name in names] == [None, "plain", None, None, None, "plain"]
