"""Explanations as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from unsmooth.explain import Explanation

_LAYER_COLUMNS = (
    # column of by_layer, heading, format
    ("exponent", "γ", "+.3f"),
    ("small_step", "γ small step", "+.3f"),
    ("measured_ratio", "measured Δlog HFC/LFC", "+.3f"),
    ("agree", "sign agrees", ".0%"),
    ("log_rho_hfc", "log ρ_H", "+.3f"),
    ("measured_hfc", "measured log HFC gain", "+.3f"),
    ("type1_heads", "type (1) heads", ".0%"),
    ("type2_heads", "type (2) heads", ".0%"),
    ("gap", "gap of A", ".2f"),
    ("relative_entropy", "entropy/log n", ".2f"),
    ("alignment", "alignment", ".3f"),
)


def show(explanation: Explanation, console: Console) -> None:
    """Print everything a person wants to see of an explanation."""
    console.print(by_layer(explanation))
    console.print(eigenvalues(explanation))
    if "kind" in explanation.head_frame():
        for kind in ("paper_kind", "kind"):
            console.print(types(explanation, kind))
    console.print(predictions(explanation))
    console.print(footnotes(explanation))


def by_layer(explanation: Explanation) -> Table:
    """One row per layer: exponents beside what was measured, means over inputs."""
    frame = explanation.by_layer()
    columns = [c for c in _LAYER_COLUMNS if c[0] in frame]
    table = Table(title=_subject(explanation), title_justify="left")
    table.add_column("layer", justify="right")
    for _, heading, _ in columns:
        table.add_column(heading, justify="right")
    for row in frame.to_dict("records"):
        table.add_row(str(int(row["layer"])), *(format(row[name], spec) for name, _, spec in columns))
    return table


def eigenvalues(explanation: Explanation) -> Table:
    """Where the eigenvalues of Σ_h H_h lie (by real part), before and after folding."""
    from unsmooth.explain.tables import eigenvalue_table

    frame = eigenvalue_table(explanation)
    table = Table(title="Eigenvalues of H = Σ_h H_h by real part", title_justify="left")
    for name in (
        "layer",
        "weights",
        "[−1, 0)",
        "(0, ∞)",
        "outside",
        "complex",
        "max Re",
        "min Re",
        "κ(V)",
        "departure",
    ):
        table.add_column(name, justify="left" if name == "weights" else "right")
    for row in frame.to_dict("records"):
        shares = [f"{row[name]:.0%}" for name in ("re_negative", "re_positive", "re_outside", "complex")]
        numbers = [
            f"{row['max_real']:+.3g}",
            f"{row['min_real']:+.3g}",
            f"{row['condition']:.2g}",
            f"{row['departure']:.2f}",
        ]
        label = "folded" if row["folded"] else "bare"
        table.add_row(str(row["layer"]), label, *(Text(cell) for cell in shares + numbers))
    return table


def types(explanation: Explanation, kind: str) -> Table:
    """The poster's Table 1."""
    frame = explanation.type_shares(kind)
    counted = (
        "as on the poster: bare H, step 1" if kind == "paper_kind" else "folded H, step s, zero eigenvalues counted"
    )
    first = frame.iloc[0]
    title = f"Dominating eigenvalues ({counted}): {first['count']} heads × inputs, {first['inputs']} inputs"
    table = Table(title=title, title_justify="left")
    for name in ("", "share", "95 % interval", "neither endpoint"):
        table.add_column(name, justify="right" if name else "left")
    for row in frame.to_dict("records"):
        interval = f"{row['low']:.1%} – {row['high']:.1%}"
        table.add_row(f"{row['type']} {row['kind']}", f"{row['share']:.2%}", interval, f"{row['neither']:.2%}")
    return table


def predictions(explanation: Explanation) -> Table:
    """How well each predictor does, beside always naming the commoner sign."""
    frame = explanation.predictions()
    table = Table(title="Predicted against measured, per layer and input", title_justify="left")
    for name in (
        "predictor",
        "measured",
        "↑↑",
        "↑ but ↓",
        "↓ but ↑",
        "↓↓",
        "right sign",
        "majority",
        "Spearman",
        "95 %",
    ):
        table.add_column(name, justify="left" if name in ("predictor", "measured") else "right")
    for row in frame.to_dict("records"):
        counts = (str(row[name]) for name in ("both_up", "only_predicted_up", "only_measured_up", "both_down"))
        table.add_row(
            row["predictor"], row["measured"], *counts, f"{row['accuracy']:.0%}", f"{row['majority']:.0%}",
            f"{row['spearman']:+.2f}", f"{row['spearman_low']:+.2f} – {row['spearman_high']:+.2f}",
        )  # fmt: skip
    return table


def footnotes(explanation: Explanation) -> RenderableType:
    """What the numbers mean, and whatever must be said about them."""
    definitions: dict[str, Any] = explanation.about["definitions"]
    wanted = ("exponent", "small_step", "step", "log_rho_hfc", "measured_hfc", "measured_ratio", "frozen_hfc",
              "mean_step_hfc", "alignment", "departure", "condition")  # fmt: skip
    lines = [f"{name}: {definitions[name]}" for name in wanted if name in definitions]
    lines.append(f"{explanation.inputs} inputs; means over inputs; intervals by drawing inputs")
    lines += [f"note: {note}" for note in explanation.notes]
    if explanation.partial:
        lines.append("PARTIAL: interrupted before all data was explained")
    return Group(*(Text(line, style="bold red" if line.startswith("PARTIAL") else "dim") for line in lines))


def _subject(explanation: Explanation) -> str:
    model, data = explanation.about["model"], explanation.about["data"]
    return f"{model.get('reference', model['class'])} on {data.get('reference', 'data')}, {explanation.inputs} inputs"
