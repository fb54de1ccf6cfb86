"""Figures of the explanation: Figure 5, Figure 3, a phase diagram, and predicted against measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unsmooth.errors import MissingExtraError, OptionError
from unsmooth.figures.plotly_depth import COLOURS
from unsmooth.figures.text import number_text, percent_text

if TYPE_CHECKING:
    from torch import Tensor

    from unsmooth.analysis import Explanation

_BLUE, _RED = COLOURS[0], COLOURS[1]
_MARGIN = {"l": 60, "r": 20, "t": 60, "b": 50}


def eigenvalue_distribution(explanations: Mapping[str, Explanation] | Explanation, heads: bool = False) -> Any:
    """Figure 5: eigenvalues of H in the complex plane and their real parts, before and after folding.

    Args:
        explanations: one explanation, or several by the names to show (one column each).
        heads: the eigenvalues of every head's H_h instead of the layer's Σ_h H_h.
    """
    _, subplots = _plotly()
    named = explanations if isinstance(explanations, Mapping) else {_title(explanations): explanations}
    folds = any(row["folded"] for e in named.values() for row in e.spectra)
    rows = [(False, "bare H")] + ([(True, "folded H")] if folds else [])
    columns = len(named) * 2
    titles = [f"{text}<br>{name}" for _, text in rows for name in named for _ in (0, 1)]
    figure = subplots.make_subplots(
        rows=len(rows), cols=columns, subplot_titles=titles, horizontal_spacing=0.22 / columns, vertical_spacing=0.2
    )
    for number, explanation in enumerate(named.values()):
        frame = explanation.spectrum_frame()
        frame = frame[(frame["head"] >= 0) if heads else (frame["head"] == -1)]
        for row, (folded, _) in enumerate(rows, 1):
            part = frame[frame["folded"] == folded]
            _spectrum_panels(figure, part, row, 2 * number + 1, scale=number == 0 and row == 1)
    figure.update_layout(
        template="plotly_white",
        barmode="overlay",
        bargap=0.02,
        width=120 + 330 * columns,
        height=140 + 330 * len(rows),
        margin={**_MARGIN, "t": 110},
        title={
            "text": "Eigenvalues of H: blue [−1, 0) sharpens, red (0, ∞) smooths, grey neither (below −1, or 0)",
            "x": 0.02,
        },
    )
    return figure


def _spectrum_panels(figure: Any, part: Any, row: int, column: int, scale: bool) -> None:
    """Eigenvalues in the complex plane, and beside it the histogram of their real parts."""
    go, _ = _plotly()
    plane, beside, real = {"row": row, "col": column}, {"row": row, "col": column + 1}, part["real"]
    colour = {"color": part["layer"], "colorscale": "Viridis", "size": 3, "opacity": 0.6}
    if scale:
        colour |= {"showscale": True, "colorbar": {"title": "layer", "len": 0.5}}
    points = go.Scattergl(
        x=real, y=part["imag"], mode="markers", marker=colour, showlegend=False,
        customdata=part["layer"], hovertemplate="layer %{customdata}<br>%{x:.3g} + %{y:.3g}i<extra></extra>",
    )  # fmt: skip
    figure.add_trace(points, **plane)
    for left, right, shade in ((-1, 0, _BLUE), (0, max(float(real.max()) * 1.05, 0.1), _RED)):
        figure.add_vrect(x0=left, x1=right, fillcolor=shade, opacity=0.07, line_width=0, **plane)
    largest = float((real**2 + part["imag"] ** 2).max() ** 0.5)
    side = real.abs() > 1e-12 * largest  # what is 0 up to rounding has none
    sides = ((side & (real >= -1) & (real < 0), _BLUE), (side & (real > 0), _RED))
    for chosen, shade in ((~side | (real < -1), "grey"), *sides):
        bars = go.Histogram(x=real[chosen], marker_color=shade, showlegend=False, xbins=_bins(real))
        figure.add_trace(bars, **beside)
    figure.update_xaxes(title_text="Re λ", **plane)
    figure.update_yaxes(title_text="Im λ", **plane)
    if float(part["imag"].abs().max()) < 1e-4 * largest:  # a real spectrum: no axis full of rounding
        figure.update_yaxes(range=[-largest, largest], **plane)
    figure.update_xaxes(title_text="Re λ", **beside)
    figure.update_yaxes(title_text="eigenvalues", type="log", **beside)


def norm_impact(
    seeds: Iterable[int] = range(20), layers: int = 128, x: Tensor | None = None, tokens: int = 64, dim: int = 32
) -> Any:
    """Figure 3: HFC/LFC against iterations, Pre-/Post-LN × sign of its weights × mode, both forms of H.

    Lines are means of log10 over seeds, bands one standard deviation. `x` starts from a real image's patches
    (`unsmooth.analysis.patches`) instead of random tokens.
    """
    import torch

    from unsmooth.theory.scenario import FORMS, NORMS, curve, scenarios

    go, subplots = _plotly()
    listed = list(seeds)
    if not listed:
        raise OptionError("seeds must name at least one seed")
    names = {None: "no LN", "pre": "Pre-LN", "post": "Post-LN"}
    titles = [f"{names[norm]}, {form} H" for form in FORMS for norm in NORMS]
    figure = subplots.make_subplots(
        rows=2, cols=3, subplot_titles=titles, shared_xaxes=True, vertical_spacing=0.1, horizontal_spacing=0.05
    )
    shown: set[str] = set()
    steps = list(range(layers + 1))
    for s in scenarios():
        curves = torch.stack([curve(s, seed, layers, x, tokens, dim).log10() for seed in listed])
        mean, spread = curves.mean(0), curves.std(0) if len(listed) > 1 else torch.zeros(layers + 1)
        label = f"{s.mode}, {'+' if s.sign > 0 else '−'}γ"
        where = {"row": FORMS.index(s.form) + 1, "col": NORMS.index(s.norm) + 1}
        colour = _BLUE if s.mode == "sharpening" else _RED
        band = [*(mean + spread).tolist(), *(mean - spread).flip(0).tolist()]
        figure.add_trace(
            go.Scatter(x=steps + steps[::-1], y=band, fill="toself", fillcolor=colour, opacity=0.1, line_width=0,
                       hoverinfo="skip", showlegend=False, legendgroup=label),
            **where,
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(x=steps, y=mean.tolist(), name=label, legendgroup=label, showlegend=label not in shown,
                       line={"color": colour, "width": 2, "dash": "solid" if s.sign > 0 else "dash"}),
            **where,
        )  # fmt: skip
        shown.add(label)
    figure.update_xaxes(title_text="iteration", row=2)
    figure.update_yaxes(title_text="log10 HFC/LFC", col=1)
    figure.update_layout(
        template="plotly_white", width=1050, height=640, margin=_MARGIN, legend={"orientation": "h", "y": -0.12},
        title={"text": f"One layer iterated, {len(listed)} seeds", "x": 0.02},
    )  # fmt: skip
    return figure


def phase_diagram(
    centres: Sequence[float] | None = None,
    temperatures: Sequence[float] | None = None,
    width: float = 0.5,
    seeds: Iterable[int] = range(4),
) -> Any:
    """γ over the centre of H's eigenvalue range and the attention's temperature; the black line is γ = 0."""
    import numpy as np

    from unsmooth.theory.phase import phase_grid

    go, _ = _plotly()
    across = np.linspace(-2.75, 1.25, 65).tolist() if centres is None else list(centres)
    down = np.geomspace(0.03, 10, 30).tolist() if temperatures is None else list(temperatures)
    grid = phase_grid(across, down, width, seeds=seeds).numpy()
    bound = float(np.quantile(np.abs(grid[np.isfinite(grid)]), 0.98))
    figure = go.Figure(
        [
            go.Heatmap(x=across, y=down, z=grid, colorscale="RdBu", zmid=0, zmin=-bound, zmax=bound,
                       colorbar={"title": "γ, nats per layer"}),
            go.Contour(x=across, y=down, z=np.sign(grid), contours={"start": 0, "end": 0, "coloring": "none"},
                       line={"color": "black", "width": 2}, showscale=False, hoverinfo="skip"),
        ]
    )  # fmt: skip
    for text, place in (("sharpening", -0.5), ("smoothing", 0.75)):
        figure.add_annotation(x=place, y=0, yref="y domain", yshift=14, text=text, showarrow=False)
    figure.update_xaxes(title_text=f"centre of λ_H's range (width {width:g})")
    figure.update_yaxes(title_text="attention temperature", type="log", exponentformat="power")
    figure.update_layout(
        template="plotly_white", width=760, height=520, margin=_MARGIN,
        title={"text": "Which regime one head is in: blue sharpens (γ > 0), red smooths (γ < 0)", "x": 0.02},
    )  # fmt: skip
    return figure


def predicted_against_measured(explanation: Explanation) -> Any:
    """γ, its small-step form and the exact linear map beside what each attention sub-layer did, per input."""
    go, subplots = _plotly()
    pairs = (
        ("exponent", "measured_ratio", "γ"),
        ("small_step", "measured_ratio", "small-step γ"),
        ("log_rho_hfc", "measured_hfc", "log ρ_H"),
        ("frozen_hfc", "measured_hfc", "exact linear map"),
    )
    hover = "layer %{customdata[0]}, input %{customdata[1]}<br>%{x:.3g}, %{y:.3g}<extra></extra>"
    frame = explanation.frame()
    titles = []
    for predicted, measured, text in pairs:
        found = explanation.agreement(predicted, measured)
        titles.append(
            f"{text}<br>right sign {percent_text(found.accuracy)} (majority {percent_text(found.majority)}), "
            f"ρ {number_text(found.spearman, 2)}"
        )
    figure = subplots.make_subplots(rows=1, cols=4, subplot_titles=titles, horizontal_spacing=0.06)
    for column, (predicted, measured, text) in enumerate(pairs, 1):
        marker = {"color": frame["layer"], "colorscale": "Viridis", "size": 6, "showscale": column == 1,
                  "colorbar": {"title": "layer"}}  # fmt: skip
        figure.add_trace(
            go.Scatter(x=frame[predicted], y=frame[measured], mode="markers", marker=marker, showlegend=False,
                       customdata=frame[["layer", "input"]], hovertemplate=hover),
            row=1, col=column,
        )  # fmt: skip
        figure.add_hline(y=0, line={"color": "grey", "width": 1}, row=1, col=column)
        figure.add_vline(x=0, line={"color": "grey", "width": 1}, row=1, col=column)
        figure.update_xaxes(title_text=f"predicted: {text}", row=1, col=column)
    figure.update_yaxes(title_text="measured Δ log HFC/LFC", col=1)
    figure.update_yaxes(title_text="measured log HFC gain", col=3)
    figure.update_layout(
        template="plotly_white", width=1360, height=420, margin={**_MARGIN, "t": 90},
        title={"text": _title(explanation), "x": 0.02},
    )  # fmt: skip
    return figure


def _plotly() -> tuple[Any, Any]:
    try:
        import plotly.graph_objects as go
        from plotly import subplots
    except ImportError as error:
        raise MissingExtraError.needed("plotly", "report", "drawing figures") from error
    return go, subplots


def _title(explanation: Explanation) -> str:
    return explanation.about.model.name


def _bins(values: Any) -> dict[str, float]:
    low, high = float(values.min()), float(values.max())
    size = max((high - low) / 60, 1e-9)
    # an edge at 0, so that no bar mixes the two signs
    return {"start": (low // size) * size, "end": high + size, "size": size}
