"""Ours: what one attention step is made of, over many models: constants, single tokens, the norm after the sum."""

from __future__ import annotations

from statistics import fmean
from typing import TypedDict

from unsmooth.analysis import Explanation
from unsmooth.paper.item import Table, Value


class Layer(TypedDict):
    """Means over inputs."""

    exponent: float
    measured: float
    without_constant: float
    constant: float


class Steps(TypedDict):
    """The steps of one model under one token policy; shares are of layers × inputs."""

    model: str
    tokens: str
    raises: float  # HFC/LFC, over the sub-layer
    other_sign: float  # than over all tokens
    raises_without_constant: float
    attention: float  # mean change of log HFC/LFC by attention alone
    attention_raises: float
    norm: float  # by the norm after the sum
    norm_raises: float
    growth_right: float  # sign of the growth of HFC with one number for the norm's statistics
    grows: float
    post_norm: bool
    layers: list[Layer]


def steps_of(name: str, explanation: Explanation) -> list[Steps]:
    """Under every policy that was explained."""
    found = []
    frames = {policy: explanation.frame(policy) for policy in explanation.policies}
    first = next(iter(frames.values()))
    for policy, frame in frames.items():
        by_layer = frame.groupby("layer")[["exponent", "measured_ratio", "without_constant", "constant"]].mean()
        layers = [Layer(exponent=e, measured=m, without_constant=w, constant=c)
                  for e, m, w, c in by_layer.to_numpy().tolist()]  # fmt: skip
        up = frame["measured_ratio"].to_numpy() > 0
        shares = {
            "raises": up, "other_sign": up != (first["measured_ratio"].to_numpy() > 0),
            "raises_without_constant": frame["without_constant"] > 0, "attention_raises": frame["attention_ratio"] > 0,
            "norm_raises": frame["norm_ratio"] > 0, "grows": frame["measured_hfc"] > 0,
            "growth_right": (frame["mean_step_hfc"] > 0) == (frame["measured_hfc"] > 0),
        }  # fmt: skip
        found.append(
            Steps(
                model=name, tokens=policy, post_norm=bool((frame["norm_ratio"] != 0).any()), layers=layers,
                attention=float(frame["attention_ratio"].mean()), norm=float(frame["norm_ratio"].mean()),
                **{key: float(value.mean()) for key, value in shares.items()},  # type: ignore[typeddict-item]
            )
        )  # fmt: skip
    return found


def tables(found: list[Steps]) -> list[Table]:
    """What constants, outliers and norms after the sum do; what no model has is left out."""
    whole = [row for row in found if row["tokens"] == "all"]
    constant = [row for row in whole if any(layer["constant"] > 0 for layer in row["layers"])]
    made = [constants(constant), by_layer(_most_decided(constant))] if constant else []
    made += [outliers(found)] if any(row["other_sign"] > 0 for row in found) else []
    after = [row for row in whole if row["post_norm"]]
    return [*made, *([norms(after)] if after else [])]


def constants(found: list[Steps]) -> Table:
    """How often attention raises HFC/LFC, with and without them."""
    rows: list[list[Value]] = []
    for row in found:
        sizes = [layer["constant"] for layer in row["layers"]]
        without = f"{row['raises_without_constant']:.0%}"
        rows.append([row["model"], f"{min(sizes):.1f} to {max(sizes):.1f}", f"{row['raises']:.0%}", without])
    columns = ["model", "constant / mean token, by layer", "the sub-layer raises HFC/LFC", "without constants"]
    return Table("Constants", columns, rows)


def _most_decided(found: list[Steps]) -> Steps:
    def moved(row: Steps) -> float:
        return fmean(abs(layer["measured"] - layer["without_constant"]) for layer in row["layers"])

    return max(found, key=moved)


def by_layer(row: Steps) -> Table:
    """Where constants change the steps most."""
    rows: list[list[Value]] = []
    for i, layer in enumerate(row["layers"]):
        steps = (layer["exponent"], layer["measured"], layer["without_constant"])
        rows.append([i, *(f"{step:+.2f}" for step in steps), f"{layer['constant']:.1f}"])
    columns = ["layer", "γ", "measured change of log HFC/LFC", "without constants", "constant / mean token"]
    return Table(f"{row['model']}, by layer", columns, rows)


def outliers(found: list[Steps]) -> Table:
    """How often attention raises HFC/LFC of all tokens, and of those that are no outliers."""
    columns = ["model", "the sub-layer raises HFC/LFC", "another sign than over all tokens", "HFC grows",
               "sign of that growth right with mean statistics of the norm"]  # fmt: skip
    moved = {row["model"] for row in found if row["other_sign"] > 0}
    rows: list[list[Value]] = []
    for row in found:
        if row["model"] in moved:
            name = row["model"] if row["tokens"] == "all" else f"{row['model']}, without outliers"
            shares = (row["raises"], row["other_sign"], row["grows"], row["growth_right"])
            rows.append([name, *(f"{share:.0%}" for share in shares)])
    return Table("Without outlying tokens", columns, rows)


def norms(found: list[Steps]) -> Table:
    """Attention and the norm after the sum are two steps."""
    columns = ["model", "attention, mean change of log HFC/LFC", "raises it", "norm after the sum", "raises it"]
    rows: list[list[Value]] = []
    for row in found:
        cells = (f"{row['attention']:+.2f}", f"{row['attention_raises']:.0%}", f"{row['norm']:+.2f}")
        rows.append([row["model"], *cells, f"{row['norm_raises']:.0%}"])
    return Table("Norms after the sum", columns, rows)
