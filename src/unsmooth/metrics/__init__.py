"""Definitions on tensors: how smooth features are, the kernels that make it fast, the statistics under every number."""

from unsmooth.metrics.definitions import (
    cosine_similarity,
    dirichlet,
    dong2021,
    effective_rank,
    hfc_lfc_ratio,
    participation_ratio,
    rankme,
    stable_rank,
    vita2022,
)
from unsmooth.metrics.registry import Metric, Panel, register_metric

__all__ = [
    "Metric",
    "Panel",
    "cosine_similarity",
    "dirichlet",
    "dong2021",
    "effective_rank",
    "hfc_lfc_ratio",
    "participation_ratio",
    "rankme",
    "register_metric",
    "stable_rank",
    "vita2022",
]
