"""The ImageNet and text columns, from results that were kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from unsmooth.paper import Context, find_item
from unsmooth.paper.columns import COLUMNS, WANTED, kept_groups, missing, nearest, signs, signs_table
from unsmooth.paper.effects import effect, effects, effects_table, oscillation_in_words, said_in_words, turns
from unsmooth.paper.evidence import Evidence
from unsmooth.paper.published import column
from unsmooth.paper.questions.features import language, other_images
from unsmooth.training import Run, find_recipe
from unsmooth.training.engine.record import TrainingRecord
from unsmooth.training.tasks.superglue.evaluation import SuperGlue

METRICS = ("hfc_lfc", "effective_rank", "cosine_similarity")
FLAT = {"hfc_lfc": [1.0] * 4, "effective_rank": [10.0] * 4, "cosine_similarity": [0.5] * 4}


def keep(folder: Path, recipe: str, variant: str, seed: int = 0, **curves: list[float]) -> Path:
    """A folder of results with a record alone."""
    name = f"{recipe}-{variant}-seed{seed}"
    rows = [{"step": 1, "smoothing": FLAT | curves}]
    recipes = {"name": recipe}
    TrainingRecord(
        name, variant, seed, 1.0, "unsmooth train …", 1.0, {"loss": 3.0, "accuracy": 0.4}, recipes, rows
    ).save(folder / name / "record.json")
    return folder / name


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A measurement of a tiny text model at all points."""
    from transformers import BertConfig, BertModel

    from unsmooth.analysis import measure

    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    path = tmp_path_factory.mktemp("measured") / "measurement.json"
    measure(BertModel(config).eval(), [torch.randint(50, (3, 8))], points="all").save(path)
    return path


def test_each_missing_model_is_an_empty_row_and_its_command_a_note(tmp_path: Path) -> None:
    groups = kept_groups(Context(runs=tmp_path), [])
    assert {each.data: lacking for each, lacking in missing(groups).items()} == {
        each.data: list(WANTED) for each in COLUMNS
    }
    keep(tmp_path, "crammed-bert", "sharpening-split")
    keep(tmp_path, "small-text", "plain")  # not the paper's model: leaves its cell open
    result = find_item("superglue").run(Context(runs=tmp_path))
    for each in COLUMNS:
        for variant in WANTED:  # the command that a note gives trains any of them
            words = each.command.replace("NAME", variant).split()
            assert Run(find_recipe(words[2]), words[words.index("--variant") + 1]).recipe.name in each.recipes
    (said,) = [note for note in result.notes if note.startswith("no results yet for The Pile")]
    assert "unsmooth train crammed-bert --variant NAME" in said
    lacking = missing(kept_groups(Context(runs=tmp_path), []))
    assert [v for each, v in lacking.items() if each.data == "The Pile"] == [
        [v for v in WANTED if "sharpening-" not in v]
    ]


def test_signs_and_cells_are_those_of_the_measurement(tmp_path: Path, measured: Path) -> None:
    from unsmooth.analysis import load_measurement
    from unsmooth.paper.by_kind import mean_changes
    from unsmooth.paper.columns import changes_table

    (keep(tmp_path, "crammed-bert", "plain") / "measurement.json").write_bytes(measured.read_bytes())
    (group,) = kept_groups(Context(runs=tmp_path), [])
    m = load_measurement(measured)
    for name, metric in zip(("table1", "table2", "table3"), METRICS, strict=True):
        table = changes_table(name, [group])
        rows = table.rows
        assert table.title == "ImageNet and text (The Pile: Wikipedia and books (stand-in))"
        shown = {(row[2], row[3]): (row[4], row[5], row[6]) for row in rows if row[2]}
        for reading in ("chain", "residual"):
            for kind, value in mean_changes(m, metric, reading).items():
                ours, theirs, note = shown[reading, kind]
                published = column(name, "The Pile", "Cram. Bert")[kind]
                assert float(str(ours).removesuffix(" (n=1)")) == pytest.approx(value, abs=6e-3)
                assert float(str(theirs)) == pytest.approx(published, abs=6e-3)
                assert str(note).startswith("sign differs") == (value * published < 0)
    agree, cells = signs(group)["chain"]
    both = [
        mean_changes(m, metric, "chain")[kind] * column(name, "The Pile", "Cram. Bert")[kind] > 0
        for name, metric in zip(("table1", "table2", "table3"), METRICS, strict=True)
        for kind in ("LayerNorm", "Attention", "MLP")
    ]
    assert (agree, cells) == (sum(both), 9)
    (row,) = signs_table([group]).rows
    assert row[:3] == ["Cram. Bert", "Wikipedia and books (stand-in)", f"{sum(both)} of 9"]


def test_a_stand_in_is_called_one_in_every_table(tmp_path: Path, measured: Path) -> None:
    from unsmooth.paper.changes import all_columns

    for recipe, data in (
        ("tiny-imagenet", "Tiny-ImageNet (stand-in)"),
        ("imagenet-90", "another recipe"),
        ("imagenet", ""),
    ):
        (keep(tmp_path, recipe, "plain") / "measurement.json").write_bytes(measured.read_bytes())
        found = all_columns("table1", {}, {}, kept_groups(Context(runs=tmp_path), []))
        (row,) = [row for row in found.rows if row[:2] == ["ImageNet", "ViT-S"]]
        shown = dict(zip(found.columns, row, strict=True))
        assert shown["ours, attn"] is not None
        assert data in str(shown["ours trained on"])


def test_the_papers_form_and_the_nearest_recipe_stand_beside_a_published_column(tmp_path: Path) -> None:
    from unsmooth.paper.changes import all_columns

    for recipe, variant in (("small-text", "smoothing"), ("crammed-bert", "smoothing"), ("crammed-bert", "plain")):
        keep(tmp_path, recipe, variant)
    groups = kept_groups(Context(runs=tmp_path), [])

    def found() -> tuple[str, str]:
        group = nearest(kept_groups(Context(runs=tmp_path), []), "The Pile", "Cram. Bert (smoothing)")
        assert group is not None
        return group.recipe, group.variant

    assert found() == ("crammed-bert", "smoothing")
    keep(tmp_path, "crammed-bert", "smoothing-split")
    assert found() == ("crammed-bert", "smoothing-split")
    assert nearest(groups, "ImageNet", "ViT-S") is None
    table = all_columns("table1", {}, {}, kept_groups(Context(runs=tmp_path), []))
    trained = {row[1]: row[-1] for row in table.rows if row[0] == "The Pile"}
    assert trained["Cram. Bert"] == "Wikipedia and books (stand-in)"
    assert trained["Cram. Bert (smoothing)"] == "Wikipedia and books (stand-in); form: split"


def test_runs_of_another_variant_or_that_are_no_records_are_left_out(tmp_path: Path) -> None:
    keep(tmp_path, "crammed-bert", "sharpening@:6")
    keep(tmp_path, "crammed-bert", "attnscale")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "record.json").write_text('{"schema": "unsmooth-record/1", "run": ')
    notes: list[str] = []
    assert kept_groups(Context(runs=tmp_path), notes) == []
    assert len(notes) == 1
    assert "left out" in notes[0]


def test_an_effect_is_relative_to_plain_but_of_cosines_a_difference() -> None:
    found = effect([[1.0, 1, 2, 2], [3.0, 3, 2, 2]], [[2.2, 2.2, 1, 1]], "hfc_lfc")
    assert found is not None
    assert found == pytest.approx((0.1, -0.5))
    cosines = effect([[0.0, 0.0]], [[0.05, 0.2]], "cosine_similarity")
    assert cosines is not None
    assert cosines == pytest.approx((0.05, 0.2))
    assert not cosines.limited
    assert effect([], [[1.0]], "hfc_lfc") is None


def test_the_papers_sentences_on_figure_2_are_judged_by_the_numbers(tmp_path: Path) -> None:
    keep(tmp_path, "crammed-bert", "plain")
    keep(tmp_path, "crammed-bert", "smoothing", hfc_lfc=[1.0, 1.0, 0.8, 0.8])
    keep(tmp_path, "crammed-bert", "smoothing-split", hfc_lfc=[1.0, 1.0, 0.99, 0.99])
    groups = kept_groups(Context(runs=tmp_path), [])
    assert said_in_words(groups) == [
        "the paper says of The Pile: “limited”; this holds for 1 (crammed-bert, smoothing-split) of 2 controlled "
        "models",
        "an effect counts where the mean over a half of the blocks differs by 10 % of plain's value (cosine: 0.1) or "
        "more",
    ]
    ours = {row[1]: row[2:] for row in effects_table(groups, Context()).rows if row[0] == "crammed-bert"}
    assert ours["smoothing"] == ["+0 %, -20 %", "+0 %, +0 %", "+0.00, +0.00", "no"]
    assert ours["smoothing-split"][-1] == "yes"
    assert set(effects(groups)["The Pile", "crammed-bert", "smoothing"]) == set(METRICS)


def test_whether_the_effective_rank_alone_is_affected_follows_from_the_numbers(tmp_path: Path) -> None:
    def verdicts() -> dict[object, object]:
        rows = effects_table(kept_groups(Context(runs=tmp_path), []), Context()).rows
        return {row[1]: row[-1] for row in rows if row[0] == "tiny-imagenet"}

    keep(tmp_path, "tiny-imagenet", "plain")
    assert verdicts() == {}
    assert said_in_words(kept_groups(Context(runs=tmp_path), [])) == []
    for variant, other in {
        "sharpening": {"effective_rank": [10.0, 10.0, 14.0, 14.0]},
        "sharpening-split": {"effective_rank": [10.0, 10.0, 10.94, 10.94]},  # not affected at all
        "smoothing": {"effective_rank": [12.0, 12.0, 14.0, 14.0]},  # in the earlier half, too
        "smoothing-split": {"effective_rank": [10.0, 10.0, 14.0, 14.0], "cosine_similarity": [0.7] * 4},
    }.items():
        keep(tmp_path, "tiny-imagenet", variant, **other)
    assert verdicts() == {"sharpening": "yes", "sharpening-split": "no", "smoothing": "no", "smoothing-split": "no"}
    assert said_in_words(kept_groups(Context(runs=tmp_path), []))[0].endswith(
        "this holds for 1 (tiny-imagenet, sharpening) of 4 controlled models"
    )
    keep(tmp_path, "tiny-imagenet", "sharpening", effective_rank=FLAT["effective_rank"])
    assert "holds for none of 4" in said_in_words(kept_groups(Context(runs=tmp_path), []))[0]


@pytest.mark.parametrize(
    ("values", "count"),
    [([1, 2, 3], 0), ([3, 1, 2.9], 1), ([0, 2, 0, 2, 0], 3), ([5, 5, 5], 0), ([0, 10, 9, 10, 9, 20], 0), ([1], 0)],
)
def test_turns_are_counted_above_a_fifth_of_the_range(values: list[float], count: int) -> None:
    assert turns(values) == count
    assert turns([-v for v in values]) == count


def test_a_curve_oscillates_with_two_turns(tmp_path: Path) -> None:
    keep(tmp_path, "crammed-bert", "plain", hfc_lfc=[1.0, 3.0, 1.0, 3.0], effective_rank=[1.0, 2.0, 3.0, 2.0])
    rule, said = oscillation_in_words(kept_groups(Context(runs=tmp_path), []))
    assert said.endswith("HFC/LFC 2, effective rank 1 and cosine similarity 0; it oscillates by HFC/LFC")
    assert "turns twice or more over depth (a way back of less than a fifth of its range is no turn)" in rule


def test_language_models_are_compared_after_the_last_block_and_by_their_loss(tmp_path: Path) -> None:
    assert language(Evidence(Context(runs=tmp_path))) is None
    keep(tmp_path, "crammed-bert", "plain", hfc_lfc=[1.0, 1.5])
    keep(tmp_path, "crammed-bert", "smoothing", hfc_lfc=[1.0, 1.25])
    keep(tmp_path, "small-text", "plain", hfc_lfc=[1.0, 1.5])
    keep(tmp_path, "small-text", "smoothing", hfc_lfc=[1.0, 1.75])
    answer = language(Evidence(Context(runs=tmp_path)))
    assert answer is not None
    assert answer[:2] == ("open", "4 models")
    assert "crammed-bert: plain 1.50, 3.00; smoothing 1.25, 3.00" in answer[2]
    assert "Smoothing ends with a higher HFC/LFC than plain in small-text." in answer[2]
    assert "with one seed of each, chance cannot be excluded" in answer[2]
    keep(tmp_path, "crammed-bert", "plain", seed=1)
    keep(tmp_path, "small-text", "plain", seed=1)
    some = language(Evidence(Context(runs=tmp_path)))
    assert some is not None
    assert "with one seed of smoothing, chance cannot be excluded" in some[2]


def test_other_images_are_compared_after_the_last_block_and_by_their_accuracy(tmp_path: Path) -> None:
    assert other_images(Evidence(Context(runs=tmp_path))) is None
    keep(tmp_path, "tiny-imagenet", "plain", hfc_lfc=[1.0, 0.5])
    keep(tmp_path, "tiny-imagenet", "smoothing", hfc_lfc=[1.0, 0.75])
    answer = other_images(Evidence(Context(runs=tmp_path)))
    assert answer is not None
    assert "tiny-imagenet: plain 0.50, 40.00; smoothing 0.75, 40.00" in answer[2]
    assert "Smoothing ends with a higher HFC/LFC than plain in tiny-imagenet." in answer[2]


def test_superglue_shows_scores_beside_the_most_frequent_label(tmp_path: Path) -> None:
    folder = keep(tmp_path, "crammed-bert", "plain")
    scores = {"RTE": {0: {"score": 0.5}, 1: {"score": 0.6}}, "CB": {0: {"score": 0.9}, 1: {"score": 0.91}}}
    guess = {"RTE": {"score": 0.53}, "CB": {"score": 0.5}}
    SuperGlue({"reference": "x"}, {}, scores, guess).save(folder / "superglue.json")
    result = find_item("superglue").run(Context(runs=tmp_path))
    assert not any(note.startswith("no results yet for ImageNet") for note in result.notes)
    rows = {str(row[0]): row for row in result.tables[0].rows}
    assert rows["RTE"][2:] == ["55.0 ± 7.1 (n=2)", "53.0"]
    assert rows["COPA"][2:] == [None, None]
    (chance,) = [note for note in result.notes if note.startswith("near chance")]
    assert "RTE" in chance
    assert "CB" not in chance
    assert "COPA" not in chance
    assert any(note.startswith("not run, or with one seed only: BoolQ, COPA") for note in result.notes)
    assert json.dumps(result.to_json())


def test_superglue_of_a_pretrained_encoder_stands_beside_a_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    assert len(find_item("superglue").run(Context()).tables) == 1
    folder = tmp_path / "results" / "superglue"
    SuperGlue({"reference": "x"}, {}, {"CB": {0: {"score": 0.8}}}, {}).save(folder / "known.json")
    (folder / "torn.json").write_text("{")
    result = find_item("superglue").run(Context())
    known = result.tables[1]
    assert known.columns == ["task", "known, ours, validation", "BERT-large, published, test"]
    rows = {str(row[0]): row[1:] for row in known.rows}
    assert rows["CB"] == ["80.0 (n=1)", f"{(75.7 + 83.6) / 2:.1f}"]
    assert rows["MultiRC"] == [None, f"{(70.0 + 24.1) / 2:.1f}"]
    assert any("torn.json" in note for note in result.notes)
    assert any(note.startswith("BERT-large: test scores") for note in result.notes)


def test_figures_2_and_4_show_the_kept_models(tmp_path: Path, measured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path / "none"))
    runs = tmp_path / "runs"
    (keep(runs, "crammed-bert", "plain") / "measurement.json").write_bytes(measured.read_bytes())
    keep(runs, "crammed-bert", "sharpening", hfc_lfc=[2.0] * 4)
    two = find_item("fig2").run(Context(runs=runs))
    assert "fig2-crammed-bert" in two.figures
    assert any(table.title.startswith("The Pile: crammed-bert, trained on Wikipedia and books") for table in two.tables)
    assert list(two.tables[-1].rows) == [
        ["crammed-bert", "sharpening", "+100 %, +100 %", "+0 %, +0 %", "+0.00, +0.00", "no"]
    ]
    four = find_item("fig4").run(Context(runs=runs, samples=1))
    assert any(str(row[0]).startswith("Cram. Bert on Wikipedia and books") for row in four.tables[0].rows)
    assert any("it does not oscillate" in note for note in four.notes)
