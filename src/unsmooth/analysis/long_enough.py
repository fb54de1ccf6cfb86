"""Texts of one token have nothing to compare: a report leaves them out and says so, instead of ending at the first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.analysis.policies import NO_TEXT, TokenKinds
from unsmooth.analysis.special import SpecialTokens
from unsmooth.errors import FeatureError
from unsmooth.models.inputs import main_input, rows_of

LEFT_OUT = "left out: "


class LongEnough:
    """Walks over batches and passes on the samples that have two tokens to compare; counts the others."""

    def __init__(self, model: nn.Module, special: SpecialTokens, policies: Sequence[str]) -> None:
        self._model, self._special = model, special
        self._content = "content" in policies
        self._seen = self._short = 0

    def of(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The batches, without what is too short; FeatureError where nothing else came."""
        for batch in batches:
            given = main_input(batch)
            inputs = {"input_ids": given} if isinstance(given, Tensor) else given
            enough = self._enough(inputs) if isinstance(inputs, Mapping) else None
            if enough is None:
                self._seen += 1
                yield batch
                continue
            self._seen, self._short = self._seen + len(enough), self._short + int((~enough).sum())
            if bool(enough.all()):
                yield batch
            elif bool(enough.any()):
                yield rows_of(given, enough)
        if self._seen == self._short > 0:
            others = ", or count special tokens too (tokens='all', --tokens all)" if self._content else ""
            raise FeatureError(f"no sample has {self._what()}: give longer texts{others}")

    @property
    def notes(self) -> list[str]:
        """How many were left out, if any."""
        return [f"{LEFT_OUT}{self._short} of {self._seen} samples, without {self._what()}"] if self._short else []

    def _what(self) -> str:
        kinds = "neither padding nor special" if self._content else "no padding"
        return f"two tokens to compare that are {kinds}"

    def _enough(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """Which samples have two tokens; None of what is no text, or nothing that can be taken apart."""
        ids = inputs.get("input_ids")
        if not isinstance(ids, Tensor) or ids.dim() != 2 or ids.is_floating_point() or NO_TEXT & set(inputs):
            return None
        if any(isinstance(x, Tensor) and x.dim() and len(x) != len(ids) for x in inputs.values()):
            return None
        kinds = TokenKinds.of_batch(inputs, 0, self._special.ids, self._model)
        kept = torch.ones_like(ids, dtype=torch.bool)
        for mask in (kinds.padding, kinds.special if self._content else None):
            kept &= ~mask if mask is not None and mask.shape == kept.shape else kept
        return kept.sum(-1) > 1
