"""One walk over the data gives everything the page shows of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from unsmooth.analysis.explainer import Explainer
from unsmooth.analysis.explanation import Explanation
from unsmooth.analysis.measurement import Measurement
from unsmooth.analysis.measurer import Measurer
from unsmooth.analysis.subject import Subject
from unsmooth.analysis.token_view import view_tokens
from unsmooth.errors import WeightsError
from unsmooth.metrics.registry import METRICS

if TYPE_CHECKING:
    from unsmooth.sources import Data, LoadedModel

Track = Callable[[Iterable[Any], str, int | None], Iterable[Any]]
TOKENS = {"images": ("all", "patches", "no-outliers"), "text": ("all", "content", "no-outliers")}


def collect(
    loaded: LoadedModel,
    data: Data,
    name: str | None = None,
    *,
    metrics: str | Sequence[str] | None = None,
    tokens: str | None = None,
    explain_inputs: int = 8,
    example: int = 0,
    degenerate: str = "error",
    track: Track | None = None,
) -> Subject:
    """Measure a model on all of the data, explain it on the first inputs, look at the tokens of one example.

    Args:
        loaded: the model and how to feed it.
        data: what to feed it; it is read once.
        name: what the page calls the model, its reference by default.
        metrics: presets and metric names; every registered metric by default, because they share their spectra.
        tokens: token policies, with commas; what fits the modality by default.
        explain_inputs: how many inputs are explained (spectra and exponents cost more than measuring); 0 for none.
        example: which sample of the first batch the token view shows.
        degenerate: `error` or `keep`, as in `unsmooth.measure`.
        track: wraps an iterable of batches to show progress.
    """
    walk: Track = track or (lambda batches, label, total: batches)
    label = name or loaded.reference
    policies = tokens or ",".join(TOKENS.get(loaded.modality, ("all", "no-outliers")))
    special = loaded.tokenizer.all_special_ids if loaded.tokenizer is not None else ()
    first: Any = None
    kept: list[Any] = []
    with Measurer(
        loaded.model, metrics or tuple(METRICS), policies, special_ids=special, degenerate=degenerate
    ) as measurer:
        for batch in walk(data, f"measuring {label}", data.samples):
            first = batch if first is None else first
            kept += _first(batch, explain_inputs - sum(map(_size, kept)))
            measurer.update(batch)
    measurement, explanation = measurer.result(), None
    if kept:
        try:
            explanation = _explain(loaded, kept, label, walk)
        except WeightsError as error:  # a family without separable weights can be measured all the same
            measurement.notes.append(f"not explained: {error}")
    for found in (measurement, explanation):
        if found is not None:
            _name(found, loaded, data)
    return Subject(label, measurement, explanation, view_tokens(loaded, first, min(example, _size(first) - 1)))


def _explain(loaded: LoadedModel, kept: list[Any], label: str, walk: Track) -> Explanation:
    with Explainer(loaded.model) as explainer:
        for batch in walk(list(_singly(kept)), f"explaining {label}", sum(map(_size, kept))):
            explainer.update(batch)
    return explainer.result()


def _name(found: Measurement | Explanation, loaded: LoadedModel, data: Data) -> None:
    found.about["model"] |= {"reference": loaded.reference, "weights": loaded.weights_hash}
    found.about["data"] |= {"reference": data.reference, "kind": data.kind}


def _size(batch: Any) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)


def _first(batch: Any, count: int) -> list[Any]:
    """The first samples of a batch, in a list that is empty when none are wanted."""
    if count <= 0:
        return []
    if isinstance(batch, Mapping):
        return [{name: value[:count] for name, value in batch.items()}]
    assert isinstance(batch, Tensor)
    return [batch[:count]]


def _singly(kept: list[Any], size: int = 4) -> Iterator[Any]:
    """Smaller batches, so that progress can be seen and memory stays low."""
    for batch in kept:
        for start in range(0, _size(batch), size):
            if isinstance(batch, Mapping):
                yield {name: value[start : start + size] for name, value in batch.items()}
            else:
                yield batch[start : start + size]
