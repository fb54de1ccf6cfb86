"""Measure features that somebody else's program saved: no model, the same numbers and the same result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from unsmooth.analysis.about import ModelFacts, Origin
from unsmooth.analysis.measuring.cells import layer_of
from unsmooth.analysis.measuring.fingerprint import sample_keys
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.measuring.measurer import Measurer
from unsmooth.analysis.measuring.running import Shape
from unsmooth.analysis.policies import TokenKinds
from unsmooth.errors import DataError, OptionError
from unsmooth.sources.features import by_point, read_features

Given = Mapping[str, Tensor] | str | Path
POLICIES = ("all", "content", "no-outliers")


def measure_features(
    features: Given | Iterable[Given],
    metrics: str | Sequence[str] = "paper",
    tokens: str | Sequence[str] = "all",
    *,
    layers: Sequence[int] | None = None,
    name: str | None = None,
    degenerate: str = "error",
    rank_budget: float | str | None = None,
) -> Measurement:
    """Measure how smooth saved features are, layer by layer.

    >>> states = {"layers.0": torch.eye(4), "layers.1": torch.ones(4, 4)}
    >>> measure_features(states, "effective_rank").frame()["mean"].round(3).tolist()
    [4.0, 1.0]

    Args:
        features: tensors of (tokens, width) or (batch, tokens, width) by name; a file of them (safetensors, or a
            pickle of tensors); a folder of such files; or several of these, all with the same names. Names may be
            ours, TransformerLens's, numbers of hidden states, or paths of modules (`unsmooth.sources.features`). An
            `attention_mask` among them says which tokens are not padding.
        metrics: as in `unsmooth.measure`.
        tokens: `all`, `content` (what the mask keeps) or `no-outliers`.
        layers: the layers along the second axis of a tensor `hidden_states`, as they were requested from vLLM.
        name: the name of the model in the result.
        degenerate: as in `unsmooth.measure`.
        rank_budget: as in `unsmooth.measure`.
    """
    if callable(items := getattr(features, "items", None)):  # TransformerLens's cache is no mapping
        features = dict(items())
    given: list[Given] = [features] if isinstance(features, Mapping | str | Path) else list(features)
    measurer: FeatureMeasurer | None = None
    for each in given:
        read = [by_point(each, layers)] if isinstance(each, Mapping) else read_features(each, layers)
        for found, mask in read:
            if measurer is None:
                measurer = FeatureMeasurer(found, metrics, tokens, name, _source(given), degenerate, rank_budget)
            measurer.add(found, mask)
    if measurer is None:
        raise DataError("nothing was measured: there were no features; give at least one file or mapping")
    return measurer.result()


class FeatureMeasurer(Measurer):
    """A measurer whose points are given to it instead of being met in a forward pass."""

    def __init__(
        self,
        like: Mapping[str, Tensor],
        metrics: str | Sequence[str],
        tokens: str | Sequence[str],
        name: str | None,
        source: str | None,
        degenerate: str,
        rank_budget: float | str | None,
    ) -> None:
        first = next(iter(like.values()))
        deepest = max((layer_of(point) or 0 for point in like), default=0)
        self._set_up(metrics, tokens, tuple(like), Shape("pre", deepest + 1, None), degenerate, rank_budget)
        if unknown := [policy for policy in self.policies if policy not in POLICIES]:
            raise OptionError.unknown("token policy of saved features", unknown[0], POLICIES)
        self._subject = ModelFacts(
            class_name=name or "saved features",
            family="features",
            placement="pre",
            layers=deepest + 1,
            width=first.shape[-1],
            dtype=str(first.dtype).removeprefix("torch."),
            device=str(first.device),
        )
        self.origin = Origin(data=source)

    def add(self, features: Mapping[str, Tensor], mask: Tensor | None) -> None:
        """The features of one batch, at the points of the first one."""
        if features.keys() != set(self.points):
            other = sorted(features.keys() ^ set(self.points))
            raise DataError(
                f"features must have the same points everywhere, but {', '.join(other[:3])} are in some batches only "
                f"(batch {self.batches})"
            )
        padding = None if mask is None else ~(mask if mask.dim() == 2 else mask[None])
        self._kinds = TokenKinds(padding=padding, text=True)
        self._note_padding()
        self._begin()
        with torch.no_grad():
            for point in self.points:
                self._previous = None
                self._on_point(point, features[point])
            first = features[self.points[0]]
            self._take_in(sample_keys(first, first))


def _source(given: Sequence[Given]) -> str | None:
    paths = [str(each) for each in given if not isinstance(each, Mapping)]
    return ", ".join(paths) or None
