"""The figures of the page with their switches: every drawing that a switch chooses between is made here, in Python.

The script shows, hides and highlights. Without it, what the page opens with is there.
"""

from __future__ import annotations

from collections.abc import Callable

from unsmooth.page.charts.attributed import who_section
from unsmooth.page.charts.controls import fold
from unsmooth.page.charts.could import could_section
from unsmooth.page.charts.explained import (
    exponents_section,
    heads_section,
    histograms_section,
    shares_section,
    spectra_section,
)  # fmt: skip
from unsmooth.page.charts.measured import depth_section, steps_section
from unsmooth.page.charts.parts import Subjects
from unsmooth.page.charts.tokens import tokens_section

_CHARTS: dict[str, Callable[[Subjects], str]] = {
    "depth": depth_section,
    "steps": steps_section,
    "who": who_section,
    "spectra": spectra_section,
    "histograms": histograms_section,
    "shares": shares_section,
    "exponents": exponents_section,
    "heads": heads_section,
    "tokens": tokens_section,
    "could": could_section,
}


def chart(name: str, subjects: Subjects) -> str:
    """The body of a section; the playground's is made by the script."""
    draw = _CHARTS.get(name)
    return f'<div class="figure" data-figure="{name}">{fold(draw(subjects)) if draw else ""}</div>'
