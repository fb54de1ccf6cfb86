"""What variants gain over plain, seed by seed."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from unsmooth.figures.axes import Panel, ticks
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.text import tick_text
from unsmooth.figures.trained import RUN_COLOURS
from unsmooth.metrics.differences import Comparison

BOLD = 6.9  # width of a bold letter, on average
Seed = TypeVar("Seed", bound=Hashable)


def gains(
    plain: Mapping[Seed, float], groups: Mapping[str, Mapping[Seed, float]], comparisons: Sequence[Comparison],
    title: str,
) -> Drawing:  # fmt: skip
    """Each variant's values minus plain's: a dot for each seed, the mean with its interval, the largest gain first."""
    shown = sorted((c for c in comparisons if c.difference.pairs), key=lambda c: -c.difference.mean)
    gaps = {c.name: [value - plain[s] for s, value in groups[c.name].items() if s in plain] for c in shown}
    intervals = [(c.difference.low, c.difference.high) for c in shown if c.difference.pairs > 2]
    values = [0.0, *(gap for group in gaps.values() for gap in group), *(end for ends in intervals for end in ends)]
    low, high = min(values) - 0.4, max(values) + 0.4
    names = [f"{c.name} (n = {c.difference.pairs})" for c in shown]
    left = max([300.0, *(20 + BOLD * len(name) for name in names)])
    picture = Drawing(left + 600, 90 + 20 * len(shown))
    panel = Panel(picture, left, 34, 570, 20 * max(1, len(shown)), (low, high), (0.0, 1.0))
    picture.title(left, 20, title)
    for tick in ticks(low, high, 8):
        panel.upright(tick, "soft" if tick == 0 else "line")
        said = ("+" if tick > 0 else "") + tick_text(tick)
        picture.text(panel.x(tick), panel.bottom + 14, said, anchor="middle", size=10)
    for number, c in enumerate(shown):
        y = panel.top + 20 * number + 10
        colour = "ink" if "+" in c.name else RUN_COLOURS.get(re.split("[-@ ]", c.name)[0], "ink")  # both signs: neither
        picture.text(left - 8, y + 4, names[number], anchor="end", colour="ink", bold=c.differs)
        picture.dots([(panel.x(gap), y) for gap in gaps[c.name]], colour, 5, 0.45)
        if c.difference.pairs > 2:
            picture.line([(panel.x(end), y) for end in (c.difference.low, c.difference.high)], colour, 2)
        picture.dots([(panel.x(c.difference.mean), y)], colour, 9)
    said = "small dots: one seed each; line: 95 % interval of the mean, from three seeds on; "
    bold = f"bold: differs from plain after Holm's correction for all {len(shown)}"
    picture.text(30, panel.bottom + 36, said + (bold if len(shown) > 1 else "bold: differs from plain"))
    return picture
