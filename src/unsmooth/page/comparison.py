"""Two measurements side by side on one small page: no scripts, opens offline, prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from unsmooth.analysis.comparison import compare
from unsmooth.analysis.pairing import Pairing, pair
from unsmooth.metrics.registry import metric_named
from unsmooth.page.words import signed_text

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.analysis import Measurement

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --up: #d55e00; --down: #0072b2;
  --paper: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --up: #ff9d4d;
  --down: #6cb6ff; --paper: #0d1117 } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; overflow-wrap: anywhere } h2 { font-size: 1.15rem; margin-top: 2.5rem }
p, small, dd { color: var(--soft); overflow-wrap: anywhere } li { overflow-wrap: anywhere }
svg { width: 100%; height: auto; display: block } svg text { fill: var(--soft); font-size: 11px }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .2rem .8rem .2rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.differs { font-weight: 600 } .axis { stroke: var(--line) } .bar { stroke: var(--soft); stroke-width: 1.5 }
.up { fill: var(--up) } .down { fill: var(--down) } .same { fill: var(--paper); stroke: var(--soft) }
@media print { body { margin: 0; max-width: none } h2, svg { break-inside: avoid } }
"""


def comparison_page(a: Measurement, b: Measurement, names: tuple[str, str], points: Sequence[str] | None = None) -> str:
    """HTML with one figure and one table for each metric and token policy: `b − a` with its interval.

    `points` chooses what is shown; everything that both hold by default.
    """
    frame = compare(a, b)
    if points is not None:
        frame = frame[frame["point"].isin(list(points))]
    first, second = map(escape, names)
    pairing = pair(a, b, names)
    said = [pairing.interval, *left_out(frame, pairing), "Smoothing is described here, not judged"]
    parts = [
        f"<h1>{second} against {first}</h1>",
        f"<p>Differences are {second} − {first}. {escape('. '.join(said))}.</p>",
        _provenance(a, first),
        _provenance(b, second),
    ]
    for (metric, tokens), rows in frame.groupby(["metric", "tokens"], sort=False):
        title = metric_named(str(metric)).title
        parts += [
            f"<h2>{escape(title)}, {escape(str(tokens))} tokens</h2>",
            f"<p>{escape(finding(rows, names))}</p>",
            _figure(rows, title),
            _table(rows, names),
            f"<small>{escape(rows['definition'].iloc[0])}</small>",
        ]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{second} against {first}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def finding(rows: pd.DataFrame, names: tuple[str, str]) -> str:
    """One sentence on where two measurements differ in one metric.

    Differing means that the interval of the difference leaves out zero.
    """
    if rows["high"].isna().all():
        return f"Whether they differ cannot be said: no interval at any of {len(rows)} points (two samples make one)."
    differing = [row for row in rows.to_dict("records") if row["differs"]]
    if not differing:
        return f"No difference beyond its interval at any of {len(rows)} points."
    most = max(differing, key=lambda row: abs(row["difference"]))
    smoother = sum(row["smoother"] == "b" for row in differing)
    return (
        f"{names[1]} differs from {names[0]} at {len(differing)} of {len(rows)} points "
        f"(smoother at {smoother}, sharper at {len(differing) - smoother}), most at "
        f"{most['point']}: {most['difference']:+.4g} [{most['low']:+.4g}, {most['high']:+.4g}]."
    )


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
        "samples": measurement.samples,
        "measured": about.created,
    }
    if measurement.partial:
        facts["partial"] = "yes: its measurement was interrupted"
    said = " · ".join(f"{key}: {escape(str(value))}" for key, value in facts.items())
    return f"<p><strong>{name}</strong><br><small>{said}</small></p>"


def _table(rows: pd.DataFrame, names: tuple[str, str]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in ("point", *names, "difference", "95 % interval"))
    lines = [
        f'<tr class="{"differs" if row["differs"] else ""}"><td>{escape(row["point"])}</td><td>{row["a"]:.4g}</td>'
        f"<td>{row['b']:.4g}</td><td>{row['difference']:+.4g}</td>"
        f"<td>{_interval(row)}</td></tr>"
        for row in rows.to_dict("records")
    ]
    return (
        f'<details><summary>the numbers</summary><div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def _interval(row: dict[Any, Any]) -> str:
    return f"{row['low']:+.4g} … {row['high']:+.4g}" if math.isfinite(row["high"]) else "no interval"


def _figure(rows: pd.DataFrame, title: str, width: int = 900, height: int = 220) -> str:
    """Differences along the forward pass, with their intervals; hollow where the interval holds zero."""
    drawn = [row for row in rows.to_dict("records") if math.isfinite(row["difference"])]
    if not drawn:
        return "<p>No finite difference to draw.</p>"
    edges = [v for row in drawn for v in (row["low"], row["high"], row["difference"], 0.0) if math.isfinite(v)]
    top, bottom = max(edges), min(edges)

    def y(value: float) -> float:
        return 15 + (height - 40) * (top - value) / ((top - bottom) or 1.0)

    def x(number: int) -> float:
        return 80 + (width - 90) * (number + 0.5) / len(drawn)

    marks = [f'<line class="axis" x1="70" x2="{width}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>']
    ends = [v for v in dict.fromkeys((top, bottom)) if abs(y(v) - y(0)) > 14]  # no label on top of that of zero
    for value in (*ends, 0.0):
        marks.append(f'<text x="64" y="{y(value) + 4:.1f}" text-anchor="end">{signed_text(value)}</text>')
    for number, row in enumerate(drawn):
        middle = row["difference"]
        low, high = (v if math.isfinite(v) else middle for v in (row["low"], row["high"]))
        kind = "same" if not row["differs"] else "up" if middle > 0 else "down"
        said = escape(f"{row['point']}: {middle:+.4g} ({_interval(row)})")
        marks.append(
            f'<g><title>{said}</title><line class="bar" x1="{x(number):.1f}" x2="{x(number):.1f}" y1="{y(low):.1f}" '
            f'y2="{y(high):.1f}"/><circle class="{kind}" cx="{x(number):.1f}" cy="{y(middle):.1f}" r="4"/></g>'
        )
    anchors = {0: "start", len(drawn) - 1: "end"} if len(drawn) > 1 else {0: "middle"}
    for number, anchor in anchors.items():
        point = escape(drawn[number]["point"])
        marks.append(f'<text x="{x(number):.1f}" y="{height - 5}" text-anchor="{anchor}">{point}</text>')
    label = escape(f"Difference in {title} along the forward pass")
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(marks)}</svg>'
