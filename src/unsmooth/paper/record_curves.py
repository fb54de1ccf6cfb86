"""Curves by depth from the records of training runs, mean and standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from unsmooth.paper.records import TITLES, VARIANTS, Summary, percent

Curves = dict[str, list[list[float]]]  # metric -> one list by depth for each run


def line_styles(shares: Iterable[float]) -> Callable[[str, float], dict[str, Any]]:
    """A colour for each variant; solid for the largest share of the data, then dashes, then dots."""
    from unsmooth.figures.plotly_depth import COLOURS

    dashes = dict(zip(sorted(set(shares), reverse=True), ("solid", "dash", "dot"), strict=False))
    return lambda variant, share: {"color": COLOURS[VARIANTS.index(variant)], "dash": dashes.get(share, "dot")}


def record_curves(groups: dict[tuple[str, float], Curves]) -> Any:
    """A plotly figure, one panel per metric, one line per variant and share; None where plotly is not installed."""
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError:
        return None
    from unsmooth.metrics.registry import METRICS

    metrics = list(next(iter(groups.values())))
    figure = make_subplots(rows=1, cols=len(metrics), subplot_titles=[METRICS[m].title for m in metrics])
    style = line_styles(share for _, share in groups)
    for (variant, share), curves in groups.items():
        name = f"{TITLES[variant]}, {percent(share)} of the data"
        for column, metric in enumerate(metrics, 1):
            at = [s for values in zip(*curves[metric], strict=True) if (s := Summary.of(values))]
            figure.add_trace(
                go.Scatter(
                    x=list(range(1, len(at) + 1)), y=[s.mean for s in at],
                    error_y={"array": [s.std or 0.0 for s in at], "thickness": 1}, name=name, legendgroup=name,
                    showlegend=column == 1, mode="lines+markers", line=style(variant, share), marker={"size": 4},
                ),
                row=1, col=column,
            )  # fmt: skip
    figure.update_xaxes(title_text="after block")
    figure.update_layout(
        template="plotly_white", height=360, width=330 * len(metrics), legend={"orientation": "h", "y": -0.25}
    )
    return figure
