"""The items that read the records of our runs: means over seeds, what is left out, draws of the images."""

from __future__ import annotations

from pathlib import Path

import pytest
import scipy.stats
from paper.records import STANDARD, VARIANTS, record, write

from unsmooth.errors import DataError
from unsmooth.paper import Context, find_item
from unsmooth.paper.records import Summary, beside
from unsmooth.training.tasks.images import RECIPES


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
    assert any(note.startswith("left out: 3 runs with a changed recipe") for note in result.notes)
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

    from unsmooth.training.tasks.images import build_model, evaluate, load_images, save_model

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
    assert any(note.startswith("left out: 1 run on other draws of the images (--subset)") for note in result.notes)


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
