"""A model over its training on one page: curves over steps, and a slider through the checkpoints."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple, TypeVar

from unsmooth.analysis.track import Checkpoint
from unsmooth.figures.axes import line_sample, panel, span
from unsmooth.figures.by_depth import depth_of, depth_panel, stream
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.palette import model_colour, model_dash
from unsmooth.metrics.registry import metric_named
from unsmooth.page.build import asset, page_head
from unsmooth.page.words.glossary import explained
from unsmooth.page.words.phrases import samples_said

Item = TypeVar("Item")
MOST_LAYERS = 5  # curves in a panel
WIDE, NARROW = 1072.0, 346.0


class _Section(NamedTuple):
    title: str
    said: str
    content: str


def track_page(checkpoints: Sequence[Checkpoint], title: str, command: str | None = None) -> str:
    """HTML that needs no other file; checkpoints are in the order of their steps."""
    script = f"(() => {{\n'use strict';\n{asset('track.js')}\n}})();"
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    first, last = checkpoints[0], checkpoints[-1]
    data = first.measurement.about.data.reference or "data in memory"
    about = (
        f"{len(checkpoints)} checkpoints, steps {first.step} to {last.step}, {samples_said(first.measurement)} of "
        f"the data “{data}”. Smoothing is described here, not judged."
    )
    sections = [_over_training(checkpoints), _along_depth(checkpoints)]
    if all(checkpoint.negative for checkpoint in checkpoints):
        sections.append(_eigenvalues(checkpoints))
    body = "".join(
        f'<section><h2><span class="number">{number}</span>{escape(name)}</h2><p class="lede">{escape(said)}</p>'
        f'<div class="figure">{content}</div></section>'
        for number, (name, said, content) in enumerate(sections, 1)
    )
    return (
        f"{page_head(title, allowed)}"
        f'<header class="masthead"><div class="brand"><b>unsmooth</b> track</div><h1>{escape(title)}</h1>'
        f'<p class="subject">{escape(about)}</p></header><main>{body}{_provenance(checkpoints, command)}'
        f"</main><footer>Made with unsmooth. This page holds its data and makes no request.</footer>"
        f"<script>{script}</script></body></html>\n"
    )


def _over_training(checkpoints: Sequence[Checkpoint]) -> _Section:
    settings = checkpoints[0].measurement.about.settings
    menus = _menu("metric", [(m, metric_named(m).title) for m in settings.metrics]) + _menu(
        "tokens", [(policy, policy) for policy in settings.tokens]
    )
    curves = "".join(
        f"<div {where}>{_at_both_widths(over_steps, _by_layer(checkpoints, metric, policy), metric)}"
        f"{_meaning(metric)}</div>"
        for metric, policy, where in _choices(checkpoints)
    )
    said = "Each curve is the output of one layer; the x-axis is the training step."
    return _Section("Over training", said, f'<div class="toolbar">{menus}</div>{curves}')


def _along_depth(checkpoints: Sequence[Checkpoint]) -> _Section:
    first, last = checkpoints[0], checkpoints[-1]
    panels = []
    for metric, policy, where in _choices(checkpoints):
        for number, checkpoint in enumerate(checkpoints):
            curves = [stream(c.measurement, metric, policy) for c in (first, checkpoint)]
            drawn = _at_both_widths(depth_panel, curves, [depth_of(first.measurement)] * 2)
            panels.append(f'<div {where} data-step="{number}">{drawn}</div>')
    steps = "|".join(str(checkpoint.step) for checkpoint in checkpoints)
    slider = (
        f'<div class="toolbar"><div class="field slider"><label for="step">Step</label><input id="step" type="range" '
        f'min="0" max="{len(checkpoints) - 1}" value="{len(checkpoints) - 1}" data-said="{steps}">'
        f'<output for="step">{last.step}</output></div></div>'
    )
    said = (
        f"The metric chosen above. Solid: the first checkpoint, step {first.step}. Dashed: the checkpoint that the "
        "slider chooses. "
        "Bands: ± 1 standard deviation over samples."
    )
    return _Section("Along the depth", said, slider + "".join(panels))


def _eigenvalues(checkpoints: Sequence[Checkpoint]) -> _Section:
    shares = {
        f"layer {layer}": [(float(c.step), c.negative[layer]) for c in checkpoints]
        for layer in _chosen(list(checkpoints[0].negative))
    }
    said = (
        "The share of a layer’s head eigenvalues, normalisation folded in, whose real part lies in [−1, 0), over "
        "training steps."
    )
    return _Section("Eigenvalues on the sharpening side", said, _at_both_widths(steps_panel, shares, "share"))


def _provenance(checkpoints: Sequence[Checkpoint], command: str | None) -> str:
    rows = "".join(
        f"<tr><td>{c.step}</td><td>{escape(c.reference)}</td>"
        f"<td>{escape((c.measurement.about.model.weights or 'not known')[:12])}</td></tr>"
        for c in checkpoints
    )
    made = f"<p>Made by <code>{escape(command)}</code></p>" if command else ""
    return (
        f"<section><h2>Provenance</h2>{made}<table><thead>"
        f"<tr><th>step</th><th>checkpoint</th><th>weights</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _choices(checkpoints: Sequence[Checkpoint]) -> list[tuple[str, str, str]]:
    """Every metric and token policy, and the attributes by which the menus find what is drawn of them."""
    settings = checkpoints[0].measurement.about.settings
    return [
        (metric, policy, f'data-metric="{escape(metric)}" data-tokens="{escape(policy)}"')
        for metric in settings.metrics
        for policy in settings.tokens
    ]


def _at_both_widths(draw: Callable[..., Drawing], *what: Any) -> str:
    """As wide as the page, and a narrow one for small screens."""
    return draw(*what, wide=WIDE, tall=300).html("wide") + draw(*what, wide=NARROW, tall=250).html("narrow")


def _meaning(metric: str) -> str:
    """What a metric is, in words."""
    said = explained(metric_named(metric).title)
    return f'<p class="caption">{said}</p>' if said else ""


def over_steps(
    curves: Mapping[str, Sequence[tuple[float, float]]], metric: str, *, wide: float = WIDE, tall: float = 300
) -> Drawing:
    """One metric over training steps, a curve for each layer."""
    return steps_panel(curves, metric_named(metric).title, wide=wide, tall=tall)


def steps_panel(
    curves: Mapping[str, Sequence[tuple[float, float]]], title: str, *, wide: float = WIDE, tall: float = 300
) -> Drawing:
    """Curves over training steps with a key below them."""
    xs = [x for curve in curves.values() for x, _ in curve]
    low, high = min(xs), max(xs)
    across = (low, high if high > low else low + 1)
    plot = panel(wide, tall, across, span([y for curve in curves.values() for _, y in curve]), title=title)
    plot.y_axis()
    plot.x_axis(whole=True)
    for index, curve in enumerate(curves.values()):
        line = plot.at(curve)
        plot.drawing.line(line, model_colour(index), 2, model_dash(index))
        plot.drawing.dots(line, model_colour(index), 5.5)
    each = 190 if wide > 2 * NARROW else 100
    in_a_row = max(1, int((wide - 44) / each))
    rows = math.ceil(len(curves) / in_a_row)
    found = grid([plot.drawing], across=1, bottom=7 + 17 * rows)
    for index, name in enumerate(curves):
        row, place = divmod(index, in_a_row)
        x, y = 44 + each * place, found.height - 6 - 17 * (rows - 1 - row)
        line_sample(found, x, y, model_colour(index), model_dash(index), name)
    return found


def _by_layer(checkpoints: Sequence[Checkpoint], metric: str, policy: str) -> dict[str, list[tuple[float, float]]]:
    """Over steps, at the outputs of a few layers from the first to the last."""
    stops = {stop.point: stop for stop in stream(checkpoints[0].measurement, metric, policy)}
    ends = [point for point in stops if point.endswith(".post")] or list(stops)
    values = [{s.point: s.mean for s in stream(c.measurement, metric, policy)} for c in checkpoints]
    return {
        point.replace("blocks.", "layer ").replace(".post", ""): [
            (float(c.step), found[point]) for c, found in zip(checkpoints, values, strict=True)
        ]
        for point in _chosen(ends)
    }


def _chosen(items: list[Item]) -> list[Item]:
    """A few of them, evenly from the first to the last."""
    if len(items) <= MOST_LAYERS:
        return items
    places = sorted({round(i * (len(items) - 1) / (MOST_LAYERS - 1)) for i in range(MOST_LAYERS)})
    return [items[place] for place in places]


def _menu(key: str, choices: Sequence[tuple[str, str]]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(said)}</option>' for value, said in choices)
    return (
        f'<div class="field"><label for="{key}">{key.capitalize()}</label>'
        f'<select id="{key}" autocomplete="off">{options}</select></div>'
    )
