"""Definitions on tensors: how smooth features are, the kernels that make it fast, the statistics under every number."""

from unsmooth.metrics.definitions import cosine_similarity, effective_rank, hfc_lfc_ratio

__all__ = ["cosine_similarity", "effective_rank", "hfc_lfc_ratio"]
