"""The figures of the page with their switches: every drawing that a switch chooses between is made here, in Python.

The script shows, hides and highlights. Without it, what the page opens with is there.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from unsmooth.analysis.measurement import Change
from unsmooth.figures import by_depth, by_head, by_step, by_token, eigenvalues, prediction
from unsmooth.figures.drawing import Drawing, png
from unsmooth.figures.palette import direction, model_colour
from unsmooth.figures.text import number_text, signed_text
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import by_panel, metric_named
from unsmooth.page.controls import Choice, segmented, select, shown_when, slider, toolbar
from unsmooth.page.data import shared_metrics, shared_policies

if TYPE_CHECKING:
    from unsmooth.analysis import Explanation, TokenView
    from unsmooth.analysis.subject import Subject

Subjects = Sequence["Subject"]
_WIDE, _TWO, _THREE = 1072.0, 528.0, 346.0  # what one, two or three panels have in a row of the page


def chart(name: str, subjects: Subjects) -> str:
    """The body of a section; the playground's is made by the script."""
    draw = _CHARTS.get(name)
    return f'<div class="figure" data-figure="{name}">{draw(subjects) if draw else ""}</div>'


def drawn(count: int, draw: Callable[[float], Drawing], **data: object) -> str:
    """A drawing as wide as `count` panels side by side leave room for, and a narrow one for small screens."""
    if count > 2:
        return draw(_THREE).html(**data)
    wide = _WIDE if count == 1 else _TWO
    return draw(wide).html("wide", **data) + draw(_THREE).html("narrow", **data)


def _panels(count: int, name: str, parts: Iterable[str]) -> str:
    across = {1: "one", 2: "two"}.get(count, "three")
    return f'<div class="figure-body panels {across}" id="{name}">{"".join(parts)}</div>'


def _panel(index: int, subject: Subject, *parts: str, more: str = "") -> str:
    return f'<div class="panel" data-model="{index}">{_heading(index, subject.name + more)}{"".join(parts)}</div>'


def _heading(index: int, text: str) -> str:
    return f"<h4>{swatch(index)}{escape(text)}</h4>"


def swatch(index: int) -> str:
    """A square in the model's colour."""
    return f'<i class="swatch" style="background:var(--{model_colour(index)})"></i>'


def _reading(text: str) -> str:
    return f'<p class="reading">{escape(text)}</p>'


def _key(entries: Iterable[tuple[str, str]]) -> str:
    inside = "".join(f'<span><i class="swatch" style="{style}"></i>{escape(said)}</span>' for style, said in entries)
    return f'<p class="key">{inside}</p>'


def _metrics(names: Sequence[str]) -> list[Choice]:
    return [(name, metric_named(name).title, metric_named(name).definition) for name in names]


def _policies(subjects: Subjects) -> list[Choice]:
    meanings = subjects[0].measurement.about.definitions.tokens
    return [(name, name, str(meanings.get(name, ""))) for name in shared_policies(subjects)]


# ---------------------------------------------------------------------------------------------- depth


def depth_section(subjects: Subjects) -> str:
    """One panel for each idea of smoothness, the models overlaid."""
    families = by_panel(shared_metrics(subjects))
    policies = _policies(subjects)
    now = {"tokens": policies[0][0], "scale": "linear", "band": "shown"}
    layers = [by_depth.depth_of(subject.measurement) for subject in subjects]
    parts = []
    for number, (panel, metrics) in enumerate(families.items()):
        key = f"metric-{number}"
        choices = _metrics(metrics)
        now[key] = metrics[0]
        variants = [
            _depth_variants(subjects, layers, len(families), {"tokens": policy, key: metric}, metric, policy, now)
            for metric in metrics
            for policy, _, _ in policies
        ]
        head = select("Definition", key, choices, metrics[0], f"depth-{key}") or f"<h4>{escape(choices[0][1])}</h4>"
        parts.append(
            f'<div class="panel"><div class="panel-head">{head}</div>{"".join(variants)}{_reading(panel.caption)}</div>'
        )
    scales = [("linear", "linear", ""), ("log", "log", "")]
    bands = [("shown", "± 1 standard deviation", ""), ("hidden", "none", "the means alone, larger")]
    return toolbar(
        segmented("Tokens", "tokens", policies, now["tokens"], "depth-tokens"),
        segmented("Scale", "scale", scales, "linear", "depth-scale"),
        segmented("Band", "band", bands, "shown", "depth-band"),
    ) + _panels(len(families), "depth-charts", parts)


def _depth_variants(
    subjects: Subjects, layers: Sequence[int], count: int, where: dict[str, str], metric: str, policy: str,
    now: dict[str, str],
) -> str:  # fmt: skip
    curves = [by_depth.stream(subject.measurement, metric, policy) for subject in subjects]
    positive = all(stop.mean > 0 for curve in curves for stop in curve)
    label = f"{metric_named(metric).title} by depth, {policy} tokens"
    relative = len(set(layers)) > 1

    def draw(scale: by_depth.Scale, band: bool) -> str:
        def at(wide: float) -> Drawing:
            return by_depth.depth_panel(curves, layers, scale=scale, band=band, wide=wide, label=label)

        return drawn(count, at, chart="depth", metric=metric, tokens=policy, **({"relative": 1} if relative else {}))

    either = "linear" if positive else "linear|log"
    found = shown_when(now, draw("linear", True), **where, scale=either, band="shown")
    found += shown_when(now, draw("linear", False), **where, scale=either, band="hidden")
    if positive:
        return found + shown_when(now, draw("log", True), **where, scale="log")
    note = _reading("Not all values are positive: drawn on a linear scale.")
    return found + shown_when(now, note, **where, scale="log")


# ---------------------------------------------------------------------------------------------- sub-layers


def steps_section(subjects: Subjects) -> str:
    """The waterfall of one model, and the mean change by kind of layer of all."""
    metrics, policies = shared_metrics(subjects), _policies(subjects)
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
        select("Metric", "metric", _metrics(metrics), metrics[0], "steps-metric"),
        select("Model", "model", [(str(i), s.name, "") for i, s in enumerate(subjects)], "0", "steps-model"),
    )  # fmt: skip
    body = f'<div class="figure-body" id="steps-chart">{charts}</div>'
    return f'{controls}{body}<div class="figure-body scroll" id="kinds-table">{tables}</div>'


def _waterfall(subject: Subject, metric: str, policy: str, reading: str) -> str:
    found = by_step.walk(subject.measurement, metric, policy, reading)
    if not found:
        return '<p class="absent">The points this reading needs were not measured.</p>'
    layers, label = (
        by_depth.depth_of(subject.measurement),
        f"{metric_named(metric).title} through the sub-layers of {subject.name}",
    )

    def draw(wide: float) -> Drawing:
        return by_step.steps_panel(found, metric, layers, label=label, wide=wide, tall=290 if wide > 620 else 240)

    svg = drawn(1, draw, chart="steps", metric=metric, tokens=policy, reading=reading)
    kinds = {step.kind for step in found}
    looks = {"full": "background:var(--soft)", "pale": "background:var(--soft);opacity:.45",
             "outlined": "box-shadow:inset 0 0 0 1.5px var(--soft)"}  # fmt: skip
    return svg + _key(
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
            cells = "".join(_change(changes.get(Change(reading, kind, m, policy)), m) for m in metrics)
            rows.append(f'<tr data-model="{index}">{first}<th scope="row">{escape(kind)}</th>{cells}</tr>')
    titles = "".join(f'<th class="number">{escape(metric_named(metric).title)}</th>' for metric in metrics)
    return (
        f'<table class="numbers"><caption>Mean change by kind of layer, {escape(reading)} reading, {escape(policy)} '
        "tokens; ± is one standard deviation over samples, [ ] the 95 % interval of the mean.</caption><thead><tr>"
        f"{'<th>model</th>' if len(subjects) > 1 else ''}<th>kind</th>{titles}</tr></thead>"
        f"<tbody>{''.join(rows) or '<tr><td>not measured</td></tr>'}</tbody></table>"
    )


def _change(found: Moments | None, metric: str) -> str:
    label = f'data-label="{escape(metric_named(metric).title)}"'
    if found is None or not math.isfinite(found.mean):
        return f'<td class="number" {label}>–</td>'
    low, high = found.interval
    if not math.isfinite(low):
        return f'<td class="number" {label}><b>{signed_text(found.mean)}</b> <em>one sample</em></td>'
    way = direction(found.mean, metric_named(metric).sign) if low > 0 or high < 0 else "unclear"
    word = {"smooth": "smoother", "sharp": "sharper"}.get(way, "no clear change")
    return (
        f'<td class="number {way}" {label}><b>{signed_text(found.mean)}</b> ± {number_text(found.std, 2)} '
        f"<small>[{number_text(low)}, {number_text(high)}]</small> <em>{word}</em></td>"
    )


# ---------------------------------------------------------------------------------------------- explanation


def _explained(subjects: Subjects) -> list[tuple[int, Subject, Explanation]]:
    return [(i, subject, subject.explanation) for i, subject in enumerate(subjects) if subject.explanation is not None]


_OF: list[Choice] = [("layer", "Σ heads", "H = Σ_h H_h, what acts on the mean token"), ("heads", "each head", "")]
_FRAMES: list[Choice] = [("layer", "this layer", ""), ("all", "all layers", "")]
_FOLDINGS: list[Choice] = [
    ("raw", "before", "λ of the weights alone, as in the paper"),
    ("folded", "after", "sλ with the normalisation’s weight, centring, step s and LayerScale"),
]


def spectra_section(subjects: Subjects) -> str:
    """The complex plane, one layer at a time, all models in one frame."""
    found = {i: (s, eigenvalues.spectra_by_layer(explanation)) for i, s, explanation in _explained(subjects)}
    deepest = max(len(layers) for _, layers in found.values())
    numbers = [list(layers) for _, layers in found.values()]
    now = {"layer": "0", "of": "layer", "frame": "layer"}
    everything = {
        of: [v for _, layers in found.values() for v in _clouds(layers.values(), of)] for of in ("layer", "heads")
    }
    sizes = {(of, "all"): eigenvalues.plane_size(everything[of]) for of in everything}
    for at, of in product(range(deepest), everything):
        here = [list(layers.values())[at] for _, layers in found.values() if at < len(layers)]
        sizes[of, str(at)] = eigenvalues.plane_size(_clouds(here, of))
    panels: list[str] = []
    sides: dict[tuple[str, str], set[str]] = {}
    for index, (subject, layers) in found.items():
        variants = []
        for at, of, frame in product(range(len(layers)), everything, ("layer", "all")):
            layer = list(layers)[at]
            most = sizes[of, "all" if frame == "all" else str(at)]
            spectrum = layers[layer]
            clouds = {name: getattr(each, of) for name, each in spectrum.items()}
            label = f"Eigenvalues of H, layer {layer} of {subject.name}"

            seen = sides.setdefault((str(at), of), set())

            def draw(wide: float, c: Any = clouds, m: float = most, said: str = label, seen: Any = seen) -> Drawing:
                drawing, there = eigenvalues.plane_panel(c, m, label=said, wide=wide)
                seen.update(there)
                return drawing

            body = _heading(index, f"{subject.name}, layer {layer}") + drawn(len(found), draw, chart="spectra")
            body += _reading(eigenvalues.spectrum_note(spectrum, of, most))
            variants.append(shown_when(now, body, layer=str(at), of=of, frame=frame))
        if len(layers) < deepest:
            absent = f'{_heading(index, subject.name)}<p class="absent">has {len(layers)} layers only</p>'
            variants.append(shown_when(now, absent, layer="|".join(map(str, range(len(layers), deepest)))))
        panels.append(f'<div class="panel" data-model="{index}">{"".join(variants)}</div>')
    colours = eigenvalues.SIDES
    keys = "".join(
        shown_when(now, _key((f"background:var(--{colours[side]})", side) for side in colours if side in there),
                   layer=at, of=of)
        for (at, of), there in sides.items()
    )  # fmt: skip
    folds = any("folded" in each for _, layers in found.values() for each in layers.values())
    foldings = [*_FOLDINGS, ("both", "both", "")] if folds else []
    return (
        toolbar(
            slider("Layer", "layer", [str(v) for v in max(numbers, key=len)], 0, "spectra-layer"),
            segmented("Folding", "folding", foldings, "both", "spectra-folding"),
            segmented("Eigenvalues of", "of", _OF, "layer", "spectra-of"),
            segmented("Frame", "frame", _FRAMES, "layer", "spectra-frame"),
        )
        + _panels(len(found), "spectra-charts", panels)
        + keys
    )  # fmt: skip


def _clouds(layers: Iterable[Any], of: str) -> list[Any]:
    return [getattr(spectrum, of) for found in layers for spectrum in found.values()]


def histograms_section(subjects: Subjects) -> str:
    """How the real parts are distributed; every model has its own range."""
    found = _explained(subjects)
    now = {"folding": "raw", "of": "heads"}
    panels = []
    for index, subject, explanation in found:
        layers = eigenvalues.spectra_by_layer(explanation)
        variants = []
        for folding, of in product(("raw", "folded"), ("heads", "layer")):
            values = eigenvalues.pooled(layers, folding, of)
            label = f"Distribution of the real parts of H's eigenvalues, {subject.name}"

            def draw(wide: float, values: Any = values, label: str = label) -> Drawing:
                return eigenvalues.histogram_panel(values, label=label, wide=wide)

            body = drawn(len(found), draw, chart="histogram") + _reading(eigenvalues.histogram_note(values))
            variants.append(shown_when(now, body, folding=folding, of=of))
        panels.append(_panel(index, subject, *variants))
    return toolbar(
        segmented("Folding", "folding", _FOLDINGS, "raw", "histograms-folding"),
        segmented("Eigenvalues of", "of", _OF[::-1], "heads", "histograms-of"),
    ) + _panels(len(found), "histogram-charts", panels)  # fmt: skip


def shares_section(subjects: Subjects) -> str:
    """How often each type dominates, by two ways to count."""
    rows = []
    now = {"count": "acting"}
    for index, subject, explanation in _explained(subjects):
        for count, shares in by_head.type_shares(explanation).items():

            def draw(wide: float, shares: by_head.Shares = shares, name: str = subject.name) -> Drawing:
                return by_head.shares_panel(shares, name=name, wide=wide)

            row = shown_when(now, drawn(1, draw), count=count)
            rows.append(f'<div data-model="{index}">{row}</div>')
    counts = [
        ("acting", "folded", "H with the normalisation folded in, and the step that it makes"),
        ("paper", "as in the paper", "raw weights, only the listed eigenvalues"),
    ]
    key = _key((f"background:var(--{colour})", said) for _, said, colour in by_head.TYPES)
    body = f'<div class="figure-body" id="shares-chart">{"".join(rows)}{key}</div>'
    return toolbar(segmented("Which H", "count", counts, "acting", "shares-count")) + body


def exponents_section(subjects: Subjects) -> str:
    """Predicted and measured by layer, and against each other."""
    found = _explained(subjects)
    lines, clouds = [], []
    usable = [p for p in prediction.PREDICTIONS if all(p.name in subject.agreements for _, subject, _ in found)]
    now = {"against": usable[0].name if usable else ""}
    for index, subject, explanation in found:
        frame = explanation.frame()
        label = f"Predicted and measured exponents by layer, {subject.name}"

        def draw_lines(wide: float, frame: Any = frame, label: str = label) -> Drawing:
            return prediction.exponents_panel(frame, label=label, wide=wide)

        said = "Above zero the sub-layer sharpens, below it smooths. The band is one standard deviation over inputs."
        said += f" Steps are measured on the tokens “{explanation.policies[0]}”."
        svg = drawn(len(found), draw_lines, chart="exponents", model=index)
        lines.append(_panel(index, subject, svg, _reading(said)))
        columns = prediction.rows_of(frame)
        variants = []
        for series in usable:
            predicted, measured = columns[series.name], columns["measured"]
            said = f"Predicted against measured, {subject.name}"

            def draw(wide: float, x: Any = predicted, y: Any = measured, i: int = index, said: str = said) -> Drawing:
                return prediction.agreement_panel(x, y, model_colour(i), label=said, wide=wide)

            svg = drawn(len(found), draw, chart="agreement", model=index, against=series.name)
            note = _reading(prediction.agreement_note(subject.agreements[series.name]))
            variants.append(shown_when(now, svg + note, against=series.name))
        clouds.append(_panel(index, subject, *variants))
    key = "".join(
        f'<span title="{escape(s.meaning)}">{prediction.line_key(s).html("sample")}{escape(s.title)}</span>'
        for s in prediction.SERIES
    )
    choices = [(series.name, series.title, series.meaning) for series in usable]
    return (
        f'{_panels(len(found), "exponent-charts", lines)}<p class="key">{key}</p>'
        + toolbar(segmented("Predicted by", "against", choices, now["against"], "exponents-against"))
        + _panels(len(found), "agreement-charts", clouds)
    )


def heads_section(subjects: Subjects) -> str:
    """Heat maps over layers and heads."""
    found = _explained(subjects)
    tables = {index: by_head.head_tables(explanation) for index, _, explanation in found}
    most, below, above = by_head.colour_range([t["exponent"] for t in tables.values() if "exponent" in t])
    choices = [(view, title, "") for view, title in by_head.TITLES.items() if any(view in t for t in tables.values())]
    now = {"view": choices[0][0]}
    bars = {
        "exponent": colour_bar("diverging", *by_head.range_text(most, below, above), middle="0"),
        "entropy": colour_bar("sequential", "0: one token", "1: all tokens alike"),
    }
    panels = []
    for index, subject, _ in found:
        variants = []
        for view, table in tables[index].items():
            label = f"{by_head.TITLES[view]} of every layer and head, {subject.name}"

            def draw(wide: float, table: Any = table, view: str = view, label: str = label) -> Drawing:
                return by_head.heads_panel(table, view, most, label=label, wide=wide)

            variants.append(shown_when(now, drawn(len(found), draw, chart="heads", model=index, view=view), view=view))
        panels.append(_panel(index, subject, *variants))
    scale = "".join(shown_when(now, bar, view=view) for view, bar in bars.items())
    return toolbar(segmented("Show", "view", choices, now["view"], "heads-view")) + (
        f'<div class="figure-body">{scale}</div>' + _panels(len(found), "heads-charts", panels)
    )


def colour_bar(ramp: str, low: str, high: str, middle: str = "") -> str:
    """What the colours mean, from one end to the other."""
    inside = f"<b>{escape(middle)}</b>" if middle else ""
    return (
        f'<div class="colour-bar"><span>{escape(low)}</span><i class="ramp-{ramp}">{inside}</i>'
        f"<span>{escape(high)}</span></div>"
    )


# ---------------------------------------------------------------------------------------------- tokens


def tokens_section(subjects: Subjects) -> str:
    """One example on its way through the layers."""
    viewed = [(i, subject, subject.tokens) for i, subject in enumerate(subjects) if subject.tokens is not None]
    deepest = max(len(view.points) for _, _, view in viewed)
    now = {"layer": str(deepest - 1), "scale": "shared"}
    far = by_token.distance_scale([view for _, _, view in viewed])
    picture = next((view.picture for _, _, view in viewed if view.picture), None)
    panels = [
        f'<div class="panel" data-model="{index}">{_token_panel(index, subject, view, far, deepest, now)}</div>'
        for index, subject, view in viewed
    ]
    said = ["input", *(str(layer) for layer in range(deepest - 1))]
    scales = [("shared", "one scale for all", ""), ("own", "each layer its own", "")]
    image = f'<img src="{escape(picture)}" alt="the example" class="thumbnail">' if picture else ""
    bars = (
        f'<div class="bars">{image}<div>distance from the mean token, ‖x − x̄‖ / ‖x̄‖'
        f"{colour_bar('sequential', 'near', 'far')}</div><div>cosine similarity"
        f"{colour_bar('alike', '−1', '1', middle='0')}</div></div>"
    )
    controls = toolbar(
        slider("After layer", "layer", said, deepest - 1, "tokens-layer"),
        segmented("Colours", "scale", scales, "shared", "tokens-scale"),
    )
    return controls + bars + _panels(len(viewed), "token-views", panels)


def _token_panel(index: int, subject: Subject, view: TokenView, far: float, deepest: int, now: dict[str, str]) -> str:
    last = len(view.points) - 1
    parts, words = [], ""
    if not view.grid:  # the words stand there once; the script changes the colours that they stand on
        labels = view.labels or [str(i) for i in range(view.distance.shape[1])]
        shown = by_token.levels(view, last, far)
        spans = "".join(
            f'<span class="q{int(level, 16)}">{escape(t)}</span>' for t, level in zip(labels, shown, strict=True)
        )
        levels = {
            scale: " ".join(by_token.levels(view, at, most) for at in range(last + 1))
            for scale, most in (("shared", far), ("own", None))
        }
        words = (
            '<div class="token-text square" tabindex="0" role="group" aria-label="tokens coloured by their distance '
            f'from the mean token" data-shared="{levels["shared"]}" data-own="{levels["own"]}">{spans}</div>'
        )
    for at in range(last + 1):
        layer = str(at) if at < last else "|".join(map(str, range(at, deepest)))
        alike = _symmetric(
            by_token.similarity(view, at), f"alike-{index}-{at}", "cosine similarity of every pair of tokens"
        )
        maps = ""
        if view.grid:
            alt = "patches coloured by their distance from the mean token"
            maps = "".join(
                shown_when(now, _pixels(by_token.patches(view, at, most), alt), layer=layer, scale=scale)
                for scale, most in (("shared", far), ("own", None))
            )
        ratio, cosine = number_text(by_token.ratio(view, at)), number_text(by_token.mean_cosine(view, at), 2)
        said = f"HFC/LFC {ratio}, mean cosine {cosine} of the tokens shown."
        parts.append((layer, f"{subject.name}, {view.points[at]}", maps, alike, said))
    heads = "".join(shown_when(now, _heading(index, title), layer=layer) for layer, title, *_ in parts)
    left = words or "".join(maps for _, _, maps, _, _ in parts)
    right = "".join(shown_when(now, alike, layer=layer) for layer, _, _, alike, _ in parts)
    notes = "".join(shown_when(now, _reading(said), layer=layer) for layer, *_, said in parts)
    return f'{heads}<div class="token-pair"><div>{left}</div><div>{right}</div></div>{notes}'


def _pixels(pixels: Any, alt: str) -> str:
    address = base64.b64encode(png(pixels)).decode()
    return f'<img class="pixels square" alt="{escape(alt)}" src="data:image/png;base64,{address}">'


def _symmetric(pixels: Any, name: str, alt: str) -> str:
    """Half of a symmetric picture, and its mirror image: half the bytes."""
    size = len(pixels)
    address = base64.b64encode(png(pixels, clear=~np.tri(size, dtype=bool))).decode()
    return (
        f'<svg class="pixels square{" fine" if size > 300 else ""}" viewBox="0 0 {size} {size}" role="img" '
        f'aria-label="{escape(alt)}"><image id="{name}" width="{size}" height="{size}" '
        f'href="data:image/png;base64,{address}"/><use href="#{name}" transform="matrix(0 1 1 0 0 0)"/></svg>'
    )


_CHARTS: dict[str, Callable[[Subjects], str]] = {
    "depth": depth_section,
    "steps": steps_section,
    "spectra": spectra_section,
    "histograms": histograms_section,
    "shares": shares_section,
    "exponents": exponents_section,
    "heads": heads_section,
    "tokens": tokens_section,
}
