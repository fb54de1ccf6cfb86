"""What was explained, as tidy frames and one JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unsmooth.analysis.about import About
from unsmooth.analysis.explaining.rows import COLUMNS, check_rows
from unsmooth.errors import OptionError
from unsmooth.prose import counted
from unsmooth.sources.files import write_result

if TYPE_CHECKING:
    import pandas as pd

    from unsmooth.analysis.explaining.agreement import Agreement
    from unsmooth.figures import Drawing

SCHEMA = "unsmooth.explanation/2"

ALL_TOKENS = "all"  # the policy of explanations that name none

DEFINITIONS = {
    "step": "s, mean over tokens of 1/σ (the norm's statistics); 1 without a norm on the attention's input",
    "exponent": "γ = log ρ_H − log ρ_L of X ↦ X + s Σ A_h X W̃_h in nats per layer, or (post-norm) of that times C Γ of "
    "the norm after the sum: what this layer would do, repeated for ever, found to about 1 % of itself; > 0 sharpens "
    "(docs/theory.md, section 4)",
    "exponent_constant": "γ with the constant: log ρ_H − log max(ρ_L, 1)",
    "small_step": "s (max Re of the HFC map − max Re of Σ W̃_h): γ for a small step, nats per layer",
    "log_rho_hfc": "log ρ_H: predicted growth of ‖HFC‖ per layer if this layer were repeated",
    "constant": "norm of what every token gets (norm bias, b_v, b_proj), in units of the mean token's norm",
    "fixed_point": "norm of the mean token z with z = z G + c, in the same units; attracts: whether it tends there",
    "measured_hfc": "log ‖P X'‖/‖P X‖ of the attention sub-layer: X' = X + what attention adds, after its norm in a "
    "post-norm model",
    "measured_ratio": "change of log HFC/LFC (Frobenius) over the attention sub-layer: attention_ratio + norm_ratio",
    "attention_ratio": "the part of measured_ratio from X to X + what attention adds",
    "norm_ratio": "the part of measured_ratio that the norm after the sum makes; 0 in a pre-norm model",
    "frozen_hfc": "the same as measured_hfc from the folded affine map with X's own statistics: exact",
    "frozen_ratio": "the same as measured_ratio from that map: exact",
    "without_constant": "frozen_ratio if norm bias, b_v and b_proj were 0",
    "mean_step_hfc": "frozen_hfc with the statistics D replaced by their mean s",
    "mean_field": "frozen_ratio with each A_h replaced by α_h P + 1π_hᵀ: HFC times one number per head (section 7)",
    "mean_path": "frozen_ratio with each A_h replaced by 11ᵀ/n: what all tokens get alike, and no head on deviations",
    "direction_gain": "Δ log HFC/LFC by eigen-directions of ΣH_h, each with its energy in HFC and LFC as weight: the "
    "mean token times 1 + sλ, deviations times 1 + sαλ, α the mean of α_h; exact for a normal H and equal heads only",
    "other_inputs": "mean of measured_ratio in the same layer over the other half of the inputs: the one forecast here",
    "kind": "which pairs dominate for one head with folded H, step s, and the zero eigenvalues of a head with k < d",
    "paper_kind": "the poster's count: bare H = (W_V W_proj)ᵀ, step 1, only the k listed eigenvalues of a head",
    "endpoint": "where the dominating λ_A lies: the Perron root, the smallest real one, or neither",
    "gap": "1 − max |λ_i| of A over i ≠ n",
    "entropy": "mean over queries of −Σ A log A, nats; relative_entropy divides by log n",
    "alignment": "mean over tokens of |P x|/|x|, P the spectral projector on the leading eigenvector of the folded "
    "Σ H_h (with its conjugate if complex); not a cosine: it exceeds 1 where parts cancel",
    "negative, positive, outside": "shares of eigenvalues of H that are real and in [−1, 0), in (0, ∞), or neither",
    "re_negative, re_positive, re_outside": "shares of eigenvalues of H whose real part is in [−1, 0), in (0, ∞), or "
    "in neither",
    "departure": "Henrici's √(‖H‖² − Σ|λ|²)/‖H‖ (Frobenius), 0 for a normal H",
    "condition": "κ₂ of the unit eigenvectors, those of a repeated 0 orthonormal (of a head: those with λ ≠ 0 only)",
}


@dataclass(frozen=True)
class ExplainSettings:
    """What was asked of an explanation."""

    folded: bool
    layers: tuple[int, ...]
    spectra: int
    max_products: int
    accuracy: float
    tokens: tuple[str, ...] = (ALL_TOKENS,)


@dataclass(repr=False, eq=False)  # two results are compared by `compare`; == asks whether they are one object
class Explanation:
    """What `explain` returns: rows per layer and input, head and input, layer and head, and the eigenvalues of H."""

    layers: list[dict[str, Any]]
    heads: list[dict[str, Any]]
    weights: list[dict[str, Any]]
    spectra: list[dict[str, Any]] = field(repr=False)
    about: About[ExplainSettings]
    partial: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def policies(self) -> tuple[str, ...]:
        """The token policies that steps were measured under."""
        return tuple(dict.fromkeys(row.get("policy", ALL_TOKENS) for row in self.layers))

    def under(self, tokens: str) -> Explanation:
        """The same with this policy first, which tables and figures then show; as it is where no step has it."""
        return replace(self, layers=sorted(self.layers, key=lambda row: row.get("policy", ALL_TOKENS) != tokens))

    def frame(self, tokens: str | None = None) -> pd.DataFrame:
        """One row per layer and input, predictions beside measurements, under the first token policy or another."""
        chosen = self._policy(tokens)
        return _frame([row for row in self.layers if row.get("policy", ALL_TOKENS) == chosen])

    def _policy(self, tokens: str | None) -> str:
        chosen = self.policies[0] if tokens is None else tokens
        if chosen not in self.policies:
            raise OptionError.unknown("token policy", chosen, self.policies)
        return chosen

    def head_frame(self) -> pd.DataFrame:
        """One row per layer, head and input: entropy, gap, verdicts."""
        return _frame(self.heads)

    def weight_frame(self) -> pd.DataFrame:
        """One row per layer and head (head −1: Σ_h H_h), before and after folding; no data involved."""
        return _frame(self.weights)

    def spectrum_frame(self) -> pd.DataFrame:
        """One row per eigenvalue of H; head −1 is Σ_h H_h."""
        import pandas as pd

        parts = []
        for row in self.spectra:
            for head, values in [(-1, row["layer_values"]), *enumerate(row["head_values"])]:
                parts.append(
                    pd.DataFrame({"layer": row["layer"], "head": head, "folded": row["folded"],
                                  "real": values.real.numpy(), "imag": values.imag.numpy()})
                )  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    @property
    def inputs(self) -> int:
        """How many inputs were explained."""
        return len({row["input"] for row in self.layers})

    def type_shares(self, kind: str = "paper_kind") -> pd.DataFrame:
        """The poster's Table 1: shares of type (1), type (2) and ties over layers, heads and inputs."""
        from unsmooth.analysis.explaining.tables import type_shares

        return type_shares(self.head_frame(), kind)

    def by_layer(self, tokens: str | None = None, full: bool = False) -> pd.DataFrame:
        """Means over inputs, one row per layer; `full` gives every column, more than a terminal is wide."""
        from unsmooth.analysis.explaining.tables import by_layer

        return by_layer(self, tokens, full)

    def agreement(
        self, predicted: str = "exponent", measured: str = "measured_ratio", tokens: str | None = None
    ) -> Agreement:
        """How well one column predicts another over layers and inputs."""
        from unsmooth.analysis.explaining.tables import compare_columns

        return compare_columns(self, predicted, measured, tokens)

    def overshooting(self) -> dict[int, float]:
        """Layers with s·Re λ < −2 along the mean token's fastest growing direction: repeated, it turns and grows."""
        from unsmooth.analysis.explaining.overshoot import overshooting

        return overshooting(self)

    def unpromised(self) -> dict[int, float]:
        """Layers with an s·Re λ below −1, and the lowest: whether they sharpen when repeated depends on A."""
        from unsmooth.analysis.explaining.overshoot import unpromised

        return unpromised(self)

    def predictions(self, tokens: str | None = None, full: bool = False) -> pd.DataFrame:
        """Every predictor beside what it predicts; `full`: confusion counts and the correlation's interval too."""
        from unsmooth.analysis.explaining.tables import prediction_table

        return prediction_table(self, tokens, full)

    def plot(self, tokens: str | None = None) -> Drawing:
        """Predicted against measured, a dot for each layer and input; `.save("x.pdf")` writes SVG, PNG or PDF."""
        from unsmooth.figures import agreement

        return agreement(self if tokens is None else self.under(self._policy(tokens)))

    def save(self, path: str | Path) -> Path:
        """Write one JSON file, atomically."""
        return write_result(path, json.dumps(self.to_json()) + "\n")

    def to_json(self) -> dict[str, Any]:
        """The whole explanation as plain data; eigenvalues as [real, imaginary]."""
        return {
            **self.about.heading(SCHEMA, self.partial, self.notes, inputs=self.inputs),
            "layer_rows": [_plain(row) for row in self.layers],
            "head_rows": [_plain(row) for row in self.heads],
            "weight_rows": [_plain(row) for row in self.weights],
            "spectra": [
                {**row, "layer_values": _numbers(row["layer_values"]), "head_values": _numbers(row["head_values"])}
                for row in self.spectra
            ],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Explanation:
        """What `save` wrote, as plain data."""
        definitions = found["definitions"]
        if found["schema"] == "unsmooth.explanation/1":  # of version 0.1: the definitions of the columns, ungrouped
            definitions = {"columns": {k: v for k, v in definitions.items() if k != "tokens"}}
        layers, heads, weights = (
            [_restored(row) for row in found[f"{name}_rows"]] for name in ("layer", "head", "weight")
        )
        for table, rows in zip(COLUMNS, (layers, heads, weights, found["spectra"]), strict=True):
            check_rows(table, rows)
        spectra = [
            {**row, "layer_values": _complex(row["layer_values"]), "head_values": _complex(row["head_values"])}
            for row in found["spectra"]
        ]
        return cls(
            layers,
            heads,
            weights,
            spectra,
            About.from_json({**found, "definitions": definitions}, ExplainSettings),
            bool(found["partial"]),
            [str(note) for note in found["notes"]],
        )

    def __repr__(self) -> str:
        about = self.about
        predicted = sum(row["exponent"] > 0 for row in self.layers)
        measured = sum(row["measured_ratio"] > 0 for row in self.layers)
        lines = [
            f"Explanation of {about.model.name} on {about.data.reference or 'data in memory'}: "
            f"{counted(len(about.settings.layers), 'layer')}, {counted(self.inputs, 'input')}"
            + (" (partial)" if self.partial else ""),
            f"  attention sharpens in {measured} of {len(self.layers)} layers × inputs; predicted (γ > 0): {predicted}",
        ]
        lines += [f"  {counted(len(self.notes), 'note')}: .notes"] if self.notes else []
        return "\n".join(
            [*lines, "  .by_layer(), .predictions(), .type_shares(), .frame(), .plot(), .save(path), .about"]
        )


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows)


_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    # JSON has no infinity: an infinite condition number is written as a word
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _restored(row: dict[str, Any]) -> dict[str, Any]:
    return {k: _SPECIAL.get(v, v) if isinstance(v, str) else v for k, v in row.items()}


def _numbers(values: Tensor) -> Any:
    rounded = torch.view_as_real(values).tolist()
    return _round(rounded)


def _round(value: Any) -> Any:
    # seven digits are what float32 weights have; more would only make the file larger
    return [_round(v) for v in value] if isinstance(value, list) else float(f"{value:.7g}")


def _complex(values: Any) -> Tensor:
    found = torch.tensor(values, dtype=torch.float64)
    return torch.view_as_complex(found) if found.numel() else torch.zeros(0, dtype=torch.complex128)
