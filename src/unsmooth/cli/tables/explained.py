"""Explanations as tables for people."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from unsmooth.analysis import Explanation
from unsmooth.cli.tables.layout import in_words, narrow_table, small_print, written
from unsmooth.prose import counted

if TYPE_CHECKING:
    import pandas as pd


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
_AT_FIRST = tuple(row for row in _PREDICTED if row[0] in ("exponent", "measured_ratio", "agree"))
_CONSTANT = (
    ("exponent", "γ", "+.3f"),
    ("exponent_constant", "γ with it", "+.3f"),
    ("constant", "‖c‖/‖x̄‖", ".2f"),
    ("fixed_point", "fixed point", ".3g"),
    ("attracts", "attracts", ".0%"),
    ("measured_ratio", "step", "+.3f"),
    ("without_constant", "step without it", "+.3f"),
)
_PARTS = (
    ("attention_ratio", "attention", "+.3f"),
    ("norm_ratio", "norm after the sum", "+.3f"),
    ("measured_ratio", "both, measured", "+.3f"),
    ("mean_field", "both, mean field", "+.3f"),
)
_NAMES = {
    "exponent": "γ", "exponent_constant": "γ, constant", "small_step": "γ, small step", "frozen_ratio": "frozen",
    "without_constant": "no constant", "mean_field": "mean field", "mean_path": "mean path",
    "direction_gain": "by direction", "other_inputs": "other inputs", "log_rho_hfc": "log ρ_H",
    "small_step_hfc": "small step", "mean_step_hfc": "mean step", "frozen_hfc": "frozen",
}  # fmt: skip
_MEASURED = {"measured_ratio": "Δlog HFC/LFC", "measured_hfc": "log HFC gain"}
_DEFINED = {  # column of the results: what it is called here
    "exponent": "γ (exponent)",
    "exponent_constant": "γ with it, also called γ, constant (exponent_constant)",
    "small_step": "γ small step (small_step)",
    "step": "step size s (step)",
    "log_rho_hfc": "log ρ_H (log_rho_hfc)",
    "constant": "‖c‖/‖x̄‖",
    "fixed_point": "fixed point",
    "measured_hfc": "measured log HFC gain (measured_hfc)",
    "measured_ratio": "measured Δlog HFC/LFC, also called step (measured_ratio)",
    "frozen_hfc": "frozen, of log HFC (frozen_hfc)",
    "frozen_ratio": "frozen, of log HFC/LFC (frozen_ratio)",
    "without_constant": "step without it, also called no constant (without_constant)",
    "mean_step_hfc": "mean step (mean_step_hfc)",
    "mean_field": "mean field",
    "mean_path": "mean path",
    "direction_gain": "by direction",
    "other_inputs": "other inputs",
    "kind": "type, of folded H",
    "paper_kind": "type, as on the poster",
    "endpoint": "neither endpoint",
    "gap": "gap of A",
    "entropy": "entropy/log n",
    "alignment": "alignment",
    "re_negative, re_positive, re_outside": "[−1, 0), (0, ∞), outside",
    "departure": "departure",
    "condition": "κ(V)",
}
_DEFINED_AT_FIRST = ("exponent", "measured_ratio", "kind", "paper_kind", "endpoint",
                     "re_negative, re_positive, re_outside", "departure", "condition")  # fmt: skip
_HEADS = (
    ("type1_heads", "type (1) heads", ".0%"),
    ("type2_heads", "type (2) heads", ".0%"),
    ("gap", "gap of A", ".2f"),
    ("relative_entropy", "entropy/log n", ".2f"),
    ("alignment", "alignment", ".3f"),
)
_EIGENVALUES = ("layer", "weights", "[−1, 0)", "(0, ∞)", "outside", "complex", "max Re", "min Re", "κ(V)", "departure")


def show(explanation: Explanation, console: Console, full: bool = False) -> None:
    """Print what most people want to see of an explanation, or with `full` everything."""
    for policy in explanation.policies:
        said = "" if policy == "all" else f", {policy} tokens"
        wanted = _PREDICTED if full else _AT_FIRST
        console.print(by_layer(explanation, wanted, _subject(explanation) + said, policy))
    if full:
        _show_parts(explanation, console)
    console.print(eigenvalues(explanation, full))
    if "kind" in explanation.head_frame():
        for kind in ("paper_kind", "kind"):
            console.print(types(explanation, kind))
    for policy in explanation.policies if full else ():
        frame = explanation.predictions(policy, full=True)
        said = f", {policy} tokens" if len(explanation.policies) > 1 else ""
        for measured, rows in frame.groupby("measured", sort=False):
            title = f"{_MEASURED[str(measured)]}, predicted and measured, per layer and input{said}"
            console.print(predictions(rows, title))
    console.print(footnotes(explanation, full))
    console.print(in_words([found_in(explanation)]))


def _show_parts(explanation: Explanation, console: Console) -> None:
    frame = explanation.frame()
    if "constant" in frame and bool((frame["constant"] > 0).any()):
        console.print(by_layer(explanation, _CONSTANT, "What every token gets, c: norm bias, b_v, b_proj"))
    if "norm_ratio" in frame and bool((frame["norm_ratio"] != 0).any()):
        console.print(by_layer(explanation, _PARTS, "Change of log HFC/LFC, part by part"))
    console.print(by_layer(explanation, _HEADS, "Heads, attention and tokens"))


def found_in(explanation: Explanation) -> str:
    """What the weights say, what attention did, and whether γ told its sign, in sentences."""
    from unsmooth.page.words.phrases import percent_text
    from unsmooth.page.words.theory import weights_found

    steps = explanation.frame()["measured_ratio"]
    said = [f"{text[0].upper()}{text[1:]}." for text, *_ in weights_found(explanation)]
    who = "Attention with the norm after it" if explanation.about.model.placement == "post" else "Attention"
    said.append(f"{who} lowers HFC/LFC, which smooths, in {int((steps < 0).sum())} of {len(steps)} layers × inputs.")
    found = explanation.agreement()
    if found.count and found.majority == 1:
        said.append(
            f"All steps have the same sign; γ, the predicted exponent, has it in {percent_text(found.accuracy)}."
        )
    elif found.count:
        better = "clearly" if found.lead_low > 0 else "not clearly"
        better = f"{better} better" if found.accuracy > found.majority else "no better"
        said.append(
            f"The sign of γ, the predicted exponent, is right in {percent_text(found.accuracy)}; always guessing the "
            f"more frequent sign would be right in {percent_text(found.majority)}, so γ is {better} than guessing."
        )
    return " ".join(said)


def by_layer(explanation: Explanation, wanted: Columns, title: str, policy: str | None = None) -> Table:
    """One row per layer, means over inputs."""
    frame = explanation.by_layer(policy, full=True)
    columns = [c for c in wanted if c[0] in frame]
    table = narrow_table(title, ("layer", *(heading for _, heading, _ in columns)))
    for row in frame.to_dict("records"):
        table.add_row(str(int(row["layer"])), *(written(row[name], spec) for name, _, spec in columns))
    return table


def eigenvalues(explanation: Explanation, full: bool = True) -> Table:
    """Where the eigenvalues of Σ_h H_h lie (by real part), after folding; `full`: before it, too."""
    from unsmooth.analysis.explaining.tables import eigenvalue_table

    frame = eigenvalue_table(explanation)
    frame = frame if full else frame[frame["folded"] == frame["folded"].max()]
    table = narrow_table("Eigenvalues of H = Σ_h H_h by real part", _EIGENVALUES, left=("weights",))
    for row in frame.to_dict("records"):
        shares = [f"{row[name]:.0%}" for name in ("re_negative", "re_positive", "re_outside", "complex")]
        numbers = [_real(row["max_real"]), _real(row["min_real"]), f"{row['condition']:.2g}", f"{row['departure']:.2f}"]
        label = "folded" if row["folded"] else "bare"
        table.add_row(str(row["layer"]), label, *(Text(cell) for cell in shares + numbers))
    return table


INTERVALS = "; 95 % intervals: of shares what other inputs would give, by Student's t over inputs"
OF_RANKS = "; of Spearman what other layers and inputs would give, by drawing both with replacement"


def types(explanation: Explanation, kind: str) -> Table:
    """The poster's Table 1."""
    frame = explanation.type_shares(kind)
    how = "as on the poster: bare H, step 1" if kind == "paper_kind" else "folded H, step s, zero eigenvalues counted"
    first = frame.iloc[0]
    title = f"Dominating eigenvalues ({how}): {first['count']} heads × inputs, {counted(first['inputs'], 'input')}"
    table = narrow_table(title, ("", "share", "95 % interval", "neither endpoint"), left=("",))
    for row in frame.to_dict("records"):
        interval = "one input" if math.isnan(row["low"]) else f"{row['low']:.1%} – {row['high']:.1%}"
        table.add_row(f"{row['type']} {row['kind']}", f"{row['share']:.2%}", interval, f"{row['neither']:.2%}")
    return table


def predictions(frame: pd.DataFrame, title: str) -> Table:
    """How well each predictor of one measured quantity does, beside always guessing the more frequent sign."""
    columns = ("predictor", "↑↑", "↑ but ↓", "↓ but ↑", "↓↓", "right", "majority", "Spearman", "95 %")
    table = narrow_table(title, columns, left=("predictor",))
    for row in frame.to_dict("records"):
        counts = (str(row[name]) for name in ("both_up", "only_predicted_up", "only_measured_up", "both_down"))
        ends = (row["spearman_low"], row["spearman_high"])
        table.add_row(
            _NAMES.get(row["predictor"], row["predictor"]), *counts,
            written(row["accuracy"], ".0%"), written(row["majority"], ".0%"), written(row["spearman"], "+.2f"),
            " to ".join(dict.fromkeys(written(end, "+.2f") for end in ends)),
        )  # fmt: skip
    return table


def footnotes(explanation: Explanation, full: bool = True) -> RenderableType:
    """What the numbers mean, under the headings they have here, and whatever must be said about them."""
    definitions = explanation.about.definitions.columns
    typed = "kind" in explanation.head_frame()
    wanted = [name for name in _DEFINED if name in definitions and (full or name in _DEFINED_AT_FIRST)]
    wanted = [name for name in wanted if typed or name not in ("kind", "paper_kind", "endpoint", "gap")]
    lines = [f"{_DEFINED[name]}: {definitions[name]}" for name in wanted]
    if full:
        lines.append(
            "right: share of layers × inputs whose predicted sign is the measured one (↑ but ↓: predicted to rise, "
            "measured to fall); majority: what always guessing the more frequent sign would have"
        )
    intervals = INTERVALS + (OF_RANKS if full else "") if explanation.inputs > 1 else ""
    lines.append(f"{counted(explanation.inputs, 'input')}; means over inputs{intervals}")
    if full and (weak := _no_better_than_guessing(explanation)):
        lines.append(f"not clearly right more often than always guessing the more frequent sign: {'; '.join(weak)}")
    if over := explanation.overshooting():
        lines.append(
            f"note: {counted(len(over), 'layer')} overshoot{'s' if len(over) == 1 else ''} (s·λ down to "
            f"{min(over.values()):.2g}, below −2): repeated, this turns and enlarges the mean token, so γ says "
            "smoothing, whatever one pass does"
        )
        lines.append(
            f"note: in {counted(len(explanation.unpromised()), 'layer')} s·λ is below −1; Corollary 3 promises "
            "sharpening for s·λ in [−1, 0) only, and below it A decides"
        )
    if not full:
        lines.append("--full prints what every token gets, heads, H before folding, and all predictors of the step")
    return small_print(lines, explanation.notes, "explained" if explanation.partial else "")


def _no_better_than_guessing(explanation: Explanation) -> list[str]:
    """Predictors of the step whose lead over the majority class has an interval that holds 0, or none."""
    frame = explanation.predictions(full=True)
    frame = frame[(frame["measured"] == "measured_ratio") & ~(frame["lead_low"] > 0)]
    return [_NAMES.get(name, name) for name in frame["predictor"]]


def _subject(explanation: Explanation) -> str:
    about = explanation.about
    return f"{about.model.name} on {about.data.reference or 'data'}, {counted(explanation.inputs, 'input')}"


def _real(value: float) -> str:
    """Three digits, and no exponent in a narrow column: 1e-5 beside 0.7 is nothing.

    >>> _real(-0.734), _real(2.3e-05), _real(1234.0)
    ('-0.734', '+0.000', '+1.23e+03')
    """
    return f"{value:+.3f}" if abs(value) < 100 else f"{value:+.3g}"
