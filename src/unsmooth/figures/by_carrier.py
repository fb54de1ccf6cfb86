"""Tokens that carry a metric: their norms and kurtosis by depth, the heads that attend to them, and the account."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unsmooth.analysis import Attribution
from unsmooth.analysis.attributing.carriers import AS_IT_IS, LEFT_OUT, Account, Carriers
from unsmooth.figures.axes import line_sample, log_ticks, panel, span
from unsmooth.figures.by_head import colour_bar, heads_panel
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.text import number_text, power_text, short

SIZES = (
    ("times", "farthest token's norm, × median", "series-0", ""),
    ("kurtosis_token", "its kurtosis", "series-1", "7 3"),
    ("kurtosis", "kurtosis of the others, mean", "series-2", "2 2.5"),
)
Line = tuple["Sequence[float]", str, str, str]


def carriers(attribution: Attribution, *, wide: float = 1072) -> Drawing:
    """Sizes by depth, attention on these tokens by layer and head, and ln HFC/LFC with and without what is written."""
    found = attribution.carriers
    if found is None:
        raise ValueError("the attribution has no carriers: attribute(..., carriers=True)")
    across = 1 if wide < 700 else 3 if found.account is not None else 2
    each = wide / across - (0 if across == 1 else 12)
    panels = [_sizes(found, each), _sinks(found, each)]
    panels += [] if found.account is None else [_account(found.account, each)]
    figure = grid(panels, across=across)
    figure.label = (
        f"tokens that carry HFC/LFC in {attribution.about.model.name}: norms, attention on them, what they do"
    )
    return figure


def _sizes(found: Carriers, wide: float) -> Drawing:
    lines = [
        ([math.log10(max(row[name], 1e-3)) for row in found.layers], title, colour, dash)
        for name, title, colour, dash in SIZES
    ]
    return _curves(lines, "Norms and kurtosis by depth", wide, log=True)


def _account(account: Account, wide: float) -> Drawing:
    lines = [
        (account.curves[AS_IT_IS], "all tokens", "series-0", ""),
        (account.curves[f"{AS_IT_IS}, others"], "without the outliers", "series-3", "2 2.5"),
        (account.curves[LEFT_OUT], f"all tokens, without MLP {account.layer}'s write", "series-1", "7 3"),
    ]
    return _curves(lines, "ln HFC/LFC with and without", wide)


def _curves(lines: Sequence[Line], title: str, wide: float, log: bool = False) -> Drawing:
    layers = len(lines[0][0]) - 1
    plot = panel(
        wide, 330, (0.0, float(layers)), span([v for line in lines for v in line[0]]), title=title,
        x_label=f"depth: i is the input of layer i, {layers} the output of layer {layers - 1}"
        if wide > 330 else f"depth: {layers} is the output of layer {layers - 1}",
    )  # fmt: skip
    plot.y_axis(power_text, log_ticks(*plot.y_domain)) if log else plot.y_axis()
    plot.x_axis(whole=True)
    for i, (values, named, colour, dash) in enumerate(lines):
        plot.drawing.line(plot.at((float(k), v) for k, v in enumerate(values)), colour, 2, dash)
        line_sample(plot.drawing, 44, 346 + 16 * i, colour, dash, short(named, wide - 84))
    plot.drawing.height += 16 * len(lines) + 6
    return plot.drawing


def _sinks(found: Carriers, wide: float) -> Drawing:
    """Attention on the outliers of each layer's input, or on the first token where that gets more."""
    table = np.array(found.heads)
    outlying = bool(table[..., 1].mean() >= table[..., 0].mean())
    title = f"Attention on {'the outliers' if outlying else 'the first token'}"
    if not outlying and found.first_uniform is not None:
        title += f" (uniform: {number_text(100 * found.first_uniform, 2)} %)"
    drawing = heads_panel(table[..., int(outlying)], "entropy", 1.0, title=title, label=title, wide=wide, numbers=False)
    drawing.height += 22
    colour_bar(drawing, 40, drawing.height - 16, False, "0 %", "100 %")
    return drawing
