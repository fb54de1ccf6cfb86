"""The figures of what was measured: metrics by depth, and what each sub-layer does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from html import escape
from itertools import product

from unsmooth.analysis.measuring.cells import Change
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.subject import Subject
from unsmooth.figures import by_depth, by_step
from unsmooth.figures.palette import direction
from unsmooth.figures.text import number_text, signed_text
from unsmooth.metrics.registry import by_panel, metric_named
from unsmooth.page.charts.controls import segmented, select, shown_when, toolbar
from unsmooth.page.charts.parts import (
    Subjects,
    caption,
    colour_key,
    drawn,
    in_row,
    metric_choices,
    policy_choices,
    swatch,
)
from unsmooth.page.course import Curve
from unsmooth.page.data import shared_metrics
from unsmooth.page.rounding import rounding


def depth_section(subjects: Subjects) -> str:
    """One panel for each idea of smoothness, the models overlaid."""
    families = by_panel(shared_metrics(subjects))
    policies = policy_choices(subjects)
    now = {"tokens": policies[0][0], "scale": "linear", "band": "shown"}
    layers = [by_depth.depth_of(subject.measurement) for subject in subjects]
    parts = []
    for number, (panel, metrics) in enumerate(families.items()):
        key = f"metric-{number}"
        choices = metric_choices(metrics)
        now[key] = metrics[0]
        variants = [
            _depth_variants(subjects, layers, len(families), {"tokens": policy, key: metric}, metric, policy, now)
            for metric in metrics
            for policy, _, _ in policies
        ]
        head = select("Definition", key, choices, metrics[0], f"depth-{key}") or f"<h4>{escape(choices[0][1])}</h4>"
        parts.append(
            f'<div class="panel"><div class="panel-head">{head}</div>{"".join(variants)}{caption(panel.caption)}</div>'
        )
    scales = [("linear", "linear", ""), ("log", "log", "")]
    bands = [("shown", "± 1 standard deviation", ""), ("hidden", "none", "the means alone, larger")]
    return toolbar(
        segmented("Tokens", "tokens", policies, now["tokens"], "depth-tokens"),
        segmented("Scale", "scale", scales, "linear", "depth-scale"),
        segmented("Band", "band", bands, "shown", "depth-band"),
    ) + in_row(len(families), "depth-charts", parts)


def _depth_variants(
    subjects: Subjects, layers: Sequence[int], count: int, where: dict[str, str], metric: str, policy: str,
    now: dict[str, str],
) -> str:  # fmt: skip
    curves = [by_depth.stream(subject.measurement, metric, policy) for subject in subjects]
    positive = all(stop.mean > 0 for curve in curves for stop in curve)
    label = f"{metric_named(metric).title} by depth, {policy} tokens"
    relative = len(set(layers)) > 1

    def draw(scale: by_depth.Scale, band: bool) -> str:
        at = partial(by_depth.depth_panel, curves, layers, scale=scale, band=band, label=label)
        return drawn(count, at, chart="depth", metric=metric, tokens=policy, **({"relative": 1} if relative else {}))

    either = "linear" if positive else "linear|log"
    found = shown_when(now, draw("linear", True), **where, scale=either, band="shown")
    found += shown_when(now, draw("linear", False), **where, scale=either, band="hidden")
    if positive:
        return found + shown_when(now, draw("log", True), **where, scale="log")
    note = caption("Not all values are positive: drawn on a linear scale.")
    return found + shown_when(now, note, **where, scale="log")


def steps_section(subjects: Subjects) -> str:
    """The waterfall of one model, and the mean change by kind of layer of all."""
    metrics, policies = shared_metrics(subjects), policy_choices(subjects)
    meanings = subjects[0].measurement.about.definitions.changes
    readings = [(name, name, str(meanings.get(name, ""))) for name in ("residual", "chain")]
    now = {"reading": "residual", "tokens": policies[0][0], "metric": metrics[0], "model": "0"}
    charts = "".join(
        shown_when(
            now, _waterfall(subject, metric, policy, reading),
            reading=reading, tokens=policy, metric=metric, model=str(index),
        )
        for index, subject in enumerate(subjects)
        for metric, (policy, _, _), (reading, _, _) in product(metrics, policies, readings)
    )  # fmt: skip
    tables = "".join(
        shown_when(now, _kinds_table(subjects, reading, policy), reading=reading, tokens=policy)
        for (policy, _, _), (reading, _, _) in product(policies, readings)
    )
    controls = toolbar(
        segmented("Reading", "reading", readings, "residual", "steps-reading"),
        segmented("Tokens", "tokens", policies, now["tokens"], "steps-tokens"),
        select("Metric", "metric", metric_choices(metrics), metrics[0], "steps-metric"),
        select("Model", "model", [(str(i), s.name, "") for i, s in enumerate(subjects)], "0", "steps-model"),
    )  # fmt: skip
    body = f'<div class="figure-body" id="steps-chart">{charts}</div>'
    return f'{controls}{body}<div class="figure-body scroll" id="kinds-table">{tables}</div>'


def _waterfall(subject: Subject, metric: str, policy: str, reading: str) -> str:
    found = by_step.measured_steps(subject.measurement, metric, policy, reading)
    if not found:
        return '<p class="absent">The points this reading needs were not measured.</p>'
    label = f"{metric_named(metric).title} through the sub-layers of {subject.name}"
    draw = partial(by_step.steps_panel, found, metric, by_depth.depth_of(subject.measurement), label=label)
    svg = drawn(1, draw, chart="steps", metric=metric, tokens=policy, reading=reading)
    kinds = {step.kind for step in found}
    looks = {"full": "background:var(--soft)", "pale": "background:var(--soft);opacity:.45",
             "outlined": "box-shadow:inset 0 0 0 1.5px var(--soft)"}  # fmt: skip
    return svg + colour_key(
        [("background:var(--sharp)", "sharpens"), ("background:var(--smooth)", "smooths")]
        + [(looks[look], kind) for kind, look in by_step.LOOKS.items() if kind in kinds]
    )


def _kinds_table(subjects: Subjects, reading: str, policy: str) -> str:
    metrics = [names[0] for names in by_panel(shared_metrics(subjects)).values()]
    rows = []
    for index, subject in enumerate(subjects):
        changes = subject.measurement.changes
        kinds = list(dict.fromkeys(c.kind for c in changes if c.reading == reading and c.tokens == policy))
        kinds.sort(key=list(by_step.LOOKS).index)
        for i, kind in enumerate(kinds):
            name = f"{swatch(index)}{escape(subject.name)}"
            first = f'<th scope="rowgroup" rowspan="{len(kinds)}" class="model-name">{name}</th>'
            first = first if i == 0 and len(subjects) > 1 else ""
            cells = "".join(_change(subject.measurement, Change(reading, kind, m, policy)) for m in metrics)
            rows.append(f'<tr data-model="{index}">{first}<th scope="row">{escape(kind)}</th>{cells}</tr>')
    titles = "".join(f'<th class="number">{escape(_title(subjects, metric))}</th>' for metric in metrics)
    return (
        f'<table class="numbers"><caption>Mean change by kind of layer, {escape(reading)} reading, {escape(policy)} '
        "tokens; ± is one standard deviation over samples, [ ] the 95 % interval of the mean.</caption><thead><tr>"
        f"{'<th>model</th>' if len(subjects) > 1 else ''}<th>kind</th>{titles}</tr></thead>"
        f"<tbody>{''.join(rows) or '<tr><td>not measured</td></tr>'}</tbody></table>"
    )


def _title(subjects: Subjects, metric: str) -> str:
    """Of a column, with the number of samples where that is not everybody's: within a rank budget."""
    counts = {(s.measurement.samples_of.get(metric, s.measurement.samples), s.measurement.samples) for s in subjects}
    fewer = sorted({count for count, samples in counts if count < samples})
    return metric_named(metric).title + (f" (n = {' or '.join(map(str, fewer))})" if fewer else "")


def _change(measurement: Measurement, change: Change) -> str:
    found, metric = measurement.changes.get(change), change.metric
    label = f'data-label="{escape(metric_named(metric).title)}"'
    if found is None or not math.isfinite(found.mean):
        return f'<td class="number" {label}>–</td>'
    low, high = found.interval
    if not math.isfinite(low):
        return f'<td class="number" {label}><b>{signed_text(found.mean)}</b> <em>one sample</em></td>'
    size = max(map(abs, Curve(measurement, metric, change.tokens).means))
    clear = (low > 0 or high < 0) and abs(found.mean) > rounding(measurement, metric, size)
    way = direction(found.mean, metric_named(metric).sign) if clear else "unclear"
    word = {"smooth": "smoother", "sharp": "sharper"}.get(way, "no clear change")
    return (
        f'<td class="number {way}" {label}><b>{signed_text(found.mean)}</b> ± {number_text(found.std, 2)} '
        f"<small>[{number_text(low)}, {number_text(high)}]</small> <em>{word}</em></td>"
    )
