"""The tables that an explanation is read by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from unsmooth.analysis.explaining.agreement import Agreement, agreement, share_interval
from unsmooth.errors import FeatureError, OptionError

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.analysis.explaining.explanation import Explanation

KINDS = {"smoothing": "type (1)", "sharpening": "type (2)", "mixed": "both tie"}
# (predictor, what it predicts)
COMPARED = (
    ("exponent", "measured_ratio"),
    ("exponent_constant", "measured_ratio"),
    ("small_step", "measured_ratio"),
    ("without_constant", "measured_ratio"),
    ("direction_gain", "measured_ratio"),
    ("mean_path", "measured_ratio"),
    ("mean_field", "measured_ratio"),
    ("frozen_ratio", "measured_ratio"),
    ("other_inputs", "measured_ratio"),
    ("log_rho_hfc", "measured_hfc"),
    ("small_step_hfc", "measured_hfc"),
    ("mean_step_hfc", "measured_hfc"),
    ("frozen_hfc", "measured_hfc"),
)
# What may explain a step in fewer numbers than the step itself; the last is the only forecast.
FORECAST = "other_inputs"
CANDIDATES = {
    "exponent": "γ",
    "small_step": "small-step γ",
    "direction_gain": "gain by direction",
    "mean_path": "mean path",
    "mean_field": "mean field",
    FORECAST: "other inputs",
}
ABOUT_CONSTANTS = ("exponent_constant", "without_constant")


def type_shares(frame: pd.DataFrame, kind: str = "paper_kind") -> pd.DataFrame:
    """Share of each dominating type over layers, heads and inputs, with a 95 % interval of what varies: inputs.

    `neither` is the share whose dominating λ_A is not the Perron root and not the smallest real one either, which
    Theorem 1 does not allow for.
    """
    import pandas as pd

    if kind not in ("kind", "paper_kind"):
        raise OptionError.unknown("kind", kind, ["kind", "paper_kind"])
    if kind not in frame:
        raise FeatureError("no spectrum of A was computed: explain with spectra=1 or more")
    frame = frame[frame[kind].notna()]
    cases = int(frame["input"].value_counts().min()) if len(frame) else 1
    rows = []
    for name, label in KINDS.items():
        per_input = np.asarray((frame[kind] == name).groupby(frame["input"]).mean(), dtype=np.float64)
        low, high = share_interval(per_input, cases)
        rows.append({"kind": name, "type": label, "share": per_input.mean(), "low": low, "high": high})
    table = pd.DataFrame(rows)
    endpoint = frame["endpoint" if kind == "kind" else "paper_endpoint"]
    table["neither"] = [float(((frame[kind] == name) & (endpoint == "neither")).mean()) for name in KINDS]
    return table.assign(inputs=frame["input"].nunique(), count=len(frame))


LAYER_COLUMNS = ("layer", "step", "exponent", "small_step", "measured_ratio", "agree", "alignment")
PREDICTION_COLUMNS = ("predictor", "measured", "accuracy", "majority", "spearman")


def by_layer(explanation: Explanation, tokens: str | None = None, full: bool = False) -> pd.DataFrame:
    """One row per layer, means over inputs: the exponents beside what was measured, narrow enough to print.

    `full` gives all columns: growth of HFC and LFC apart, heads, gaps, and shares of eigenvalues.
    """
    layers = explanation.frame(tokens)
    numeric = layers.drop(columns=["input", "policy"], errors="ignore").groupby("layer").mean()
    moved = layers[layers["measured_ratio"] != 0]  # an attention that adds nothing has no sign
    numeric["agree"] = (np.sign(moved["exponent"]) == np.sign(moved["measured_ratio"])).groupby(moved["layer"]).mean()
    heads = explanation.head_frame()
    numeric["relative_entropy"] = heads.groupby("layer")["relative_entropy"].mean()
    if "kind" in heads:
        known = heads[heads["kind"].notna()]
        numeric["gap"] = known.groupby("layer")["gap"].mean()
        numeric["type1_heads"] = (known["paper_kind"] == "smoothing").groupby(known["layer"]).mean()
        numeric["type2_heads"] = (known["paper_kind"] == "sharpening").groupby(known["layer"]).mean()
    weights = explanation.weight_frame()
    whole = weights[(weights["head"] == -1) & (weights["folded"] == weights["folded"].max())].set_index("layer")
    for column in ("re_negative", "re_positive", "re_outside", "departure", "condition"):
        numeric[column] = whole[column]
    numeric = numeric.reset_index()
    return numeric if full else numeric[list(LAYER_COLUMNS)]


def eigenvalue_table(explanation: Explanation) -> pd.DataFrame:
    """Shares of eigenvalues of Σ_h H_h in [−1, 0), (0, ∞) and outside, per layer, before and after folding."""
    weights = explanation.weight_frame()
    names = ["negative", "positive", "outside", "re_negative", "re_positive", "re_outside", "complex", "condition"]
    return weights[weights["head"] == -1][["layer", "folded", *names, "departure", "max_real", "min_real"]]


def with_forecast(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with `other_inputs`: what the same layer did, on average, to the inputs of the other half.

    Halves and not all others: leaving one input out would order the inputs of a layer the wrong way round.
    """
    if frame["input"].nunique() < 2:
        return frame
    half = frame["input"].rank(method="dense").astype(int) % 2
    means = frame.groupby([frame["layer"], half])["measured_ratio"].mean()
    keys = list(zip(frame["layer"], 1 - half, strict=True))
    return frame.assign(other_inputs=means.reindex(keys).to_numpy())


def compare_columns(explanation: Explanation, predicted: str, measured: str, tokens: str | None = None) -> Agreement:
    """`Agreement` of two columns over layers × inputs; an attention that adds nothing has no sign."""
    frame = with_forecast(explanation.frame(tokens))
    for name in (predicted, measured):
        if name not in frame:
            raise OptionError.unknown("column", name, [c for c in frame if frame[c].dtype == float])
    x, y = (frame[name].to_numpy(dtype=np.float64) for name in (predicted, measured))
    signed = np.isfinite(x) & np.isfinite(y) & (y != 0)
    return agreement(x[signed], y[signed], frame["layer"][signed].tolist(), frame["input"][signed].tolist())


def candidates(explanation: Explanation, tokens: str | None = None) -> dict[str, Agreement]:
    """What may explain a step, each beside the measured one; one input has no others to forecast from."""
    have = with_forecast(explanation.frame(tokens)).columns
    return {name: compare_columns(explanation, name, "measured_ratio", tokens) for name in CANDIDATES if name in have}


def prediction_table(explanation: Explanation, tokens: str | None = None, full: bool = False) -> pd.DataFrame:
    """One row per predictor: accuracy beside the majority's, Spearman; `full`: its interval and the counts too."""
    import pandas as pd

    rows = []
    frame = with_forecast(explanation.frame(tokens))
    biased = "constant" in frame and bool((frame["constant"] > 0).any())
    for predicted, measured in COMPARED:
        if predicted not in frame:  # an explanation saved before this was computed
            continue
        if predicted in ABOUT_CONSTANTS and not biased:
            continue
        found = compare_columns(explanation, predicted, measured, tokens)
        rows.append(
            {
                "predictor": predicted,
                "measured": measured,
                **vars(found),
                "accuracy": found.accuracy,
                "majority": found.majority,
            }
        )
    table = pd.DataFrame(rows)
    return table if full else table[list(PREDICTION_COLUMNS)]
