"""Who changed ln HFC/LFC: layers × parts in one map, and the parts that did the most."""

from __future__ import annotations

import numpy as np

from unsmooth.analysis import Attribution
from unsmooth.figures.by_head import Table, colour_bar, colour_range, heads_panel, range_text
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.text import short, signed_text

SHORT = {"mean": "mean", "norm1": "n 1", "mlp": "MLP", "norm2": "n 2"}  # under a column of one cell's width
NARROW = {"norm1": "norm 1", "norm2": "norm 2"}  # beside a bar, where "norm after …" would be cut


def part_table(attribution: Attribution, tokens: str | None = None) -> tuple[list[str], Table]:
    """The heads of every column, and shares by layer and part; nan where a layer lacks one."""
    frame = attribution.frame(tokens, full=True)
    heads = sorted({int(h) for h in frame["head"].dropna()})
    kinds = [kind for kind in SHORT if kind in set(frame["kind"])]
    columns: list[int | str] = [*heads, *kinds]
    table = np.full((attribution.about.model.layers, len(columns)), np.nan)
    for row in frame.to_dict("records"):
        column = int(row["head"]) if row["kind"] == "head" else row["kind"]
        table[int(row["layer"]), columns.index(column)] = row["mean"]
    return [str(h) for h in heads] + [SHORT[kind] for kind in kinds], table


def parts(attribution: Attribution, tokens: str | None = None, *, name: str = "", wide: float = 1072) -> Drawing:
    """Shares of heads, mean path, MLP and norms by layer, and the strongest parts beside them, or below if narrow."""
    columns, table = part_table(attribution, tokens)
    most, below, above = colour_range([table])
    narrow = wide < 700
    left = heads_panel(
        table, "exponent", most, title=name or "share of the change of ln HFC/LFC", label="", labels=columns,
        wide=wide if narrow else wide * 0.6, numbers=False,
    )  # fmt: skip
    right = strongest_panel(attribution, tokens, wide if narrow else wide * 0.37)
    figure = grid([left, right], across=1 if narrow else 2, bottom=34)
    figure.label = f"who changed ln HFC/LFC in {attribution.about.model.name}: shares by layer and part"
    figure.data = left.data
    low, high = range_text(most, below, above)
    colour_bar(
        figure, 0 if narrow else 40, figure.height - 18, True, low.removeprefix("smooths, ") if narrow else low, high
    )
    return figure


def strongest_panel(attribution: Attribution, tokens: str | None, wide: float) -> Drawing:
    """The parts with the largest shares as bars, the largest first, and what all others together have."""
    rows = attribution.strongest(12, tokens).to_dict("records")
    change = attribution.under(tokens).change.mean
    bars = [(f"layer {r['layer']}, {NARROW.get(r['kind'], r['part'])}", float(r["mean"])) for r in rows]
    bars += [("all others together", change - sum(value for _, value in bars))]
    tall, top, words = 19.0, 28.0, 150.0
    drawing = Drawing(wide, top + tall * len(bars) + 34, "the parts with the largest shares")
    drawing.title(0, 15, short(f"the largest, of {signed_text(change)} in all", wide))
    widest = max(abs(value) for _, value in bars) or 1.0
    middle = words + (wide - words) / 2
    reach = (wide - words) / 2 - 44
    for i, (said, value) in enumerate(bars):
        y, end = top + tall * i, middle + reach * value / widest
        drawing.text(words - 6, y + 13, short(said, words), anchor="end")
        drawing.rect(min(middle, end), y + 3, abs(end - middle), tall - 6, "sharp" if value > 0 else "smooth")
        drawing.text(end + (4 if value >= 0 else -4), y + 13, signed_text(value), size=10,
                     anchor="start" if value >= 0 else "end")  # fmt: skip
    drawing.line([(middle, top), (middle, top + tall * len(bars))], "soft")
    return drawing
