"""An explanation as the page draws it: eigenvalues by layer, shares, exponents, heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unsmooth.analysis.subject import MEASURED, PREDICTORS
from unsmooth.metrics.tolerance import is_zero
from unsmooth.page.encode import number, numbers

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.analysis.agreement import Agreement
    from unsmooth.analysis.explanation import Explanation
    from unsmooth.analysis.subject import Subject


def explained(subject: Subject) -> dict[str, Any] | None:
    """Everything the page shows of a model's explanation."""
    explanation = subject.explanation
    if explanation is None:
        return None
    frame = explanation.frame()
    predictors = {ours: theirs for ours, theirs in PREDICTORS.items() if theirs in frame}
    return {
        "inputs": explanation.inputs,
        "spectra": _spectra(explanation, frame),
        "types": _types(explanation),
        "exponents": _by_layer(frame, {"measured": MEASURED, **predictors}),
        "rows": _rows(frame, {"measured": MEASURED, **predictors}),
        "agreement": {name: _agreement(found) for name, found in subject.agreements.items()},
        "heads": _heads(explanation.head_frame()),
    }


def _spectra(explanation: Explanation, frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Per layer: λ of the bare weights, sλ of the folded ones (s is the step the norm leaves), condition of V."""
    steps = frame.groupby("layer")["step"].mean()
    weights = explanation.weight_frame()
    conditions = weights[weights["head"] == -1].set_index(["layer", "folded"])["condition"]
    layers: dict[int, dict[str, Any]] = {}
    for row in explanation.spectra:
        index, folded = row["layer"], row["folded"]
        found = layers.setdefault(index, {"layer": index, "step": number(steps[index])})
        scale = float(steps[index]) if folded else 1.0
        found["folded" if folded else "raw"] = {
            "layer": _values(row["layer_values"] * scale),
            "heads": _values(row["head_values"].flatten() * scale),
            "condition": number(float(conditions[index, folded]), 3),
        }
    return [layers[index] for index in sorted(layers)]


def _values(values: Any) -> dict[str, Any]:
    values = values.where(~is_zero(values), 0)  # what rounding left of a 0 has no sign
    return {"re": numbers(values.real.tolist(), 4), "im": numbers(values.imag.tolist(), 4)}


def _types(explanation: Explanation) -> dict[str, Any]:
    """Shares of type (1) and (2); the interval is the one of type (2)."""
    if "kind" not in explanation.head_frame():
        return {}
    found = {}
    for name, column in (("acting", "kind"), ("paper", "paper_kind")):
        table = explanation.type_shares(column).set_index("kind")
        shares, low, high = (table[name].astype(float) for name in ("share", "low", "high"))
        found[name] = {
            "share": {str(kind): number(share, 4) for kind, share in shares.items()},
            "interval": [number(low["sharpening"], 3), number(high["sharpening"], 3)],
            "count": int(table["count"].iloc[0]),
        }
    return found


def _by_layer(frame: pd.DataFrame, columns: dict[str, str]) -> dict[str, Any]:
    groups = frame.replace([np.inf, -np.inf], np.nan).groupby("layer")
    found: dict[str, Any] = {"layer": sorted({int(layer) for layer in frame["layer"]})}
    for ours, theirs in columns.items():
        found[ours] = {"mean": numbers(groups[theirs].mean(), 4), "std": numbers(groups[theirs].std(), 3)}
    return found


def _rows(frame: pd.DataFrame, columns: dict[str, str]) -> dict[str, Any]:
    finite = frame[np.isfinite(frame[list(columns.values())]).all(axis=1)]
    return {
        "layer": [int(v) for v in finite["layer"]],
        "input": [int(v) for v in finite["input"]],
        **{ours: numbers(finite[theirs], 4) for ours, theirs in columns.items()},
    }


def _agreement(found: Agreement) -> dict[str, Any]:
    return {
        "count": found.count,
        "accuracy": number(found.accuracy, 4),
        "majority": number(found.majority, 4),
        "spearman": number(found.spearman, 3),
        "low": number(found.spearman_low, 3),
        "high": number(found.spearman_high, 3),
    }


def _heads(frame: pd.DataFrame) -> dict[str, Any]:
    """Means over inputs, layers × heads."""
    found = {}
    for ours, theirs in (("exponent", "exponent"), ("entropy", "relative_entropy")):
        if theirs in frame:
            clean = frame.replace([np.inf, -np.inf], np.nan)
            table = clean.pivot_table(index="layer", columns="head", values=theirs, aggfunc="mean", dropna=False)
            found[ours] = [numbers(row, 4) for row in table.to_numpy()]
    return found
