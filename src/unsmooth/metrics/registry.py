"""Every metric as one row, with the definition that is printed beside its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from unsmooth.errors import OptionError
from unsmooth.metrics import values
from unsmooth.metrics.features import Features

PER_SAMPLE = "float64; per sample, then mean over samples"


@dataclass(frozen=True)
class Panel:
    """A figure that one or several metrics share: which direction is smoother, and what that means in words."""

    name: str
    smoother: Literal["lower", "higher"]
    reading: str

    @property
    def caption(self) -> str:
        """The line under the figure.

        >>> RANK.caption
        'Lower: tokens span fewer directions (smoother).'
        """
        return f"{self.smoother.capitalize()}: {self.reading} (smoother)."


DISTANCE = Panel("distance", "lower", "tokens are closer to their mean")
DIRECTION = Panel("direction", "higher", "tokens point the same way")
RANK = Panel("rank", "lower", "tokens span fewer directions")


@dataclass(frozen=True)
class Metric:
    """One number per sample: what it is exactly, how to get it, how to read and show it.

    Tables, page, comparisons and alarms know a metric by this row alone. The first metric of a panel is the one that
    is shown first; the others are other definitions of the same idea.
    """

    name: str
    title: str
    definition: str
    value: Callable[[Features], Tensor] = field(repr=False)
    panel: Panel
    unit: str = ""  # what it counts; "" for a pure number
    digits: str = ".4g"  # how tables write it
    spectrum: str = ""  # whose singular values it needs: "" (none), "problem" (X) or "hfc_problem" (HFC[X])
    sums_only: bool = False  # sums over them will do, which are quicker found where there are many
    at_least: int = 1  # tokens it needs
    needs_tokens: bool = False  # lengths, mean and Gram matrix do not tell it
    over_data: bool = False  # one number for the data, from the second moment of all tokens, not one per sample
    spoiled_by: tuple[str, ...] = ()  # zeros that take its meaning: "zero_token", "zero_mean"

    @property
    def sign(self) -> int:
        """+1 where a higher value means smoother features, −1 where a lower one does."""
        return 1 if self.panel.smoother == "higher" else -1


_ROWS = (
    Metric(
        "hfc_lfc",
        "HFC/LFC",
        f"‖X − 1x̄ᵀ‖_F / ‖1x̄ᵀ‖_F (Frobenius norm); {PER_SAMPLE}",
        values.hfc_lfc,
        DISTANCE,
        spoiled_by=("zero_mean",),
    ),
    Metric(
        "hfc_lfc_spectral",
        "HFC/LFC (spectral)",
        f"‖X − 1x̄ᵀ‖₂ / ‖1x̄ᵀ‖₂ (spectral norm); {PER_SAMPLE}",
        values.hfc_lfc_spectral,
        DISTANCE,
        spectrum="hfc_problem",
        spoiled_by=("zero_mean",),
    ),
    Metric(
        "dong2021",
        "relative residual (Dong et al. 2021)",
        f"‖X − 1x̄ᵀ‖ / ‖X‖ with the norm √(‖·‖₁ ‖·‖_∞); {PER_SAMPLE}",
        values.dong2021,
        DISTANCE,
        needs_tokens=True,
    ),
    Metric(
        "dirichlet",
        "Dirichlet energy",
        f"‖X − 1x̄ᵀ‖_F² = Σ_ij ‖x_i − x_j‖² / (2n); {PER_SAMPLE}",
        values.dirichlet,
        DISTANCE,
        unit="squared feature units",
    ),
    Metric(
        "cosine_similarity",
        "cosine similarity",
        f"signed cosine, mean over pairs i<j, a zero token has cosine 0; {PER_SAMPLE}",
        values.cosine_similarity,
        DIRECTION,
        at_least=2,
        spoiled_by=("zero_token",),
    ),
    Metric(
        "vita2022",
        "|cosine| (Wang et al. 2022)",
        f"|cosine|, mean over all n² ordered pairs, diagonal included; {PER_SAMPLE}",
        values.vita2022,
        DIRECTION,
        needs_tokens=True,
        spoiled_by=("zero_token",),
    ),
    Metric(
        "effective_rank",
        "effective rank",
        f"exp(−Σ p log p), p = σ/Σσ (σ, not σ²) of the tokens × dim matrix, not centred; {PER_SAMPLE}",
        values.effective_rank,
        RANK,
        unit="directions",
        spectrum="problem",
        sums_only=True,
    ),
    Metric(
        "rankme",
        "RankMe",
        f"exp(−Σ p log p), p = σ/Σσ + 1e-7 over the first min(n, d) σ, not centred; {PER_SAMPLE}",
        values.rankme,
        RANK,
        unit="directions",
        spectrum="problem",
    ),
    Metric(
        "stable_rank",
        "stable rank",
        f"‖X‖_F² / ‖X‖₂², not centred; {PER_SAMPLE}",
        values.stable_rank,
        RANK,
        unit="directions",
        spectrum="problem",
    ),
    Metric(
        "participation_ratio",
        "participation ratio",
        f"(Σσ²)² / Σσ⁴, not centred; {PER_SAMPLE}",
        values.participation_ratio,
        RANK,
        unit="directions",
        spectrum="problem",
    ),
    Metric(
        "dataset_rank",
        "effective rank of the data set",
        "exp(−Σ p log p), p = σ/Σσ of one matrix that holds the tokens of all samples, not centred; float64 (products "
        "of 16-bit features on a GPU are added in float32 within a batch); one number, no mean over samples",
        values.effective_rank,
        RANK,
        unit="directions",
        over_data=True,
    ),
)

METRICS: dict[str, Metric] = {row.name: row for row in _ROWS}
PRESETS: dict[str, tuple[str, ...]] = {
    "paper": ("hfc_lfc", "cosine_similarity", "effective_rank"),
    "paper-spectral": ("hfc_lfc_spectral", "cosine_similarity", "effective_rank"),
    "vita2022": ("vita2022",),
    "dong2021": ("dong2021",),
    "rankme": ("rankme",),
    "stable-rank": ("stable_rank",),
    "participation-ratio": ("participation_ratio",),
    "dirichlet": ("dirichlet",),
}


def register_metric(metric: Metric) -> Metric:
    """Add a metric, or replace the one of the same name; `measure(metrics=NAME)` then computes it."""
    METRICS[metric.name] = metric
    return metric


def metric_named(name: str) -> Metric:
    """The row of a metric's name; a file may hold one that this process does not know."""
    if name not in METRICS:
        raise OptionError(
            f"unknown metric {name!r}: it was measured by a metric that is not registered here "
            f"(unsmooth.register_metric); known are {', '.join(METRICS)}"
        )
    return METRICS[name]


def by_panel(names: Iterable[str]) -> dict[Panel, list[str]]:
    """The metrics of each panel, in the registry's order.

    >>> [(panel.name, found) for panel, found in by_panel(["rankme", "hfc_lfc", "effective_rank"]).items()]
    [('distance', ['hfc_lfc']), ('rank', ['effective_rank', 'rankme'])]
    """
    wanted = {metric_named(name).name for name in names}
    panels: dict[Panel, list[str]] = {}
    for row in METRICS.values():
        panels.setdefault(row.panel, []).append(row.name)
    return {panel: found for panel, all_ in panels.items() if (found := [name for name in all_ if name in wanted])}


def resolve(metrics: str | Metric | Iterable[str | Metric] = "paper") -> tuple[Metric, ...]:
    """The rows that names, presets, a comma-separated string or a sequence of them stand for, each once.

    >>> [m.name for m in resolve("paper, stable-rank")]
    ['hfc_lfc', 'cosine_similarity', 'effective_rank', 'stable_rank']
    """
    if isinstance(metrics, Metric):
        return (metrics,)
    if not isinstance(metrics, Iterable):
        raise OptionError.unknown("metric", metrics, [*PRESETS, *METRICS])
    asked: Iterable[str | Metric] = metrics.split(",") if isinstance(metrics, str) else metrics
    rows = [row for item in asked for row in _rows(item)]
    if not rows:
        raise OptionError("no metric was asked for: expected at least one, for example 'paper'")
    return tuple(dict.fromkeys(rows))


def _rows(item: str | Metric) -> tuple[Metric, ...]:
    if isinstance(item, Metric):
        return (item,)
    if not isinstance(item, str):
        raise OptionError(f"expected the name of a metric, got {item!r} of type {type(item).__name__}")
    name = item.strip().replace("-", "_")
    for preset, names in PRESETS.items():
        if preset.replace("-", "_") == name:
            return tuple(METRICS[n] for n in names)
    if name not in METRICS:
        raise OptionError.unknown("metric", item.strip(), [*PRESETS, *(m for m in METRICS if not _is_preset(m))])
    return (METRICS[name],)


def _is_preset(name: str) -> bool:
    return name.replace("_", "-") in PRESETS
