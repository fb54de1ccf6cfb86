"""One self-contained HTML page: data in, text out. It asks nothing of any server."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from unsmooth.analysis.subject import Subject
from unsmooth.errors import OptionError
from unsmooth.figures.by_depth import line_key
from unsmooth.figures.palette import style_sheet
from unsmooth.page.charts import chart
from unsmooth.page.data import headed, page_data, shared_metrics, shared_policies
from unsmooth.page.encode import csv_name, packed, script_json
from unsmooth.page.glance import glance_table
from unsmooth.page.provenance import analysed, provenance
from unsmooth.page.sections import SECTIONS, Section
from unsmooth.page.words.attribution import attributed, policies_of
from unsmooth.page.words.findings import findings
from unsmooth.page.words.glossary import glossary, linked
from unsmooth.page.words.phrases import listed

STYLES = ("page.css", "chart.css", "forms.css", "print.css")
SCRIPTS = (
    "dom.js", "numbers.js", "tip.js", "hover.js", "switches.js", "chart.js", "controls.js", "simulate.js",
    "playground.js", "page.js",
)  # fmt: skip


def build_report(subjects: Sequence[Subject], *, title: str | None = None, command: str | None = None) -> str:
    """The page about one or several models, as one HTML string that needs no other file.

    Args:
        subjects: what `collect` gave for each model; names must differ.
        title: the headline, made from the names by default.
        command: how the page was made, for its provenance.
    """
    _check(subjects)
    subjects = headed(subjects)
    sections = [section for section in SECTIONS if _has(section, subjects)]
    script = "(() => {\n'use strict';\n" + "\n".join(asset(name) for name in SCRIPTS) + "\n})();"
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    headline = title or _headline(subjects)
    return "".join(
        [
            page_head(headline, allowed),
            _masthead(headline, subjects, sections),
            '<main id="content">',
            *(_section(section, number, subjects) for number, section in enumerate(sections, 1)),
            _provenance_section(subjects, command),
            "</main><footer>Made with unsmooth. This page holds its data and makes no request.</footer>",
            f'<script type="application/json" id="data">{script_json(page_data(subjects))}</script>',
            *(_file(name, text) for name, text in _downloads(subjects).items()),
            f"<script>{script}</script></body></html>\n",
        ]
    )


def asset(name: str) -> str:
    """A style or script of the page, as text."""
    return files("unsmooth.page").joinpath("assets", name).read_text(encoding="utf-8")


def _check(subjects: Sequence[Subject]) -> None:
    if not subjects:
        raise OptionError("a report needs at least one model, got none")
    names = [subject.name for subject in subjects]
    if len(set(names)) < len(names):
        raise OptionError(f"the models of a report need different names, got {', '.join(map(repr, names))}")
    if not shared_metrics(subjects) or not shared_policies(subjects):
        raise OptionError("the models of a report must share a metric and a token policy: measure them alike")


def _has(section: Section, subjects: Sequence[Subject]) -> bool:
    if section.needs == "explain":
        return any(subject.explanation is not None for subject in subjects)
    if section.needs == "attribute":
        return bool(attributed(subjects)) and bool(policies_of(subjects, shared_policies(subjects)))
    return section.needs != "tokens" or any(subject.tokens is not None for subject in subjects)


def _headline(subjects: Sequence[Subject]) -> str:
    names = [subject.name for subject in subjects]
    if len(names) == 1:
        return f"How smooth are the features of {names[0]}?"
    return f"{listed(names) if len(names) <= 4 else f'{len(names)} models'}: how smooth are their features?"


def page_head(title: str, script_hash: str = "") -> str:
    """The beginning of a page in our look; no script may run but the one of this hash, and nothing is asked for."""
    allowed = f"'sha256-{script_hash}'" if script_hash else "'none'"
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:"
    styles = style_sheet() + "\n".join(asset(name) for name in STYLES)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{styles}</style></head><body>"
    )


def _masthead(title: str, subjects: Sequence[Subject], sections: Sequence[Section]) -> str:
    numbers = {section.name: f"Figure {i}" for i, section in enumerate(sections, 1)} | {"provenance": "Provenance"}
    said = "".join(f'<p class="{found.about}">{found.html(numbers)}</p>' for found in findings(subjects))
    about = analysed(subjects)
    links = "".join(f'<a href="#{section.name}">{escape(section.short)}</a>' for section in sections)
    return (
        '<a class="skip" href="#content">Skip to the figures</a><header class="masthead">'
        f'<div class="brand"><b>unsmooth</b> report</div><h1>{escape(title)}</h1><p class="subject">{escape(about)}</p>'
        f'{glance_table(subjects)}<div class="findings">{said}</div>{glossary()}</header>'
        f'<div class="bar"><div><nav aria-label="Sections">{links}<a href="#provenance">Provenance</a></nav>'
        '<button type="button" id="theme">Dark</button>'
        f'<div id="legend">{_legend(subjects)}</div></div></div>'
        "<noscript><style>.toolbar, #theme, #legend input { display: none }</style></noscript>"
    )


def _legend(subjects: Sequence[Subject]) -> str:
    """One for the whole page, which stays in view: which models are shown."""
    if len(subjects) < 2:
        return ""
    entries = "".join(
        f'<label title="{escape(subject.name)}"><input type="checkbox" data-shows="{index}" checked autocomplete="off">'
        f"{line_key(index).html('sample')}<span>{escape(subject.name)}</span></label>"
        for index, subject in enumerate(subjects)
    )
    return f'<div class="legend" role="group" aria-label="Models shown">{entries}</div>'


def _section(section: Section, number: int, subjects: Sequence[Subject]) -> str:
    return (
        f'<section id="{section.name}" aria-labelledby="{section.name}-title"><h2 id="{section.name}-title">'
        f'<span class="number">{number}</span>{linked(escape(section.title))}</h2>'
        f'<p class="lede">{linked(section.prose)}</p>{chart(section.name, subjects)}</section>'
    )


def _provenance_section(subjects: Sequence[Subject], command: str | None) -> str:
    return (
        '<section id="provenance" aria-labelledby="provenance-title"><h2 id="provenance-title">Provenance</h2>'
        '<p class="downloads"><button type="button" data-download="results.json">Raw results, JSON</button> '
        '<button type="button" data-download="measurements.csv">Measurements, CSV</button></p>'
        f"{provenance(subjects, command)}</section>"
    )


def _downloads(subjects: Sequence[Subject]) -> dict[str, str]:
    """What was measured (but values per sample) and explained, as `to_json` gives it, and measurements as a table."""
    import pandas as pd

    raw = [
        {
            "name": subject.name,
            "measurement": subject.measurement.to_json(),
            "explanation": None if subject.explanation is None else subject.explanation.to_json(),
            "attribution": None if subject.attribution is None else subject.attribution.to_json(),
            "sweep": None if subject.sweep is None else subject.sweep.to_json(),
        }
        for subject in subjects
    ]
    tables = pd.concat(
        [subject.measurement.frame(full=True).assign(model=csv_name(subject.name)) for subject in subjects]
    )
    return {
        "results.json": json.dumps(_finite(raw), ensure_ascii=False),
        "measurements.csv": tables.to_csv(index=False, float_format="%.9g"),
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN; what has no value (an interval of one sample) is null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _file(name: str, text: str) -> str:
    return f'<script type="text/plain" id="file-{name.replace(".", "-")}">{packed(text)}</script>'
