"""What the rows of an explanation's file hold: columns that each must have, and the kind of every value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unsmooth.errors import CheckpointError
from unsmooth.sources.typed_json import wrong_value

TEXT = ("policy", "kind", "endpoint", "paper_kind", "paper_endpoint", "corollary3")
WHOLE = ("layer", "head", "input", "tokens")
FLAGS = ("folded", "converged")
LISTS = ("layer_values", "head_values")

#: By table: what tells a row from all others, and what else each row has, of version 0.1 on.
COLUMNS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "layer_rows": (
        ("layer", "input", "policy"),
        ("step", "exponent", "small_step", "hfc_lfc", "measured_hfc", "measured_ratio", "frozen_hfc", "frozen_ratio"),
    ),
    "head_rows": (("layer", "head", "input"), ("entropy", "relative_entropy")),
    "weight_rows": (
        ("layer", "head", "folded"),
        ("negative", "positive", "outside", "max_real", "min_real", "radius", "departure", "condition"),
    ),
    "spectra": (("layer", "folded"), LISTS),
}


def check_rows(table: str, rows: Any) -> None:
    """CheckpointError where a table is empty, or a row lacks a column, has a value of another kind or comes twice."""
    keys, others = COLUMNS[table]
    if not isinstance(rows, list) or not rows:
        raise wrong_value(table, "a list of rows", rows)
    seen = set()
    for number, row in enumerate(rows):
        where = f"{table}[{number}]"
        if not isinstance(row, dict):
            raise wrong_value(where, "a row", row)
        for name in (*keys, *others):
            if name not in row and name != "policy":  # which older files have not
                raise CheckpointError(f"{where} lacks {name!r}")
        for name, value in row.items():
            _check_value(f"{where}.{name}", name, value)
        key = tuple(row.get(name) for name in keys)
        if key in seen:
            raise CheckpointError(f"{where} is there twice: {', '.join(f'{n} {row[n]}' for n in keys if n in row)}")
        seen.add(key)


def _check_value(place: str, name: str, value: Any) -> None:
    if name in TEXT:
        fits, expected = isinstance(value, str | None) or value != value, "text"  # NaN: not known
    elif name in FLAGS:
        fits, expected = isinstance(value, bool), "true or false"
    elif name in WHOLE:
        fits, expected = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    elif name in LISTS:
        fits, expected = isinstance(value, list), "a list of eigenvalues"
    else:
        fits, expected = isinstance(value, int | float), "a number"  # or true: whether a point attracts may be unknown
    if not fits:
        raise wrong_value(place, expected, value)
