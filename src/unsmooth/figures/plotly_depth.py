"""Curves by depth, the form of the paper's Figure 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unsmooth.errors import MissingExtraError, OptionError, PointError
from unsmooth.metrics.registry import METRICS

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.analysis import Measurement

# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Half steps: the stream between attention and MLP lies between two layers.
_STEP = {"pre": 0.0, "mid": 0.5, "post": 1.0}


def depth_curves(measurements: Mapping[str, Measurement] | Measurement, tokens: str | None = None) -> Any:
    """A plotly figure: each metric along the residual stream, one line per model, a band of one standard deviation.

    Args:
        measurements: one measurement, or several by the names to show.
        tokens: the token policy to show; the first one measured by default.
    """
    try:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise MissingExtraError.needed("plotly", "report", "drawing figures") from error

    named = measurements if isinstance(measurements, Mapping) else {"": measurements}
    first = next(iter(named.values()))
    metrics = first.about.settings.metrics
    policy = tokens or first.about.settings.tokens[0]
    figure = make_subplots(rows=1, cols=len(metrics), subplot_titles=[METRICS[m].title for m in metrics])
    for number, (name, measurement) in enumerate(named.items()):
        colour = COLOURS[number % len(COLOURS)]
        for column, metric in enumerate(metrics, 1):
            curve = _curve(measurement, metric, policy)
            band = [*(curve["mean"] + curve["std"]), *(curve["mean"] - curve["std"])[::-1]]
            around = [*curve["depth"], *curve["depth"][::-1]]
            figure.add_trace(
                go.Scatter(
                    x=around, y=band, fill="toself", fillcolor=colour, opacity=0.15, line_width=0, hoverinfo="skip",
                    showlegend=False, legendgroup=name,
                ),
                row=1, col=column,
            )  # fmt: skip
            figure.add_trace(
                go.Scatter(
                    x=curve["depth"], y=curve["mean"], name=name, legendgroup=name, mode="lines+markers",
                    line={"color": colour, "width": 2}, marker={"size": 4}, customdata=curve["point"],
                    showlegend=bool(name) and column == 1,
                    hovertemplate="%{customdata}<br>%{y:.4g}<extra>" + name + "</extra>",
                ),
                row=1, col=column,
            )  # fmt: skip
    figure.update_xaxes(title_text="layer")
    figure.update_layout(
        template="plotly_white", height=340, width=330 * len(metrics), margin={"l": 50, "r": 20, "t": 50, "b": 45},
        legend={"orientation": "h", "y": -0.25},
    )  # fmt: skip
    return figure


def _curve(measurement: Measurement, metric: str, policy: str) -> pd.DataFrame:
    """The residual stream's values in order of depth; a layer's input is depth i, its output depth i + 1."""
    frame = measurement.frame(full=True)
    policies = measurement.about.settings.tokens
    if policy not in policies:
        raise OptionError.unknown("token policy of this measurement", policy, policies)
    frame = frame[(frame["metric"] == metric) & (frame["tokens"] == policy) & (frame["kind"] == "residual")].copy()
    if frame.empty:
        raise PointError("no point of the residual stream was measured: measure with points='residual' or 'all'")
    step = frame["point"].str.rsplit(".", n=1).str[-1].map(_STEP).fillna(0.0)
    frame["depth"] = frame["layer"].fillna(0).astype(float) + step
    return frame.drop_duplicates("depth").sort_values("depth", kind="stable")
