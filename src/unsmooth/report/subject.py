"""One model on the page: what is known about it."""

from __future__ import annotations

from dataclasses import dataclass

from unsmooth.explain.explanation import Explanation
from unsmooth.measure import Measurement
from unsmooth.report.tokens import TokenView


@dataclass(frozen=True)
class Subject:
    """A model by the name the page shows; without an explanation or token view, those sections leave it out."""

    name: str
    measurement: Measurement
    explanation: Explanation | None = None
    tokens: TokenView | None = None
