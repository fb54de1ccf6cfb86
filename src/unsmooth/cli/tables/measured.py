"""Measurements as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table

from unsmooth.cli.tables.layout import in_words, small_print, titled, written
from unsmooth.prose import counted

if TYPE_CHECKING:
    from unsmooth.analysis import Measurement

WIDE = 125  # columns of a terminal that can show what each sub-layer changed
SHORT = {"LayerNorm": "norm", "Attention": "attn", "MLP": "mlp"}


def show(measurement: Measurement, console: Console) -> None:
    """Print everything a person wants to see of a measurement."""
    from unsmooth.analysis.measuring.changes import READINGS

    for policy in measurement.about.settings.tokens:
        console.print(by_layer(measurement, policy, steps=console.width >= WIDE))
    for reading in READINGS:
        if any(change.reading == reading for change in measurement.changes):
            console.print(by_kind(measurement, reading))
    console.print(definitions(measurement))
    console.print(in_words(found_in(measurement)))


def found_in(measurement: Measurement) -> list[str]:
    """What the features do from the first layer to the last, in sentences; nothing where these were not measured."""
    from unsmooth.analysis import Subject
    from unsmooth.page.course import leading_metrics
    from unsmooth.page.words.findings import findings

    points = {cell.point for cell in measurement.cells}
    whole = points & {"embed", "blocks.0.pre"} and f"blocks.{measurement.about.model.layers - 1}.post" in points
    subject = Subject(measurement.about.model.name, measurement)
    if not whole or not leading_metrics([subject]):
        return []
    return [found.text() for found in findings([subject]) if found.about in ("model", "outliers", "certainty")]


def by_layer(measurement: Measurement, policy: str, steps: bool = True) -> Table:
    """One row per layer: the metrics of its output and, with `steps`, what each of its modules changed.

    When the residual stream was not measured as a whole: one row per point.
    """
    from unsmooth.analysis.measuring.cells import Cell
    from unsmooth.analysis.measuring.changes import BLOCK_STEPS
    from unsmooth.metrics.registry import metric_named

    metrics = measurement.about.settings.metrics
    layers, placement = measurement.about.model.layers, measurement.about.model.placement
    points = list(dict.fromkeys(cell.point for cell in measurement.cells))
    stream = ("post",) if placement.startswith("parallel") else ("mid", "post")  # which has nothing between the two
    full = all(f"blocks.{i}.{name}" in points for i in range(layers) for name in stream)
    block = BLOCK_STEPS["residual", placement]
    inside = {f"blocks.{i}.{end}" for i in range(layers) for _, end, _ in block}
    if not (steps and full and len(block) > 1 and inside <= set(points)):
        block = ()
    table = Table(title=f"{_subject(measurement)}, tokens: {policy}", title_justify="left")
    table.add_column("layer" if full else "point", justify="right" if full else "left")
    for metric in metrics:
        table.add_column(metric_named(metric).title, justify="right")
        for *_, kind in block:
            table.add_column(SHORT[kind], justify="right", style="dim")
    for label, point in _rows(points, layers) if full else ((p, p) for p in points):
        cells = []
        for metric in metrics:
            value = {p: measurement.cells[Cell(p, metric, policy)] for p in points}
            cells.append(written(value[point].mean, metric_named(metric).digits, value[point].std, ".2g"))
            for start, end, _ in block:
                before = _at(points, label, start)
                cells.append(
                    written(value[_at(points, label, end)].mean - value[before].mean, "+.3g") if before else ""
                )
        table.add_row(label, *cells)
    return table


def by_kind(measurement: Measurement, reading: str) -> Table:
    """The paper's Tables 1–3: one row per kind of layer."""
    from unsmooth.analysis.measuring.cells import Change
    from unsmooth.analysis.measuring.changes import KINDS
    from unsmooth.metrics.registry import metric_named

    settings = measurement.about.settings
    titles = (metric_named(metric).title for metric in settings.metrics)
    names = ("kind", "tokens")
    table = titled(f"Change by kind of layer, {reading} reading", (*names, *titles), left=names)
    for kind in KINDS:
        for policy in settings.tokens:
            found = [measurement.changes.get(Change(reading, kind, metric, policy)) for metric in settings.metrics]
            cells = [written(moments.mean, "+.4f", moments.std, ".4f") for moments in found if moments is not None]
            if cells:
                table.add_row(kind, policy, *cells)
    return table


def definitions(measurement: Measurement) -> RenderableType:
    """What the numbers mean, and whatever must be said about them."""
    known = measurement.about.definitions
    readings = {change.reading for change in measurement.changes}
    changes = {name: text for name, text in known.changes.items() if name in readings}
    lines = [f"{name}: {text}" for name, text in {**known.metrics, **known.tokens, **changes}.items()]
    spread = "; mean ± standard deviation over samples" if measurement.samples > 1 else ""
    lines.append(f"{counted(measurement.samples, 'sample')}{spread}")
    return small_print(lines, measurement.notes, "measured" if measurement.partial else "")


def _rows(points: list[str], layers: int) -> list[tuple[str, str]]:
    """Label and point: the stream's beginning, the output of each layer, what the last normalisation gives."""
    rows = [("embed", "embed"), *((str(i), f"blocks.{i}.post") for i in range(layers)), ("final", "final_norm")]
    return [row for row in rows if row[1] in points]


def _at(points: list[str], layer: str, name: str) -> str:
    """A point of a layer; what the layer before gave stands for an input that has no name of its own; else ""."""
    from unsmooth.analysis.measuring.cells import same_state

    own = f"blocks.{layer}.{name}"
    return next((p for p in (own, same_state(own)) if p in points), "") if layer.isdigit() else ""


def _subject(measurement: Measurement) -> str:
    return f"{measurement.about.model.name} on {measurement.about.data.reference or 'data'}"
