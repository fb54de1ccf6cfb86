"""Numbers, names and lists as they stand in a sentence of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.figures.text import listed, measured_text, number_text, percent_text, signed_text
from unsmooth.metrics.registry import metric_named
from unsmooth.prose import counted

__all__ = [
    "DOES",
    "SHAPES",
    "SHARPENS",
    "SMOOTHS",
    "counted",
    "does",
    "how_many",
    "listed",
    "measured_text",
    "named",
    "number_text",
    "percent_text",
    "samples_said",
    "shape",
    "signed_text",
]

SMOOTHS = '<span class="smooth-word">{}</span>'
SHARPENS = '<span class="sharp-word">{}</span>'
DOES = {1: SMOOTHS.format("smooths"), -1: SHARPENS.format("sharpens")}
_SHARES = ((0.0, "no"), (0.05, "hardly any"), (0.4, "a minority of the"), (0.6, "about half of the"), (0.95, "most"))
SHAPES = {1: SMOOTHS.format("smoothing"), -1: SHARPENS.format("sharpening")}


def named(name: str) -> str:
    """A model's name as HTML.

    >>> named("a<b")
    '<b>a&lt;b</b>'
    """
    return f"<b>{escape(name)}</b>"


def does(way: int, slight: bool, verbs: Mapping[int, str] = DOES, uneven: bool = False) -> str:
    """The verb of a clear change; `verbs` has those of another medium.

    >>> does(1, True, {1: "smooths"}), does(1, False, {1: "smooths"}, uneven=True)
    ('slightly smooths', 'on the whole smooths')
    """
    return f"{'on the whole ' if uneven else ''}{'slightly ' if slight else ''}{verbs[way]}"


def shape(ways: Sequence[tuple[int, bool]]) -> str:
    """The shape of a course (+1 smooths, −1 sharpens, 0 neither is clear; whether slightly) as a predicate, marked up.

    >>> import re
    >>> re.sub("<.*?>", "", shape([(-1, False), (1, True)])), shape([(0, False)])
    ('first sharpens, then slightly smooths', 'does not clearly change')
    """
    if not any(way for way, _ in ways):
        return "does not clearly change"
    verbs = [does(way, slight) if way else "shows no clear change" for way, slight in ways]
    return verbs[0] if len(verbs) == 1 else "first " + ", then ".join(verbs)


def how_many(share: float, noun: str) -> str:
    """A share of some things in words; the figures have the number.

    >>> [how_many(share, "head") for share in (0, 0.03, 0.2, 0.5)]
    ['no head', 'hardly any heads', 'a minority of the heads', 'about half of the heads']
    >>> [how_many(share, "head") for share in (0.8, 0.97, 1)]
    ['most heads', 'nearly all heads', 'all heads']
    """
    many = next((words for bound, words in _SHARES if share <= bound), "all" if share == 1 else "nearly all")
    return f"{many} {noun}{'' if many == 'no' else 's'}"


def samples_said(measurement: Measurement) -> str:
    """How many samples were measured and, where a metric is of fewer of them, of how many that is."""
    fewer: dict[int, list[str]] = {}
    for metric, count in measurement.samples_of.items():
        if count < measurement.samples:
            fewer.setdefault(count, []).append(metric_named(metric).title)
    parts = [f"{count} of them for {listed(names)}" for count, names in fewer.items()]
    return ", ".join([counted(measurement.samples, "sample"), *parts])
