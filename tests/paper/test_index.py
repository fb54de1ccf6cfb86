"""The index of figures and tables, and the pieces an item is made of."""

from __future__ import annotations

import subprocess
import sys

import pytest

from unsmooth.errors import OptionError
from unsmooth.paper import Table, find_item, items
from unsmooth.paper.index import _natural


def test_names_are_unique_and_every_item_says_what_it_needs() -> None:
    names = [item.name for item in items()]
    assert len(set(names)) == len(names)
    assert {"fig4", "poster-fig1"} <= set(names)
    for item in items():
        prefix = item.name.partition("-")[0].rstrip("0123456789")
        assert item.source == {"poster": "poster", "fig": "paper", "table": "paper"}.get(prefix, "ours")
        assert len(item.title) > 10
        assert len(item.needs) > 20
        assert find_item(item.name) is item


def test_the_papers_come_first_and_ours_last() -> None:
    sources = [item.source for item in items()]
    assert sources == sorted(sources, key=["paper", "poster", "ours"].index)
    assert (sources[0], sources[-1]) == ("paper", "ours")


def test_names_sort_by_their_numbers() -> None:
    assert sorted(["table10", "table2", "fig4"], key=_natural) == ["fig4", "table2", "table10"]


def test_listing_imports_nothing_heavy() -> None:
    heavy = {"timm", "transformers", "matplotlib", "torchvision", "pandas"}
    code = f"import sys; from unsmooth.paper import items; items(); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_table_with_a_short_row_is_refused() -> None:
    with pytest.raises(OptionError, match="table 't': expected 2 cells in each row, got \\['x'\\]"):
        Table("t", ["a", "b"], [["x"]])


def test_what_json_lacks_is_written_as_words() -> None:
    import json

    table = Table("t", ["a", "b"], [[float("nan"), float("-inf")], [None, 1.5]])
    assert json.loads(json.dumps(table.to_json(), allow_nan=False))["rows"] == [["nan", "-inf"], [None, 1.5]]
