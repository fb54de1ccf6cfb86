"""Trained models evaluated now, for the tables that otherwise read records."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from unsmooth.errors import DataError
from unsmooth.paper.depth import all_named, chosen_models, device_of, spread
from unsmooth.paper.item import Context
from unsmooth.paper.records import share_of, short_variant
from unsmooth.training import Evaluation, evaluate_trained


def wanted(context: Context) -> bool:
    """Whether numbers are to be computed from models instead of read from records."""
    return context.recompute or bool(context.models)


def evaluations(context: Context, corruptions: bool = False) -> list[Evaluation]:
    """What `unsmooth evaluate` says of the named models, or of the shipped ones."""
    if not context.data:
        raise DataError("computing an accuracy needs the test images: --data PATH (CIFAR-100)")
    references = all_named(chosen_models(context))
    data = spread(context.data, len(references))
    options: dict[str, Any] = {"samples": context.samples, "seed": context.seed, "metric_images": 1}
    found = [
        evaluate_trained(r, path, corruptions=corruptions, device=device_of(context), **options)
        for (_, r), path in zip(references, data, strict=True)
    ]
    return [replace(e, variant=short_variant(e.variant or "")) for e in found]


def share(evaluation: Evaluation) -> float | None:
    """The share of the training data that the model saw, where it or its name tells."""
    return share_of(evaluation.run or evaluation.model, evaluation.fraction)


def image_note(counts: Iterable[int]) -> list[str]:
    """How far an accuracy on so many test images can be off, the widest case: of one half.

    >>> image_note([250, 10_000])[0]
    'an accuracy is uncertain by up to ±1.0 points on 10,000 test images, ±6.2 on 250: smaller differences may be none'
    """
    counts = sorted(set(counts), reverse=True)
    if not counts:
        return []
    margins = [
        f"±{100 * 1.96 * 0.5 / math.sqrt(max(1, n)):.1f}{'' if i else ' points'} on {n:,}" for i, n in enumerate(counts)
    ]
    first, *others = margins
    listed = ", ".join([f"{first} test images", *others])
    return [f"an accuracy is uncertain by up to {listed}: smaller differences may be none"]
