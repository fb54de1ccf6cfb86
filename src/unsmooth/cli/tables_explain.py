"""Explanations as tables for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from unsmooth.cli.tables import narrow_table, written
from unsmooth.page.words import counted

if TYPE_CHECKING:
    from unsmooth.analysis import Explanation

Columns = tuple[tuple[str, str, str], ...]

# A terminal of 80 columns shows every digit: short headings, and two tables where one would be too wide.
_PREDICTED = (
    # column of by_layer, heading, format
    ("exponent", "γ", "+.3f"),
    ("small_step", "γ small step", "+.3f"),
    ("measured_ratio", "measured Δlog HFC/LFC", "+.3f"),
    ("agree", "sign agrees", ".0%"),
    ("log_rho_hfc", "log ρ_H", "+.3f"),
    ("measured_hfc", "measured log HFC gain", "+.3f"),
)
_HEADS = (
    ("type1_heads", "type (1) heads", ".0%"),
    ("type2_heads", "type (2) heads", ".0%"),
    ("gap", "gap of A", ".2f"),
    ("relative_entropy", "entropy/log n", ".2f"),
    ("alignment", "alignment", ".3f"),
)
_EIGENVALUES = ("layer", "weights", "[−1, 0)", "(0, ∞)", "outside", "complex", "max Re", "min Re", "κ(V)", "departure")


def show(explanation: Explanation, console: Console) -> None:
    """Print everything a person wants to see of an explanation."""
    console.print(by_layer(explanation, _PREDICTED, _subject(explanation)))
    console.print(by_layer(explanation, _HEADS, "Heads, attention and tokens"))
    console.print(eigenvalues(explanation))
    if "kind" in explanation.head_frame():
        for kind in ("paper_kind", "kind"):
            console.print(types(explanation, kind))
    for measured in explanation.predictions()["measured"].unique():
        console.print(predictions(explanation, measured))
    console.print(footnotes(explanation))


def by_layer(explanation: Explanation, wanted: Columns, title: str) -> Table:
    """One row per layer, means over inputs."""
    frame = explanation.by_layer()
    columns = [c for c in wanted if c[0] in frame]
    table = narrow_table(title)
    table.add_column("layer", justify="right")
    for _, heading, _ in columns:
        table.add_column(heading, justify="right")
    for row in frame.to_dict("records"):
        table.add_row(str(int(row["layer"])), *(written(row[name], spec) for name, _, spec in columns))
    return table


def eigenvalues(explanation: Explanation) -> Table:
    """Where the eigenvalues of Σ_h H_h lie (by real part), before and after folding."""
    from unsmooth.analysis.tables import eigenvalue_table

    frame = eigenvalue_table(explanation)
    table = narrow_table("Eigenvalues of H = Σ_h H_h by real part")
    for name in _EIGENVALUES:
        table.add_column(name, justify="left" if name == "weights" else "right")
    for row in frame.to_dict("records"):
        shares = [f"{row[name]:.0%}" for name in ("re_negative", "re_positive", "re_outside", "complex")]
        numbers = [_real(row["max_real"]), _real(row["min_real"]), f"{row['condition']:.2g}", f"{row['departure']:.2f}"]
        label = "folded" if row["folded"] else "bare"
        table.add_row(str(row["layer"]), label, *(Text(cell) for cell in shares + numbers))
    return table


INTERVALS = (
    "; intervals say what other inputs would give: of shares by Student's t over inputs, of Spearman by drawing inputs "
    "with replacement; layers and heads are those of this model and do not vary"
)


def types(explanation: Explanation, kind: str) -> Table:
    """The poster's Table 1."""
    frame = explanation.type_shares(kind)
    how = "as on the poster: bare H, step 1" if kind == "paper_kind" else "folded H, step s, zero eigenvalues counted"
    first = frame.iloc[0]
    title = f"Dominating eigenvalues ({how}): {first['count']} heads × inputs, {counted(first['inputs'], 'input')}"
    table = narrow_table(title)
    for name in ("", "share", "95 % interval", "neither endpoint"):
        table.add_column(name, justify="right" if name else "left")
    for row in frame.to_dict("records"):
        interval = "one input" if math.isnan(row["low"]) else f"{row['low']:.1%} – {row['high']:.1%}"
        table.add_row(f"{row['type']} {row['kind']}", f"{row['share']:.2%}", interval, f"{row['neither']:.2%}")
    return table


def predictions(explanation: Explanation, measured: str) -> Table:
    """How well each predictor of one measured quantity does, beside always naming the commoner sign."""
    frame = explanation.predictions()
    table = narrow_table(f"Predicted against {measured}, per layer and input")
    for name in ("predictor", "↑↑", "↑ but ↓", "↓ but ↑", "↓↓", "right", "majority", "Spearman", "95 %"):
        table.add_column(name, justify="left" if name == "predictor" else "right")
    for row in frame[frame["measured"] == measured].to_dict("records"):
        counts = (str(row[name]) for name in ("both_up", "only_predicted_up", "only_measured_up", "both_down"))
        ends = (row["spearman_low"], row["spearman_high"])
        table.add_row(
            row["predictor"], *counts, written(row["accuracy"], ".0%"), written(row["majority"], ".0%"),
            written(row["spearman"], "+.2f"), " to ".join(dict.fromkeys(written(end, "+.2f") for end in ends)),
        )  # fmt: skip
    return table


def footnotes(explanation: Explanation) -> RenderableType:
    """What the numbers mean, and whatever must be said about them."""
    definitions: dict[str, Any] = explanation.about["definitions"]
    wanted = ("exponent", "small_step", "step", "log_rho_hfc", "measured_hfc", "measured_ratio", "frozen_hfc",
              "mean_step_hfc", "alignment", "departure", "condition")  # fmt: skip
    lines = [f"{name}: {definitions[name]}" for name in wanted if name in definitions]
    lines.append(
        f"{counted(explanation.inputs, 'input')}; means over inputs" + (INTERVALS if explanation.inputs > 1 else "")
    )
    if over := explanation.overshooting():
        lines.append(
            f"note: {len(over)} layers overshoot (s·λ down to {min(over.values()):.2g}, below −2): repeated, they turn "
            "and enlarge the mean token, so γ says smoothing, whatever one pass does"
        )
    lines += [f"note: {note}" for note in explanation.notes]
    if explanation.partial:
        lines.append("PARTIAL: interrupted before all data was explained")
    return Group(*(Text(line, style="bold red" if line.startswith("PARTIAL") else "dim") for line in lines))


def _subject(explanation: Explanation) -> str:
    model, data = explanation.about["model"], explanation.about["data"]
    on = f"{data.get('reference', 'data')}, {counted(explanation.inputs, 'input')}"
    return f"{model.get('reference', model['class'])} on {on}"


def _real(value: float) -> str:
    """Three digits, and no exponent in a narrow column: 1e-5 beside 0.7 is nothing.

    >>> _real(-0.734), _real(2.3e-05), _real(1234.0)
    ('-0.734', '+0.000', '+1.23e+03')
    """
    return f"{value:+.3f}" if abs(value) < 100 else f"{value:+.3g}"
