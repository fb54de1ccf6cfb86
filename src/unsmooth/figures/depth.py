"""Static figures of measurements: curves by depth, and the steps of the sub-layers."""

from __future__ import annotations

import math
from typing import Any

from unsmooth.analysis.changes import BLOCK_STEPS
from unsmooth.figures.drawing import DASHES, KIND_COLOURS, MODEL_COLOURS, SOFT, Drawing, Panel, span

_STEP = {"pre": 0.0, "mid": 0.5, "post": 1.0}


def depth_figure(data: dict[str, Any]) -> Drawing:
    """Figure 4's form: one panel per family of metrics, models overlaid, a band of one standard deviation."""
    families, policy = data["families"], data["tokens"][0]
    drawing = Drawing(40 + 320 * len(families), 290 + 16 * math.ceil(len(data["models"]) / 4))
    for column, family in enumerate(families):
        metric = family["metrics"][0]
        curves = [curve(model, metric, policy) for model in data["models"]]
        edges = [v for c in curves for _, m, s in c for v in (m - s, m + s)]
        deepest = max((depth for c in curves for depth, _, _ in c), default=1.0)
        panel = Panel(drawing, 55 + 320 * column, 32, 255, 200, (0.0, deepest), span(edges))
        panel.axes(data["metrics"][metric]["title"], "layer")
        for index, found in enumerate(curves):
            colour = MODEL_COLOURS[index % 6]
            upper = [(panel.x(x), panel.y(m + s)) for x, m, s in found]
            lower = [(panel.x(x), panel.y(m - s)) for x, m, s in found]
            drawing.area([*upper, *lower[::-1]], colour, 0.13)
            drawing.line([(panel.x(x), panel.y(m)) for x, m, _ in found], colour, 2, DASHES[index % 6])
    legend(drawing, [model["name"] for model in data["models"]], 286)
    return drawing


def curve(model: dict[str, Any], metric: str, policy: str) -> list[tuple[float, float, float]]:
    """(depth, mean, std) along the residual stream."""
    values = model["values"][policy][metric]
    found: dict[float, tuple[float, float, float]] = {}
    for point, mean, std in zip(model["points"], values["mean"], values["std"], strict=True):
        _, _, name = point.rpartition(".")
        if point == "embed" or name in _STEP:
            depth = 0.0 if point == "embed" else int(point.split(".")[1]) + _STEP[name]
            found.setdefault(depth, (depth, math.nan if mean is None else mean, std or 0.0))
    return sorted(found.values())


def legend(drawing: Drawing, names: list[str], y: float) -> None:
    """Line samples and names, four to a row."""
    for index, name in enumerate(names):
        x, row = 55 + 240 * (index % 4), y + 16 * (index // 4)
        drawing.line([(x, row - 4), (x + 28, row - 4)], MODEL_COLOURS[index % 6], 2, DASHES[index % 6])
        drawing.text(x + 34, row, name)


def steps_figure(model: dict[str, Any], data: dict[str, Any]) -> Drawing:
    """The waterfall of the residual reading for the first metric."""
    metric, policy = data["families"][0]["metrics"][0], data["tokens"][0]
    values = dict(zip(model["points"], model["values"][policy][metric]["mean"], strict=True))
    bars = []
    block = BLOCK_STEPS["residual", model["placement"]]
    for layer in range(model["layers"]):
        for number, (start, end, kind) in enumerate(block):
            before, after = values.get(f"blocks.{layer}.{start}"), values.get(f"blocks.{layer}.{end}")
            if before is not None and after is not None:
                bars.append((layer + (number + 0.5) / len(block), before, after, kind))
    drawing = Drawing(760, 300)
    panel = Panel(
        drawing, 60, 32, 680, 200, (0.0, float(model["layers"])), span([v for _, a, b, _ in bars for v in (a, b)])
    )
    panel.axes(f"{model['name']}: {data['metrics'][metric]['title']}, step by step", "layer")
    half = 0.42 / len(block)
    for at, before, after, kind in bars:
        top, bottom = sorted((panel.y(before), panel.y(after)))
        left, right = panel.x(at - half), panel.x(at + half)
        drawing.rect(left, top, right - left, max(bottom - top, 1), KIND_COLOURS[kind])
        drawing.line(
            [(right, panel.y(after)), (panel.x(min(at + 0.58 / len(block), panel.x_domain[1])), panel.y(after))], SOFT
        )
    for i, kind in enumerate(dict.fromkeys(kind for _, _, kind in block)):
        drawing.rect(60 + 110 * i, 279, 10, 10, KIND_COLOURS[kind])
        drawing.text(76 + 110 * i, 288, kind)
    return drawing
