"""Two measurements side by side on one small page: no scripts, opens offline, prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from unsmooth.analysis import Measurement
from unsmooth.analysis.measuring.comparison import compare
from unsmooth.analysis.measuring.pairing import Pairing, pair
from unsmooth.figures import difference
from unsmooth.metrics.registry import metric_named
from unsmooth.page.build import page_head
from unsmooth.page.words.glossary import explained
from unsmooth.page.words.phrases import counted, measured_text, samples_said, signed_text

if TYPE_CHECKING:
    import pandas as pd


def comparison_page(a: Measurement, b: Measurement, names: tuple[str, str], points: Sequence[str] | None = None) -> str:
    """HTML with one figure and one table for each metric and token policy: `b − a` with its interval.

    `points` chooses what is shown; everything that both hold by default.
    """
    frame = compare(a, b)
    if points is not None:
        frame = frame[frame["point"].isin(list(points))]
    first, second = map(escape, names)
    pairing = pair(a, b, names)
    how = f"All numbers are equal, so nothing is tested: {pairing.why}" if equal(frame) else pairing.interval
    said = [how, *left_out(frame, pairing), *same_run(a, b, names), "Smoothing is described here, not judged"]
    head = (
        '<header class="masthead"><div class="brand"><b>unsmooth</b> compare</div>'
        f"<h1>{second} against {first}</h1>"
        f'<p class="subject">Differences are {second} − {first}. {escape(". ".join(said))}.</p>'
        f"{_provenance(a, first)}{_provenance(b, second)}{_key(first, second)}</header>"
    )
    sections = [
        f"<section><h2>{escape(metric_named(str(metric)).title)}, {escape(str(tokens))} tokens</h2>"
        f'<p class="lede">{escape(finding(rows, names))}</p>{_figure(rows, str(metric))}{_table(rows, names)}'
        f'<p class="reading">{explained(metric_named(str(metric)).title)} {escape(rows["definition"].iloc[0])}</p>'
        "</section>"
        for (metric, tokens), rows in frame.groupby(["metric", "tokens"], sort=False)
    ]
    return "".join([page_head(f"{names[1]} against {names[0]}"), head, "<main>", *sections, "</main></body></html>\n"])


def _key(first: str, second: str) -> str:
    entries = (
        ("background:var(--smooth)", f"{second} is smoother"),
        ("background:var(--sharp)", f"{first} is smoother"),
        ("box-shadow:inset 0 0 0 2px var(--soft)", "hollow: the interval of the difference holds zero"),
    )
    spans = "".join(f'<span><i class="swatch" style="{style}"></i>{said}</span>' for style, said in entries)
    return f'<p class="key">{spans}</p>'


def finding(rows: pd.DataFrame, names: tuple[str, str]) -> str:
    """One sentence on where two measurements differ in one metric.

    Differing means that the interval of the difference leaves out zero.
    """
    if equal(rows):
        return f"{names[1]} equals {names[0]} at {'all ' if len(rows) > 1 else ''}{counted(len(rows), 'point')}."
    if rows["high"].isna().all():
        points = counted(len(rows), "point")
        return f"Whether they differ cannot be said: {points} without an interval (two samples make one)."
    differing = [row for row in rows.to_dict("records") if row["differs"]]
    if not differing:
        return f"No interval of a difference leaves out zero, at {counted(len(rows), 'point')}."
    most = max(differing, key=lambda row: abs(row["difference"]))
    smoother = sum(row["smoother"] == "b" for row in differing)
    return (
        f"{names[1]} differs from {names[0]} at {len(differing)} of {counted(len(rows), 'point')} "
        f"(smoother at {smoother}, sharper at {len(differing) - smoother}), most at "
        f"{most['point']}: {signed_text(most['difference'])} [{signed_text(most['low'])}, {signed_text(most['high'])}]."
    )


def equal(rows: pd.DataFrame) -> bool:
    """Whether every number is the same on both sides."""
    return bool((rows["difference"] == 0).all())


def same_run(a: Measurement, b: Measurement, names: tuple[str, str]) -> list[str]:
    """That the two are one measurement, where model, data, settings and time say so."""
    alike = a.about == b.about and a.cells == b.cells
    return [f"{names[0]} and {names[1]} are the same run: their model, data and time agree"] if alike else []


def left_out(rows: pd.DataFrame, pairing: Pairing) -> list[str]:
    """What must be said of samples that were measured in both but have no finite value in one; [] if there are none."""
    if pairing.places is None:
        return []
    missing = len(pairing.places[0]) - rows["pairs"]
    if not missing.any():
        return []
    return [
        f"{(missing > 0).sum()} of {len(rows)} numbers leave out samples without a finite value on one side, "
        f"up to {missing.max()} of {len(pairing.places[0])}"
    ]


def _provenance(measurement: Measurement, name: str) -> str:
    about = measurement.about
    facts: dict[str, Any] = {
        "model": about.model.name,
        "weights": (about.model.weights or "not recorded")[:16],
        "data": about.data.reference or "not recorded",
        "measured on": samples_said(measurement),
        "measured": about.created,
    }
    if measurement.partial:
        facts["partial"] = "yes: its measurement was interrupted"
    said = " · ".join(f"{key}: {escape(str(value))}" for key, value in facts.items())
    return f'<p class="caption"><b>{name}</b><br>{said}</p>'


def _table(rows: pd.DataFrame, names: tuple[str, str]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in ("point", *names, "difference", "95 % interval"))
    lines = [
        f'<tr class="{"differs" if row["differs"] else ""}"><td>{escape(row["point"])}</td>'
        f"<td>{measured_text(row['a'], 4)}</td><td>{measured_text(row['b'], 4)}</td>"
        f"<td>{signed_text(row['difference'], 4)}</td>"
        f"<td>{_interval(row)}</td></tr>"
        for row in rows.to_dict("records")
    ]
    return (
        f'<details><summary>the numbers</summary><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _interval(row: dict[Any, Any]) -> str:
    if not row["low"] < row["high"] < math.inf:
        return "no interval"
    return f"{signed_text(row['low'], 4)} … {signed_text(row['high'], 4)}"


def _figure(rows: pd.DataFrame, metric: str) -> str:
    """As wide as the page, and a narrow one for small screens."""
    wide, narrow = difference(rows, metric), difference(rows, metric, wide=346)
    if wide is None or narrow is None:
        return '<p class="absent">No finite difference to draw.</p>'
    return f'<div class="figure-body">{wide.html("wide")}{narrow.html("narrow")}</div>'
