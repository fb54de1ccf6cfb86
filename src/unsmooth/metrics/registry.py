"""Every metric as one row, with the definition that is printed beside its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from torch import Tensor

from unsmooth.errors import OptionError
from unsmooth.metrics import values
from unsmooth.metrics.features import Features

PER_SAMPLE = "float64; per sample, then mean over samples"


@dataclass(frozen=True)
class Metric:
    """One number per sample: its name, what it is exactly, and how to get it.

    `spectrum` says whose singular values it needs: "" (none), "problem" (X) or "hfc_problem" (HFC[X]).
    `needs_tokens` is for what lengths, mean and Gram matrix do not tell.
    """

    name: str
    title: str
    definition: str
    value: Callable[[Features], Tensor] = field(repr=False)
    spectrum: str = ""
    at_least: int = 1  # tokens it needs
    needs_tokens: bool = False


_ROWS = (
    Metric(
        "hfc_lfc",
        "HFC/LFC",
        f"‖X − 1x̄ᵀ‖_F / ‖1x̄ᵀ‖_F (Frobenius norm); {PER_SAMPLE}",
        values.hfc_lfc,
    ),
    Metric(
        "hfc_lfc_spectral",
        "HFC/LFC (spectral)",
        f"‖X − 1x̄ᵀ‖₂ / ‖1x̄ᵀ‖₂ (spectral norm); {PER_SAMPLE}",
        values.hfc_lfc_spectral,
        spectrum="hfc_problem",
    ),
    Metric(
        "cosine_similarity",
        "cosine similarity",
        f"signed cosine, mean over pairs i<j, a zero token has cosine 0; {PER_SAMPLE}",
        values.cosine_similarity,
        at_least=2,
    ),
    Metric(
        "effective_rank",
        "effective rank",
        f"exp(−Σ p log p), p = σ/Σσ (σ, not σ²) of the tokens × dim matrix, not centred; {PER_SAMPLE}",
        values.effective_rank,
        spectrum="problem",
    ),
    Metric(
        "vita2022",
        "|cosine| (Wang et al. 2022)",
        f"|cosine|, mean over all n² ordered pairs, diagonal included; {PER_SAMPLE}",
        values.vita2022,
        needs_tokens=True,
    ),
    Metric(
        "dong2021",
        "relative residual (Dong et al. 2021)",
        f"‖X − 1x̄ᵀ‖ / ‖X‖ with the norm √(‖·‖₁ ‖·‖_∞); {PER_SAMPLE}",
        values.dong2021,
        needs_tokens=True,
    ),
    Metric(
        "rankme",
        "RankMe",
        f"exp(−Σ p log p), p = σ/Σσ + 1e-7 over the first min(n, d) σ, not centred; {PER_SAMPLE}",
        values.rankme,
        spectrum="problem",
    ),
    Metric(
        "stable_rank",
        "stable rank",
        f"‖X‖_F² / ‖X‖₂², not centred; {PER_SAMPLE}",
        values.stable_rank,
        spectrum="problem",
    ),
    Metric(
        "participation_ratio",
        "participation ratio",
        f"(Σσ²)² / Σσ⁴, not centred; {PER_SAMPLE}",
        values.participation_ratio,
        spectrum="problem",
    ),
    Metric(
        "dirichlet",
        "Dirichlet energy",
        f"‖X − 1x̄ᵀ‖_F² = Σ_ij ‖x_i − x_j‖² / (2n); {PER_SAMPLE}",
        values.dirichlet,
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


def resolve(metrics: str | Metric | Iterable[str | Metric] = "paper") -> tuple[Metric, ...]:
    """The rows that names, presets, a comma-separated string or a sequence of them stand for, each once.

    >>> [m.name for m in resolve("paper, stable-rank")]
    ['hfc_lfc', 'cosine_similarity', 'effective_rank', 'stable_rank']
    """
    if isinstance(metrics, Metric):
        return (metrics,)
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
