"""Measurements as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from unsmooth.measure.changes import READINGS
from unsmooth.measure.registry import METRICS

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.measure import Measurement


WIDE = 125  # columns of a terminal that can show what each sub-layer changed


def show(measurement: Measurement, console: Console) -> None:
    """Print everything a person wants to see of a measurement."""
    for policy in measurement.about["settings"]["tokens"]:
        console.print(by_layer(measurement, policy, steps=console.width >= WIDE))
    for reading in READINGS:
        if any(change.reading == reading for change in measurement.changes):
            console.print(by_kind(measurement, reading))
    console.print(definitions(measurement))


def by_layer(measurement: Measurement, policy: str, steps: bool = True) -> Table:
    """One row per layer: the metrics of its output and, with `steps`, what attention and MLP changed.

    When the residual stream was not measured as a whole: one row per point.
    """
    frame = measurement.frame()
    frame = frame[frame["tokens"] == policy]
    wide = frame.pivot_table(index="point", columns="metric", values=["mean", "std"], sort=False)
    points = list(wide.index)
    layers = measurement.about["model"]["layers"]
    full = all(f"blocks.{i}.{name}" in points for i in range(layers) for name in ("mid", "post"))
    metrics = measurement.about["settings"]["metrics"]
    table = Table(title=f"{_subject(measurement)}, tokens: {policy}", title_justify="left")
    table.add_column("layer" if full else "point", justify="right" if full else "left")
    for metric in metrics:
        table.add_column(METRICS[metric].title, justify="right")
        if full and steps:
            table.add_column("attn", justify="right", style="dim")
            table.add_column("mlp", justify="right", style="dim")
    if full:
        _layer_rows(table, wide, metrics, layers, steps)
    else:
        for point in points:
            table.add_row(point, *(_value(wide, point, metric) for metric in metrics))
    return table


def by_kind(measurement: Measurement, reading: str) -> Table:
    """The paper's Tables 1–3: one row per kind of layer."""
    frame = measurement.change_by_kind(reading)
    table = Table(title=f"Change by kind of layer, {reading} reading", title_justify="left")
    table.add_column("kind")
    table.add_column("tokens")
    metrics = measurement.about["settings"]["metrics"]
    for metric in metrics:
        table.add_column(METRICS[metric].title, justify="right")
    for (kind, policy), rows in frame.groupby(["kind", "tokens"], sort=False):
        cells = rows.set_index("metric")
        table.add_row(
            str(kind),
            str(policy),
            *(f"{cells.at[m, 'mean']:+.4f} ± {cells.at[m, 'std']:.4f}" for m in metrics),
        )
    return table


def definitions(measurement: Measurement) -> RenderableType:
    """What the numbers mean, and whatever must be said about them."""
    known = measurement.about["definitions"]
    lines = [f"{name}: {text}" for name, text in {**known["metrics"], **known["tokens"], **known["changes"]}.items()]
    lines.append(f"{measurement.samples} samples; mean ± standard deviation over samples")
    lines += [f"note: {note}" for note in measurement.notes]
    if measurement.partial:
        lines.append("PARTIAL: interrupted before all data was measured")
    return Group(*(Text(line, style="bold red" if line.startswith("PARTIAL") else "dim") for line in lines))


def _layer_rows(table: Table, wide: pd.DataFrame, metrics: list[str], layers: int, steps: bool) -> None:
    def row(label: str, point: str, pre: str | None = None, mid: str = "") -> None:
        cells = []
        for metric in metrics:
            mean = wide["mean", metric]
            cells.append(_value(wide, point, metric))
            if steps:
                cells.append(f"{mean[mid] - mean[pre]:+.3g}" if pre in wide.index else "")
                cells.append(f"{mean[point] - mean[mid]:+.3g}" if mid else "")
        table.add_row(label, *cells)

    if "embed" in wide.index:
        row("embed", "embed")
    for i in range(layers):
        pre = f"blocks.{i}.pre"
        if pre not in wide.index:
            pre = f"blocks.{i - 1}.post" if i else "embed"
        row(str(i), f"blocks.{i}.post", pre, f"blocks.{i}.mid")
    if "final_norm" in wide.index:
        row("final", "final_norm")


def _value(wide: pd.DataFrame, point: str, metric: str) -> str:
    return f"{wide.at[point, ('mean', metric)]:.4g} ± {wide.at[point, ('std', metric)]:.2g}"


def _subject(measurement: Measurement) -> str:
    model, data = measurement.about["model"], measurement.about["data"]
    return f"{model.get('reference', model['class'])} on {data.get('reference', 'data')}"
