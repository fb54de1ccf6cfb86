"""What the figures of the page are put together from: drawings at two widths, panels with headings, keys, choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from unsmooth.analysis.subject import Subject
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.palette import model_colour
from unsmooth.metrics.registry import metric_named
from unsmooth.page.charts.controls import Choice
from unsmooth.page.data import shared_policies

Subjects = Sequence["Subject"]
_WIDE, _TWO, _THREE = 1072.0, 528.0, 346.0  # what one, two or three panels have in a row of the page


def drawn(count: int, draw: Callable[..., Drawing], **data: object) -> str:
    """A drawing as wide as `count` panels side by side leave room for, and a narrow one for small screens."""
    if count > 2:
        return draw(wide=_THREE).html(**data)
    wide = _WIDE if count == 1 else _TWO
    return draw(wide=wide).html("wide", **data) + draw(wide=_THREE).html("narrow", **data)


def in_row(count: int, name: str, parts: Iterable[str]) -> str:
    across = {1: "one", 2: "two"}.get(count, "three")
    return f'<div class="figure-body panels {across}" id="{name}">{"".join(parts)}</div>'


def model_panel(index: int, subject: Subject, *parts: str) -> str:
    return f'<div class="panel" data-model="{index}">{heading(index, subject.name)}{"".join(parts)}</div>'


def heading(index: int, text: str) -> str:
    return f"<h4>{swatch(index)}{escape(text)}</h4>"


def swatch(index: int) -> str:
    """A square in the model's colour."""
    return f'<i class="swatch" style="background:var(--{model_colour(index)})"></i>'


def caption(text: str) -> str:
    return f'<p class="reading">{escape(text)}</p>'


def colour_key(entries: Iterable[tuple[str, str]]) -> str:
    inside = "".join(f'<span><i class="swatch" style="{style}"></i>{escape(said)}</span>' for style, said in entries)
    return f'<p class="key">{inside}</p>'


def metric_choices(names: Sequence[str]) -> list[Choice]:
    return [(name, metric_named(name).title, metric_named(name).definition) for name in names]


def policy_choices(subjects: Subjects) -> list[Choice]:
    meanings = subjects[0].measurement.about.definitions.tokens
    return [(name, name, str(meanings.get(name, ""))) for name in shared_policies(subjects)]


def colour_bar(ramp: str, low: str, high: str, middle: str = "") -> str:
    """What the colours mean, from one end to the other."""
    inside = f"<b>{escape(middle)}</b>" if middle else ""
    return (
        f'<div class="colour-bar"><span>{escape(low)}</span><i class="ramp-{ramp}">{inside}</i>'
        f"<span>{escape(high)}</span></div>"
    )
