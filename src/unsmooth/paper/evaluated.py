"""Trained models evaluated now, for the tables that otherwise read records."""

from __future__ import annotations

import math
from typing import Any

from unsmooth.errors import DataError
from unsmooth.paper.depth import device_of, shipped_models
from unsmooth.paper.item import Context
from unsmooth.train.trained import evaluate_trained


def wanted(context: Context) -> bool:
    """Whether numbers are to be computed from models instead of read from records."""
    return context.recompute or bool(context.models)


def evaluations(context: Context, corruptions: bool = False) -> list[dict[str, Any]]:
    """What `unsmooth evaluate` says of the named models, or of the shipped ones."""
    if not context.data:
        raise DataError("computing an accuracy needs the test images: --data PATH (CIFAR-100)")
    models = context.models or shipped_models()
    if not models:
        raise DataError("no trained model is here: train one (`unsmooth train cifar100 …`) and name it with --model")
    references = [text.partition("=")[2] or text for text in models]
    options: dict[str, Any] = {"limit": context.limit, "seed": context.seed, "metric_images": 1}
    return [
        evaluate_trained(r, context.data[0], corruptions=corruptions, device=device_of(context), **options)
        for r in references
    ]


def image_note(found: list[dict[str, Any]], all_images: int = 10_000) -> list[str]:
    """A sentence, where fewer than all test images were used."""
    counts = sorted({e["clean"]["images"] for e in found if e["clean"]["images"] != all_images})
    if not counts:
        return []
    margin = 100 * 1.96 * 0.5 / math.sqrt(max(1, counts[0]))  # the widest: of an accuracy of one half
    return [
        f"some models were evaluated on {', '.join(map(str, counts))} of 10,000 test images: an accuracy is uncertain "
        f"by up to ±{margin:.1f} points there"
    ]
