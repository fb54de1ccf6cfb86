"""Tokens that carry a metric, as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from unsmooth.cli.tables import narrow_table, written

if TYPE_CHECKING:
    from unsmooth.analysis.carriers import Carriers

_COLUMNS = (
    # column of the frame, heading, format
    ("norm", "norm", ".3g"),
    ("times", "times", ".3g"),
    ("position", "at", ".0f"),
    ("outliers", "out", ".2g"),
    ("kurtosis", "kurtosis", ".3g"),
    ("kurtosis_token", "its own", ".3g"),
    ("activation", "max", ",.0f"),
    ("first", "first", ".0%"),
    ("outlying", "outlying", ".0%"),
    ("sinks", "sinks", ".0f"),
)


def by_layer(carriers: Carriers) -> Table:
    """One row for the input and one for each layer."""
    table = narrow_table(
        "Tokens after each layer (median norm, how many times it the token farthest out has, and at which position; "
        "outliers; kurtosis; largest activation), and the layer's attention on the first and on outlying tokens"
    )
    for name in ("layer", *(heading for _, heading, _ in _COLUMNS)):
        table.add_column(name, justify="right")
    for row in carriers.layers:
        cells = (written(row[name], spec) if name in row else "" for name, _, spec in _COLUMNS)
        table.add_row("input" if row["layer"] < 0 else str(row["layer"]), *cells)
    return table
