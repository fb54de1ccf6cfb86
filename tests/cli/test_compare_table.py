"""The table of `unsmooth compare` on terminals of every width."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import measured
from rich.console import Console

import unsmooth
from unsmooth.cli.compare import _fitting, _full, _short, _table

pytest.importorskip("timm")


def test_names_in_brackets_are_no_markup_and_policies_keep_their_order(cli: Callable[..., Any], tmp_path: Path) -> None:
    runs = [measured(seed=seed, tokens="patches,all").save(tmp_path / f"[red]{seed}.json") for seed in range(2)]
    other = measured(depth=1).save(tmp_path / "[b]2.json")
    shown = cli("compare", *runs).stdout
    assert shown.index("[red]1 − [red]0, tokens: patches") < shown.index("[red]1 − [red]0, tokens: all")
    assert "the first column of each pair is [red]0; " in shown
    assert "only and left out" not in shown
    assert "points are in [red]0 only and left out" in cli("compare", runs[0], other).stdout
    sure = cli("compare", runs[0], unsmooth.load_measurement(runs[0]).save(tmp_path / "[b]3.json")).stdout
    assert "in both" in sure
    found = unsmooth.load_measurement(runs[1])
    for moments in found.cells.values():
        moments.mean += 100
    found.per_sample = None
    path = found.save(tmp_path / "[b]4.json")
    assert "[b]4 differs from [red]0 at 5 of 5 points" in cli("compare", runs[0], path).stdout


@pytest.mark.parametrize("columns", [80, 100, 130, 200])
def test_no_name_and_no_number_is_cut_off(
    cli: Callable[..., Any], twins: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = cli("compare", *twins).stdout
    assert "…" not in shown
    assert "blocks.10.post" in shown
    assert max(map(len, shown.splitlines())) <= columns


FULL = ["point", "HFC/LFC", "difference", "cosine similarity", "difference", "effective rank", "difference"]
FEWER = ["point", *FULL[1::2]]


@pytest.mark.parametrize(("columns", "heading", "pair"), [(140, FULL, " ± "), (100, FEWER, " ± ")])
def test_the_fullest_table_that_fits_is_shown(
    cli: Callable[..., Any], twins: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, columns: int,
    heading: list[str], pair: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = cli("compare", *twins).stdout.splitlines()
    (said,) = (line for line in lines if line.startswith("┃"))
    assert [word.strip() for word in said.strip("┃").split("┃")] == heading
    (row,) = (line for line in lines if line.startswith("│ embed"))
    assert row.count(pair) == 3
    assert (" ± " in row) == (" " in pair)


def test_numbers_are_shorter_where_only_these_fit() -> None:
    import pandas as pd

    rows = pd.DataFrame([("p", 0.0, -123.456, -123.456, -123.468, -123.444, True)],
                        columns=["point", "a", "b", "difference", "low", "high", "differs"])  # fmt: skip
    by_metric = dict.fromkeys(("one", "two"), rows)
    widths = [Console(width=200).measure(_table(by_metric, False, write)).maximum for write in (_full, _short)]
    for width, said in zip(widths, ("-123.456 ± 0.012 *", "-123.456±0.012*"), strict=True):
        table, wide = _fitting(by_metric, Console(width=width))
        assert not wide
        assert [*table.columns[1].cells] == [said]
    assert widths[1] < widths[0]
