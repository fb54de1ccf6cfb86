"""Layers and heads: their exponents and the entropy of their attention, and which type dominates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsmooth.analysis import Explanation
from unsmooth.figures.axes import swatches
from unsmooth.figures.drawing import Drawing, box, grid
from unsmooth.figures.marks import FONT_SIZE
from unsmooth.figures.palette import DIVERGING, SEQUENTIAL, ramp, readable
from unsmooth.figures.text import number_text, percent_text, short, signed_text

Table = NDArray[np.float64]
VIEWS = {"exponent": "exponent", "entropy": "relative_entropy"}  # the page's names, and the explanation's
TITLES = {"exponent": "exponent γ", "entropy": "attention entropy"}
TYPES = (
    ("sharpening", "type (2), sharpening", "sharp"),
    ("mixed", "both tie", "zero"),
    ("smoothing", "type (1), smoothing", "smooth"),
)
LETTER = 0.6 * FONT_SIZE  # the width of a letter, at most in the mean of a word
COUNTS = {"acting": "kind", "paper": "paper_kind"}


def head_tables(explanation: Explanation) -> dict[str, Table]:
    """Means over inputs, layers × heads."""
    frame = explanation.head_frame().replace([np.inf, -np.inf], np.nan)
    return {
        view: frame.pivot_table(index="layer", columns="head", values=column, aggfunc="mean", dropna=False).to_numpy()
        for view, column in VIEWS.items()
        if column in frame
    }


def colour_range(tables: list[Table]) -> tuple[float, bool, bool]:
    """Where the colours of exponents end: a few far heads do not make the others pale; and whether any lie beyond."""
    values = np.concatenate([table[np.isfinite(table)] for table in tables]) if tables else np.zeros(0)
    most = float(np.quantile(np.abs(values), 0.98)) if values.size else 1.0
    most = most or 1.0
    return most, bool((values < -most).any()), bool((values > most).any())


def range_text(most: float, below: bool, above: bool) -> tuple[str, str]:
    """What stands at the two ends of the colours of exponents."""
    return (
        f"smooths, {'≤ ' if below else ''}{signed_text(-most)}",
        f"{'≥ ' if above else ''}{signed_text(most)}, sharpens",
    )


def heads_panel(
    table: Table, view: str, most: float, *, title: str = "", label: str = "", wide: float = 346,
    labels: Sequence[str] | None = None, numbers: bool = True,
) -> Drawing:  # fmt: skip
    """One cell for each head; numbers stand in cells that are large enough. `labels` names them, else their number."""
    layers, heads = table.shape
    left, top = 40.0, 28.0 if title else 6.0
    across = min((wide - left - 4) / heads, 120.0)
    tall = min(max(330 / layers, 11.0), 26.0)
    drawing = Drawing(wide, top + tall * layers + 38, label)
    if title:
        drawing.title(left, 15, short(title, wide - left))
    share = 0.5 + table / (2 * most) if view == "exponent" else table
    pixels = ramp(DIVERGING if view == "exponent" else SEQUENTIAL, share)
    drawing.image(left, top, across * heads, tall * layers, pixels)
    columns = [[(left + across * i, top), (left + across * i, top + tall * layers)] for i in range(1, heads)]
    rows = [[(left, top + tall * i), (left + across * heads, top + tall * i)] for i in range(1, layers)]
    drawing.lines(columns + rows, "paper")
    unknown = np.argwhere(~np.isfinite(table)).tolist()
    drawing.areas([box(left + across * j, top + tall * i, across, tall) for i, j in unknown], "faint")
    if numbers and across > 40 and tall > 17:
        for (i, j), value in np.ndenumerate(table):
            if math.isfinite(value):
                said = number_text(value, 2) if view == "exponent" else percent_text(value)
                x, y = left + across * (j + 0.5), top + tall * (i + 0.5) + 3.8
                red, green, blue = (int(v) for v in pixels[i, j])
                drawing.text(x, y, said, size=10, anchor="middle", colour=readable((red, green, blue)))
    for layer in range(0, layers, math.ceil(14 / tall)):
        drawing.text(left - 7, top + tall * (layer + 0.5) + 3.8, layer, anchor="end")
    names = [str(head) for head in range(heads)] if labels is None else labels
    counted = sum(name.isdigit() for name in names)
    for head in range(0, counted, max(1, math.ceil(16 / across))):
        drawing.text(left + across * (head + 0.5), top + tall * layers + 15, names[head], anchor="middle")
    _name_columns(drawing, left + across * counted, top + tall * layers, across, names[counted:])
    drawing.text(left + across * counted / 2, drawing.height - 6, "head", anchor="middle")
    drawing.text(11, top + tall * layers / 2, "layer", anchor="middle", turn=-90)
    drawing.data["frame"] = f"{left:g} {top:g} {across * heads:g} {tall * layers:g} 0 {heads} {layers} 0"
    return drawing


def _name_columns(drawing: Drawing, x: float, y: float, across: float, names: Sequence[str]) -> None:
    """Words under columns; they stand upright where one of them is wider than its column."""
    fits = all(LETTER * len(name) + 4 <= across for name in names)
    for number, name in enumerate(names):
        middle = x + across * (number + 0.5)
        if fits:
            drawing.text(middle, y + 15, name, anchor="middle")
        else:
            size = min(FONT_SIZE, max(8.0, across))
            drawing.text(middle + 0.35 * size, y + 5, name, size=size, anchor="end", turn=-90)


def heads(explanations: Mapping[str, Explanation] | Explanation, view: str = "exponent") -> Drawing:
    """Layers × heads of the single-head exponent or of the relative attention entropy, a panel for each model."""
    named = explanations if isinstance(explanations, Mapping) else {"": explanations}
    tables = {name: found[view] for name, e in named.items() if view in (found := head_tables(e))}
    most, below, above = colour_range(list(tables.values())) if view == "exponent" else (1.0, False, False)
    wide = 760.0 if len(tables) == 1 else 360.0
    figure = grid(
        [heads_panel(table, view, most, title=name or TITLES[view], wide=wide) for name, table in tables.items()],
        across=min(3, len(tables)), bottom=34,
    )  # fmt: skip
    figure.label = f"{TITLES[view]} of every layer and head"
    ends = range_text(most, below, above) if view == "exponent" else ("0: one token", "1: all tokens alike")
    colour_bar(figure, 40, figure.height - 18, view == "exponent", *ends)
    return figure


def colour_bar(drawing: Drawing, x: float, y: float, diverging: bool, low: str, high: str) -> None:
    """What the colours mean: a strip from one end to the other."""
    before = 6.0 * len(low) + 8
    strip = ramp(DIVERGING if diverging else SEQUENTIAL, np.linspace(0, 1, 64)[None])
    drawing.text(x, y + 9, low)
    drawing.image(x + before, y, 140, 10, strip)
    drawing.text(x + before + 148, y + 9, high)


@dataclass(frozen=True)
class Shares:
    """How often each type dominates, the interval of type (2), and over how many cases."""

    share: dict[str, float]
    low: float
    high: float
    count: int


def type_shares(explanation: Explanation) -> dict[str, Shares]:
    """By the two ways to count: as H acts, and as the paper does it; {} where no spectra of attention are known."""
    if "kind" not in explanation.head_frame():
        return {}
    found = {}
    for name, column in COUNTS.items():
        table = explanation.type_shares(column).set_index("kind")
        shares = {str(kind): float(share) for kind, share in table["share"].items()}
        low, high = (float(table[end].astype(float)["sharpening"]) for end in ("low", "high"))
        found[name] = Shares(shares, low, high, int(table["count"].iloc[0]))
    return found


def shares_text(found: Shares) -> str:
    """The share of type (2) with its interval."""
    said = f"type (2) in {percent_text(found.share.get('sharpening', 0.0))} of {found.count} cases"
    if math.isfinite(found.low):
        low = percent_text(found.low).removesuffix("\N{NO-BREAK SPACE}%")  # a phone's width is short
        said += f", 95 % interval {low} to {percent_text(found.high)}"
    return said


def shares_panel(found: Shares, *, name: str = "", wide: float = 1072) -> Drawing:
    """One stacked bar; on a narrow drawing the words take two lines."""
    said = shares_text(found)
    narrow = wide < 620
    top = (36.0 if name else 20.0) if narrow else 20.0
    drawing = Drawing(wide, top + 26, f"{name}: {said}")
    if name:
        drawing.title(0, 13, short(name, wide if narrow else wide / 2))
    drawing.text(0 if narrow else wide, top - 7, said, anchor="start" if narrow else "end")
    left = 0.0
    for kind, _, colour in TYPES:
        width = wide * found.share.get(kind, 0.0)
        if not width > 0:
            continue
        drawing.rect(left, top, max(width - 1, 0.5), 20, colour)
        if width > 46:
            paper = "ink" if colour == "zero" else "card"
            drawing.text(left + 7, top + 14, percent_text(found.share[kind]), colour=paper, bold=True)
        left += width
    return drawing


def shares(explanations: Mapping[str, Explanation] | Explanation) -> Drawing:
    """Which type dominates over layers, heads and inputs, as the paper counts: a bar for each model."""
    named = explanations if isinstance(explanations, Mapping) else {"": explanations}
    bars = [shares_panel(f["paper"], name=name, wide=760) for name, e in named.items() if (f := type_shares(e))]
    figure = grid(bars, across=1, gap=6, bottom=24)
    figure.label = "Which type dominates: as the paper counts"
    swatches(figure, 0, figure.height - 6, [(colour, said) for _, said, colour in TYPES])
    return figure
