"""Two measurements: their difference along the forward pass, with its interval."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from unsmooth.figures.axes import panel, span
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.palette import direction
from unsmooth.figures.text import signed_text
from unsmooth.metrics.registry import metric_named

if TYPE_CHECKING:
    import pandas as pd


def difference(rows: pd.DataFrame, metric: str, *, wide: float = 1072) -> Drawing | None:
    """`b − a` at every point, blue where b is smoother and orange where it is sharper; hollow: the interval holds 0.

    `rows` are those of one metric and token policy of `unsmooth.compare`; None where no difference is finite.
    """
    drawn: list[dict[str, Any]] = [r for r in rows.to_dict("records") if math.isfinite(r["difference"])]  # type: ignore[misc]
    if not drawn:
        return None
    edges = [v for row in drawn for v in (*_ends(row), 0.0)]
    found = metric_named(metric)
    plot = panel(wide, 250, (0.0, float(len(drawn))), span(edges), x_label="point",
                 y_label=f"difference in {found.title}", left=66,
                 label=f"Difference in {found.title} along the forward pass")  # fmt: skip
    plot.y_axis(signed_text)
    longest = max(len(row["point"]) for row in drawn)
    every = max(1, math.ceil(len(drawn) * 6.2 * longest / plot.width))
    plot.x_axis(lambda x: str(drawn[int(x)]["point"]), [i + 0.5 for i in range(0, len(drawn), every)])
    plot.level(0)
    for i, row in enumerate(drawn):
        low, high = _ends(row)
        interval = f"{signed_text(low)} … {signed_text(high)}" if low < high else "no interval"
        mine = plot.drawing.group(title=f"{row['point']}: {signed_text(row['difference'])} ({interval})")
        mine.line(plot.at([(i + 0.5, low), (i + 0.5, high)]), "soft", 1.5)
        at, colour = plot.at([(i + 0.5, row["difference"])]), direction(row["difference"], found.sign)
        mine.dots(at, colour, 8.5)
        mine.dots([] if row["differs"] else at, "paper", 5.5)
    return plot.drawing


def _ends(row: dict[str, Any]) -> tuple[float, float]:
    """The interval; one sample has none."""
    return (row["low"], row["high"]) if math.isfinite(row["high"]) else (row["difference"], row["difference"])
