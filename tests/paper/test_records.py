"""The items that read the records of our runs, or evaluate models instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from unsmooth.errors import DataError
from unsmooth.paper import Context, find_item
from unsmooth.paper.records import Summary, beside
from unsmooth.training.tasks.images import RECIPES

VARIANTS = ("plain", "smoothing", "sharpening")
STANDARD = RECIPES["cifar100"].as_dict()
CURVES = {"hfc_lfc": [1.0, 2.0, 3.0], "cosine_similarity": [0.5, 0.4, 0.3], "effective_rank": [10.0, 20.0, 30.0]}


def record(variant: str, seed: int, fraction: float, accuracy: float, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "unsmooth-record/1",
        "run": f"{variant}-{fraction}-{seed}",
        "variant": variant,
        "seed": seed,
        "fraction": fraction,
        "same_steps": False,
        "std": None,
        "final": {"accuracy": accuracy},
        "recipe": STANDARD,
        "command": "unsmooth train …",
        "minutes": 2.0,
        "epochs": [{"epoch": 300, "smoothing": CURVES}],
        **changes,
    }


def write(folder: Path, *records: dict[str, Any]) -> None:
    for number, content in enumerate(records):
        (folder / f"{number}.json").write_text(json.dumps(content))


def test_seeds_are_averaged_and_other_runs_left_out(tmp_path: Path) -> None:
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.33, recipe={**STANDARD, "every": 50, "metric_images": 32}),
        record("plain", 1, 0.1, 0.35),
        record("plain", 1, 0.1, 0.35),  # the copy of a run counts once
        record("plain", 2, 0.1, 0.99, same_steps=True),
        record("plain", 3, 0.1, 0.99, std=0.5),
        record("plain", 4, 0.1, 0.99, recipe={**STANDARD, "name": "cifar100-fast"}),
        record("plain", 5, 0.1, 0.99, recipe={**STANDARD, "lr": 1.0}),
        {"schema": "something else"},
        {"schema": "unsmooth-failure/1", "run": "r", "failed": "the loss is nan in epoch 3"},
    )
    (tmp_path / "broken.json").write_text("{")
    result = find_item("poster-table2").run(Context(runs=tmp_path))
    rows = {(row[0], row[1]): row[2:] for row in result.tables[0].rows}
    assert rows["10 %", "ViT-Ti"] == ["34.00 ± 1.41 (n=2)", "32.47 ± 0.9", "+1.53", None]
    assert rows["100 %", "ViT-Ti"][0] is None
    assert "1 of 9 cells" in result.label
    assert "left out, not readable as JSON: broken.json" in result.notes
    assert "the run r broke: the loss is nan in epoch 3" in result.notes
    assert any(note.startswith("3 records of changed recipes") for note in result.notes)
    assert set(result.about) == {"plain-0.1-0", "plain-0.1-1"}


def test_an_order_that_disagrees_is_marked() -> None:
    theirs = {"plain": [60.0, 1.0], "smoothing": [50.0, 1.0], "sharpening": [70.0, 1.0]}
    agreeing = {v: Summary(theirs[v][0] - 3, None, 1) for v in VARIANTS}
    assert all(row[3] is None for row in beside(agreeing, theirs).values())
    swapped = {**agreeing, "sharpening": Summary(55.0, None, 1)}
    marks = {variant: row[3] for variant, row in beside(swapped, theirs).items()}
    assert marks == {
        "plain": "order differs from ViT-Ti⁻ (sharpening) (one seed: no claim)",
        "smoothing": None,
        "sharpening": "order differs from ViT-Ti (one seed: no claim)",
    }
    noisy = {**agreeing, "plain": Summary(57.0, 1.0, 3), "sharpening": Summary(56.5, 1.0, 3)}
    assert beside(noisy, theirs)["sharpening"][3] == "order differs from ViT-Ti (interval holds 0: no claim)"
    clear = {**noisy, "sharpening": Summary(46.5, 1.0, 3)}
    assert beside(clear, theirs)["plain"][3] == "order differs from ViT-Ti⁻ (sharpening)"


def test_an_order_that_agrees_closely_or_ties_is_not_marked() -> None:
    theirs = {"plain": [60.0, 5.0], "smoothing": [59.5, 3.0], "sharpening": [60.5, 4.0]}
    close = {v: Summary(50 + theirs[v][0] / 10, None, 1) for v in VARIANTS}
    tied = dict.fromkeys(VARIANTS, Summary(50.0, None, 1))
    for ours in (close, tied):
        assert all(row[3] is None for row in beside(ours, theirs).values())


def test_no_values_have_no_summary() -> None:
    assert Summary.of([]) is None
    assert str(Summary.of([33.07])) == "33.07 (n=1)"


def corrupted(folder: Path, model: str, **about: Any) -> None:
    mean = {str(s): 0.6 - 0.05 * s for s in range(1, 6)}
    clean = {"accuracy": 0.66, "loss": 1.5, "calibration_error": 0.05, "images": 10_000}
    found = {"model": model, "variant": "plain", "clean": clean, **about}
    found |= {"corruptions": {"seed": 0, "mean": mean}}
    name = model.rpartition("/")[2].rpartition(":")[2]
    (folder / f"{name}.corruptions.json").write_text(json.dumps(found))


def test_corruption_results_are_read_by_severity(tmp_path: Path) -> None:
    corrupted(tmp_path, "m", fraction=1.0)
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    ours = [row[2] for row in result.tables[0].rows if row[1] == "ViT-Ti"]
    assert ours == ["66.00 (n=1)", *(f"{60 - 5 * s:.2f} (n=1)" for s in range(1, 6))]
    gaps = [row[4] for row in result.tables[0].rows if row[1] == "ViT-Ti"]
    assert gaps[:2] == ["-0.78", "-6.59"]  # the poster's 66.78 and 61.59
    assert "regenerated CIFAR-100-C" in result.label
    assert "difference" in result.tables[0].columns
    assert not any("bfloat16" in note for note in result.notes)


def test_accuracies_of_bfloat16_are_named(tmp_path: Path) -> None:
    corrupted(tmp_path, "m", fraction=1.0, precision="bf16")
    notes = find_item("poster-table3").run(Context(runs=tmp_path)).notes
    assert any(note.startswith("classified in bfloat16") for note in notes)


def test_what_is_beyond_the_gap_on_clean_images_is_said(tmp_path: Path) -> None:
    corrupted(tmp_path, "zoo:cifar100-plain")
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    (said,) = [note for note in result.notes if "less that on clean images" in note]
    ours, clean = [100 * (0.6 - 0.05 * s) for s in range(1, 6)], 66.0 - 66.78
    theirs = (61.59, 57.75, 53.12, 49.32, 39.17)
    expected = ", ".join(f"{a - b - clean:+.2f}" for a, b in zip(ours, theirs, strict=True))
    assert said == f"plain, ours minus the poster's, less that on clean images: {expected}"


def test_a_model_of_less_data_is_not_compared_with_the_posters_accuracies(tmp_path: Path) -> None:
    corrupted(tmp_path, "zoo:cifar100-10pct-plain")  # results from before the share was written down
    corrupted(tmp_path, "runs/cifar100-plain-seed0")
    clean = {"accuracy": 0.66, "loss": 1.5, "calibration_error": 0.05, "images": 200}
    corrupted(tmp_path, "mine", clean=clean)
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    whole, part = result.tables
    assert whole.title.endswith("ours trained on 100 % of the data")
    assert "ours trained on 10 % of the data, the poster's on all of it" in part.title
    assert part.columns == ["intensity", "model", "ours (10 %)", "published (100 %)", "note"]
    assert any(note.endswith("how much data they were trained on: mine") for note in result.notes)
    assert any("points on 10,000 test images, ±6.9 on 200: smaller differences may be none" in n for n in result.notes)


def test_figure_2_comes_from_the_records_and_marks_the_wrong_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsmooth.figures.runs_figure", lambda panels, *_: panels)
    higher = {name: [1.5 * v for v in values] for name, values in CURVES.items()}
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.3),
        record("plain", 1, 0.1, 0.3),
        record("sharpening", 0, 0.1, 0.3, epochs=[{"epoch": 300, "smoothing": higher}]),
    )
    result = find_item("fig2").run(Context(runs=tmp_path))
    rows = {(row[0], row[1]): row[2:] for row in result.tables[0].rows}
    assert rows["hfc_lfc", "ViT-Ti"] == [
        "1.000 ± 0.000 (n=2)", "2.000 ± 0.000 (n=2)", "3.000 ± 0.000 (n=2)", "+2.000 ± 0.000 (n=2)", None,
    ]  # fmt: skip
    assert rows["hfc_lfc", "ViT-Ti⁻ (sharpening)"][4] is None
    assert rows["cosine_similarity", "ViT-Ti⁻ (sharpening)"][4] == "order differs from ViT-Ti"
    assert result.tables[0].title.endswith("trained on 10 % of the data")
    assert any("no model of the variant smoothing" in note for note in result.notes)
    panels = list(result.figures["fig2"].values())
    assert [[run.variant for run in panel] for panel in panels] == [["plain", "sharpening"]] * 3
    for panel, plain, sharper in zip(panels, CURVES.values(), higher.values(), strict=True):
        assert [(list(at), values) for at, values in panel.values()] == [
            ([1, 2, 3], [plain, plain]),
            ([1, 2, 3], [sharper]),
        ]
    assert set(result.about) == {"plain-0.1-0", "plain-0.1-1", "sharpening-0.1-0"}


def test_figure_2_expects_smoothing_models_to_be_smoother_than_plain(tmp_path: Path) -> None:
    """As long as ten blocks: the middle is the fifth."""
    plain = {name: [float(block) for block in range(10)] for name in CURVES}
    above, below = ({name: [v + by for v in values] for name, values in plain.items()} for by in (1.0, -1.0))
    for variant, expected in (("smoothing", ("cosine_similarity",)), ("sharpening", ("effective_rank", "hfc_lfc"))):
        for curves, right in ((above, expected), (below, sorted(set(CURVES) - set(expected)))):
            write(
                tmp_path,
                record("plain", 0, 1.0, 0.3, epochs=[{"epoch": 300, "smoothing": plain}]),
                record(variant, 0, 1.0, 0.3, epochs=[{"epoch": 300, "smoothing": curves}]),
            )
            rows = find_item("fig2").run(Context(runs=tmp_path)).tables[0].rows
            assert sorted(row[0] for row in rows if row[1] != "ViT-Ti" and row[-1] is None) == list(right)
            assert [row[2:6] for row in rows if row[1] == "ViT-Ti"] == [
                ["0.000 (n=1)", "4.000 (n=1)", "9.000 (n=1)", "+9.000 (n=1)"]
            ] * 3


@pytest.mark.parametrize("name", ["poster-table2", "poster-table3", "fig2"])
def test_a_folder_that_is_not_there_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder of runs at .*nowhere"):
        find_item(name).run(Context(runs=tmp_path / "nowhere"))


@pytest.mark.parametrize("name", ["poster-table2", "poster-table3"])
def test_recomputing_without_images_says_what_is_missing(name: str) -> None:
    for context in (Context(recompute=True), Context(models=("zoo:x",))):
        with pytest.raises(DataError, match="needs the test images: --data PATH"):
            find_item(name).run(context)


def test_named_and_shipped_models_are_evaluated_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from training.conftest import TINY, make_images, write_parquet

    from unsmooth.training.tasks.images import RECIPES, build_model, evaluate, load_images, save_model

    recipe = RECIPES["cifar100"].override(TINY)
    about = {"run": "little", "variant": "plain", "seed": 0, "fraction": 0.1}
    save_model(build_model(recipe, 0), tmp_path / "little", recipe, about, half=False)
    write_parquet(tmp_path / "data", "test", *make_images(4, 1))
    data = (str(tmp_path / "data"),)
    result = find_item("poster-table2").run(Context(models=(str(tmp_path / "little"),), data=data, device="cpu"))
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    again = find_item("poster-table2").run(Context(recompute=True, data=data, device="cpu"))
    assert again.tables[0].rows == result.tables[0].rows
    test = load_images(tmp_path / "data", "test")
    torch.manual_seed(0)
    expected = 100 * evaluate(build_model(recipe, 0), test.pixels, test.labels, recipe).accuracy
    ours = {row[2] for row in result.tables[0].rows} - {None}
    assert ours == {f"{expected:.2f} (n=1)"}
    assert any("on 16 test images" in note for note in result.notes)
    context = Context(models=(str(tmp_path / "little"),), data=data, device="cpu", samples=2)
    corrupted = [row[2] for row in find_item("poster-table3").run(context).tables[0].rows if row[1] == "ViT-Ti"]
    assert len(corrupted) == 6
    assert all(str(cell).endswith(" (n=1)") for cell in corrupted)


def logged(epoch: int, negative: list[float], ratio: float, accuracy: float) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "spectrum": {"in_minus_one_zero": negative, "positive": [1 - share for share in negative]},
        "smoothing": {**CURVES, "hfc_lfc": [1.0, 1.0, ratio]},
        "test": {"accuracy": accuracy},
    }


def test_training_shows_common_epochs_of_all_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.figures.runs_figure", lambda panels, *_: panels)
    rows = [logged(e, [0.5, 0.5 + e / 1000], 1 + e / 100, e / 1000) for e in range(25, 325, 25)]
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.33, epochs=rows),
        record("plain", 1, 0.1, 0.35, epochs=[logged(50, [0.7, 0.75], 2.5, 0.15), logged(300, [0.5, 0.9], 5.0, 0.4)]),
        record("smoothing", 0, 0.1, 0.30, epochs=rows[:2]),
        record("plain", 2, 0.5, 0.9),  # its log has no spectrum
    )
    found = find_item("training").run(Context(runs=tmp_path))
    assert "3 runs" in found.label
    epochs, layers, gaps = found.tables
    plain = [row for row in epochs.rows if row[1] == "ViT-Ti"]
    assert [row[2] for row in plain] == [50, 300]
    assert plain[0][3:] == ["0.625 ± 0.141 (n=2)", "0.375 ± 0.141 (n=2)", "2.000 ± 0.707 (n=2)", "0.100 ± 0.071 (n=2)"]
    assert [row[2] for row in epochs.rows if row[1] != "ViT-Ti"] == [25, 50]
    drawn = {
        (quantity, run.name): (list(epochs), values)
        for quantity, runs in found.figures["training"].items()
        for run, (epochs, values) in runs.items()
    }
    assert len(drawn) == 2 * 4
    assert drawn["accuracy", "ViT-Ti, 10 %"] == ([50, 300], [[0.05, 0.3], [0.15, 0.4]])
    epochs_, (values,) = drawn["H in [−1, 0)", "ViT-Ti⁺ (smoothing), 10 %"]
    assert epochs_ == [25, 50]
    assert values == pytest.approx([0.5125, 0.525])
    assert any("± is the standard deviation over seeds" in note for note in found.notes)
    assert layers.rows == [
        ["10 %", 0, "50 → 300", "0.600 ± 0.141 (n=2)", "0.500 ± 0.000 (n=2)", "-0.100", "0 of 2"],
        ["10 %", 1, "50 → 300", "0.650 ± 0.141 (n=2)", "0.850 ± 0.071 (n=2)", "+0.200", "2 of 2"],
    ]
    assert [row[1:] for row in gaps.rows] == [  # the same log: no difference from plain
        ["ViT-Ti⁺ (smoothing)", 25, "+0.00", "×1.00", 1],
        ["ViT-Ti⁺ (smoothing)", 50, "+0.00", "×1.00", 1],
    ]


def test_training_of_a_long_log_shows_six_epochs(tmp_path: Path) -> None:
    write(tmp_path, record("plain", 0, 1.0, 0.6, epochs=[logged(e, [0.5], 1.0, 0.1) for e in range(10, 310, 10)]))
    shown = [row[2] for row in find_item("training").run(Context(runs=tmp_path)).tables[0].rows]
    assert len(shown) == 6
    assert (shown[0], shown[-1]) == (10, 300)


def test_training_without_logs_says_what_to_run(tmp_path: Path) -> None:
    write(tmp_path, record("plain", 0, 0.1, 0.33))
    with pytest.raises(DataError, match="unsmooth train cifar100"):
        find_item("training").run(Context(runs=tmp_path))


def claims(folder: Path) -> list[str]:
    return [note for note in find_item("poster-table2").run(Context(runs=folder)).notes if note.startswith("10 %: ")]


def test_variants_with_several_seeds_are_held_against_plain(tmp_path: Path) -> None:
    plain, sharp = (0.3307, 0.3256, 0.3258), (0.3315, 0.3324, 0.3313)
    write(
        tmp_path,
        *(record("plain", seed, 0.1, value) for seed, value in enumerate(plain)),
        *(record("sharpening", seed, 0.1, value) for seed, value in enumerate(sharp)),
        record("smoothing", 0, 0.1, 0.28),  # one seed has no spread
    )
    interval = scipy.stats.ttest_rel(sharp, plain).confidence_interval(0.95)
    low, high = 100 * interval.low, 100 * interval.high
    assert claims(tmp_path) == [
        "10 %: smoothing against plain: one shared seed (-5.07 points), so nothing can be claimed over seeds",
        f"10 %: no difference of sharpening from plain can be claimed (+0.44 points, 95 % {low:+.2f} to {high:+.2f}, "
        "n = 3)",
    ]


def test_a_difference_that_many_seeds_share_is_claimed(tmp_path: Path) -> None:
    values = {"plain": (0.30, 0.32, 0.31), "smoothing": (0.27, 0.288, 0.279)}
    write(tmp_path, *(record(v, seed, 0.1, a) for v, group in values.items() for seed, a in enumerate(group)))
    (said,) = claims(tmp_path)
    assert said.startswith("10 %: smoothing is below plain (-3.10 points, 95 % ")


def test_other_draws_of_the_images_are_not_mixed_in(tmp_path: Path) -> None:
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.30),
        record("plain", 0, 0.1, 0.90, run="elsewhere", subset=1),
        record("plain", 1, 0.1, 0.32, subset=0),
    )
    result = find_item("poster-table2").run(Context(runs=tmp_path))
    assert "31.00 ± 1.41 (n=2)" in [row[2] for row in result.tables[0].rows]
    assert any(note.startswith("1 records of other draws of the images (--subset)") for note in result.notes)


def test_draws_of_the_images_have_means_of_their_own_and_a_spread_over_draws(tmp_path: Path) -> None:
    values = {0: (0.30, 0.34), 1: (0.40, 0.42), 2: (0.50,)}
    write(
        tmp_path,
        *(
            record(variant, seed, 0.1, accuracy + gain * (draw + 1), run=f"{variant}{draw}{seed}", subset=draw)
            for variant, gain in (("plain", 0.0), ("sharpening", 0.01))
            for draw, group in values.items()
            for seed, accuracy in enumerate(group)
        ),
    )
    table = find_item("poster-table2").run(Context(runs=tmp_path)).tables[1]
    plain, sharpening = (row[2:] for row in table.rows)
    assert plain[0] == "32.00 (n=2), 41.00 (n=2), 50.00 (n=1)"
    assert plain[1] == "41.00 ± 9.00 (draws=3)"
    assert plain[2] is None
    assert str(sharpening[2]).startswith("+2.00 (-0.48 to +4.48)")  # 1, 2 and 3 points: three draws, not five seeds
