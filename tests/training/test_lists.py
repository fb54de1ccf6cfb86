"""Lists of runs: which ones they hold, and which of them the command line starts."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from unsmooth.cli.app import app
from unsmooth.control import FIXES
from unsmooth.control.variant import STANDARD_DEVIATION
from unsmooth.errors import OptionError
from unsmooth.training import RECIPES, Run, lists


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all-data", ["cifar100-plain-seed0", "cifar100-sharpening-seed0", "cifar100-smoothing-seed0"]),
        ("half", [f"cifar100-50pct-{variant}-seed0" for variant in ("plain", "sharpening", "smoothing")]),
        ("initialisation", [f"cifar100-10pct-sharpening-eigen-std{s}-seed0" for s in ("0.01", "0.1", "0.3", "1")]),
        ("ratio", [f"cifar100-10pct-sharpening@{p}-seed0" for p in ("first-half", "second-half", "alternate")]),
        ("peers", [f"cifar100-10pct-{fix}-seed0" for fix in FIXES]),
    ],
)
def test_a_list_holds_its_runs_in_order(name: str, expected: list[str]) -> None:
    assert [run.name for run in lists.find_list(name)] == expected


def test_every_seed_of_the_tables_is_run() -> None:
    poster = [(run.variant, run.seed) for run in lists.find_list("ten-percent")]
    assert poster == [(variant, seed) for seed in (0, 1, 2) for variant in ("plain", "sharpening", "smoothing")]
    forms = lists.find_list("forms")
    assert [run.variant for run in forms[:4]] == [
        "sharpening-split", "smoothing-split", "sharpening-eigen", "smoothing-eigen",
    ]  # fmt: skip
    assert [(run.seed, run.fraction) for run in forms] == [(seed, 0.1) for seed in (0, 1, 2) for _ in range(4)]


@pytest.mark.parametrize("recipe", [None, "cifar100-fast", "cifar100-small"])
def test_the_study_asks_its_questions_in_any_recipe(recipe: str | None) -> None:
    runs, name = lists.find_list("study", recipe), recipe or "cifar100"
    names = [run.name for run in runs]
    assert len(names) == len(set(names)) == 9 + 6 + 9 + 12 + 18 + 3 * len(FIXES) + 24 + 15 + 18
    assert {run.recipe.name.partition("-depth")[0] for run in runs} == {name}
    assert {run.fraction for run in runs} == {0.1}
    assert {run.recipe.depth for run in runs} == {12, 6, 24, 36}
    assert {run.variant for run in runs} >= {*FIXES, "sharpening-bounded", "sharpening-bounded2", "smoothing-split"}
    assert all(run.std != STANDARD_DEVIATION[run.control.form] for run in runs if run.std is not None)
    assert {run.subset for run in runs} == {0, 1, 2}
    kept = {(run.recipe.name, run.variant, run.std, run.subset) for run in runs}
    assert len(names) == 3 * len([kind for kind in kept if "depth" not in kind[0]]) + 2 * 9  # seeds
    more = {run.name for run in lists.find_list("study-more", recipe)}
    assert not more & set(names)
    nine = {f"{name}-10pct-{variant}-seed{seed}" for variant in ("plain", "smoothing") for seed in range(9)}
    assert nine <= more | set(names)


def test_the_study_is_in_order() -> None:
    names = [run.name for run in lists.find_list("study", "cifar100-small")]
    assert names[0] == "cifar100-small-10pct-plain-seed0"
    assert names[36] == "cifar100-small-depth36-10pct-plain-seed0"
    layers = names.index("cifar100-small-10pct-sharpening@first-half-seed0")
    assert names[layers : layers + 24 : 3] == [
        *(f"cifar100-small-10pct-sharpening@{part}-seed0"
          for part in ("first-half", "second-half", "alternate", 0, 5, 11)),
        "cifar100-small-10pct-sharpening@first-half+smoothing@second-half-seed0",
        "cifar100-small-10pct-smoothing@first-half+sharpening@second-half-seed0",
    ]  # fmt: skip
    assert names[-1] == "cifar100-small-10pct-subset2-smoothing-seed2"
    # runs that share a compiled step follow each other, but for the three models, which have other images, too
    kinds = [(run.recipe.name, run.variant) for run in lists.find_list("study") if run.subset == 0]
    changes = sum(one != two for one, two in itertools.pairwise(kinds))
    assert changes - len(set(kinds)) <= 5


def test_a_list_with_a_recipe_of_its_own_takes_no_other() -> None:
    with pytest.raises(
        OptionError, match="the list tiny-imagenet has its own recipe, tiny-imagenet: leave cifar100 out"
    ):
        lists.find_list("tiny-imagenet", "cifar100")


def test_the_help_names_every_list_and_every_recipe() -> None:
    from unsmooth.cli.train import ListName, RecipeName

    assert all(f" {name}" in ListName.__metadata__[0].help for name in lists._lists())
    assert all(f" {name}" in RecipeName.__metadata__[0].help for name in RECIPES if "-depth" not in name)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the command line would train."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(lists, "train_all", lambda *given, **options: found.append((*given, options)))
    return found


def test_the_command_line_takes_seeds_variants_and_changes(asked: list[tuple[Any, ...]], tmp_path: Path) -> None:
    def start(*words: str) -> list[Run]:
        done = CliRunner().invoke(app, ["train", "--list", "ten-percent", "--data", str(tmp_path), *words])
        assert done.exit_code == 0, done.output
        return list(asked[-1][0])

    assert len(start()) == 9
    assert asked[-1][1:5] == (str(tmp_path), Path("runs"), Path("zoo/records"), math.inf)
    words = [
        "--seed",
        "1",
        "--seed",
        "2",
        "--variant",
        "plain",
        "--set",
        "epochs=3",
        "--minutes",
        "5",
        "--out",
        "there",
    ]
    assert [(run.variant, run.seed, run.recipe.epochs) for run in start(*words)] == [("plain", 1, 3), ("plain", 2, 3)]
    assert (asked[-1][2], asked[-1][4]) == (Path("there"), 5.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--list", "everything"], "unknown list of runs 'everything'.*'ten-percent'"),
        (["--list", "half", "--seed", "7"], "the list half has no run of these variants and seeds"),
        (
            ["--list", "half", "--fraction", "0.1"],
            "the runs of a list have their own --fraction, --subset, .* --budget: leave",
        ),
        (["cifar100", "--list", "tiny-imagenet"], "the list tiny-imagenet has its own recipe"),
        ([], "expected a recipe or --list NAME"),
        (["cifar100", "--seed", "1", "--seed", "2"], "a run has one variant and one seed"),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(words: list[str], said: str, asked: list[tuple[Any, ...]]) -> None:
    done = CliRunner().invoke(app, ["train", "--data", "x", *words])
    assert isinstance(done.exception, OptionError)
    assert re.search(said, str(done.exception))
    assert not asked
