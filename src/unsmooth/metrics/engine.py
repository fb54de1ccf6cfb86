"""From features inside a forward hook to one value per sample and metric, with nothing large kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.errors import FeatureError
from unsmooth.metrics.definitions import check_count
from unsmooth.metrics.features import Features, check_shapes
from unsmooth.metrics.postponed import Postponed
from unsmooth.metrics.registry import Metric
from unsmooth.metrics.statistics import ReducedFeatures, Statistics

PENDING_BYTES = 1 << 28  # of statistics that wait; more are settled before the forward goes on
Key = TypeVar("Key", bound=Hashable)
Mask = Bool[Tensor, "batch token"] | None


@dataclass(frozen=True)
class Flags:
    """Samples on which some metric is not an ordinary number."""

    nonfinite: Bool[Tensor, " batch"]
    zero_token: Bool[Tensor, " batch"]
    zero_mean: Bool[Tensor, " batch"]
    all_zero: Bool[Tensor, " batch"]

    @classmethod
    def of(cls, f: Features) -> Flags:
        """The flags of each sample."""
        return cls(f.nonfinite, f.zero_token, f.zero_mean, f.all_zero)

    def message(self) -> str:
        """What the values mean where a sample is degenerate; empty if none is."""
        said = [text.format(int(getattr(self, name).sum())) for name, text in MEANING.items()]
        return "; ".join(text for name, text in zip(MEANING, said, strict=True) if bool(getattr(self, name).any()))


MEANING = {
    "nonfinite": "NaN or infinity in {} samples: no metric is defined on them",
    "all_zero": "all features are zero in {} samples: HFC/LFC and the ranks are 0/0 (nan), cosine similarity is 0",
    "zero_mean": "the mean token is zero in {} samples: LFC = 0, so that HFC/LFC is infinite",
    "zero_token": "a token is zero everywhere in {} samples: it has no direction and counts with cosine 0",
}


@dataclass
class Sample:
    """What is left of one set of features: values per metric, flags, and how many tokens there were."""

    values: dict[str, Float[Tensor, " batch"]]
    flags: Flags
    count: Float[Tensor, " batch"]

    @classmethod
    def of(cls, f: Features, metrics: Sequence[Metric]) -> Sample:
        """Evaluate these metrics."""
        for which in dict.fromkeys(metric.spectrum for metric in metrics if metric.spectrum):
            f.singular_values(which)  # first: other metrics use the Gram matrix if it is there
        return cls({metric.name: metric.value(f) for metric in metrics}, Flags.of(f), f.count)

    def columns(self) -> list[Tensor]:
        """All tensors, values first."""
        return [*self.values.values(), *(getattr(self.flags, f.name) for f in fields(Flags)), self.count]

    def like(self, columns: Sequence[Tensor]) -> Sample:
        """A sample of the same metrics made of other columns."""
        values = dict(zip(self.values, columns, strict=False))
        flags = columns[len(values) : -1]
        return Sample(values, Flags(*(flag.bool() for flag in flags)), columns[-1])

    def split(self, sizes: list[int]) -> list[Sample]:
        """Cut the batch."""
        pieces = [column.split(sizes) for column in self.columns()]
        return [self.like(columns) for columns in zip(*pieces, strict=True)]


class Evaluator(Generic[Key]):
    """Reduces features to metric values: `add` inside a forward hook, `flush` after each forward.

    On the CPU `add` computes everything but eigenvalues. On a GPU (`deferred`) it only enqueues a reduction to
    statistics and does not wait. What is left to do collects up to PENDING_BYTES, so that eigenvalues (on a GPU, the
    many small steps too) run for many points together. Neither keeps `x`, and nothing survives `flush`.
    """

    def __init__(self, metrics: Sequence[Metric], deferred: bool | None = None):
        self.metrics = tuple(metrics)
        self.nonfinite: set[Key] = set()
        self.flags: dict[Key, Flags] = {}
        self._deferred = deferred
        self._done: dict[Key, Sample] = {}
        self._waiting: dict[tuple[int, ...], dict[Key, Statistics]] = defaultdict(dict)
        self._order: list[Key] = []
        spectra = dict.fromkeys(metric.spectrum for metric in self.metrics if metric.spectrum)
        self._postponed: Postponed[Key] = Postponed(list(spectra))

    def add(self, key: Key, x: Float[Tensor, "batch token dim"], mask: Mask = None) -> None:
        """Reduce the features of one point."""
        self.add_each(x, {key: mask})

    def add_each(self, x: Float[Tensor, "batch token dim"], masks: Mapping[Key, Mask]) -> None:
        """Reduce the same features under several masks, computing once what they share."""
        wide: dict[Key, Mask] = {}
        for key, mask in masks.items():
            if key in self._order:
                raise ValueError(f"{key!r} was added twice before flush()")
            check_shapes(x, mask)
            wide[key] = None if mask is None else mask.expand(x.shape[:-1])
        with torch.no_grad():
            if x.is_cuda if self._deferred is None else self._deferred:
                self._enqueue(x.detach(), wide)
            else:
                self._reduce(x.detach(), wide)
        self._order += wide

    def flush(self) -> dict[Key, dict[str, Float[Tensor, " batch"]]]:
        """Values per key and metric, float64 on the CPU, in the order of `add`; then forget them.

        Sets `flags`, and `nonfinite` to the keys with NaN or infinity in a kept token.
        """
        try:
            with torch.no_grad():
                self._settle()
                self._solve()
                arrived = to_cpu(self._done)
            done = {key: arrived[key] for key in self._order}
            for key, sample in done.items():
                self._check(key, sample)
        finally:
            self.clear()
        self.flags = {key: sample.flags for key, sample in done.items()}
        self.nonfinite = {key for key, flags in self.flags.items() if bool(flags.nonfinite.any())}
        return {key: {m.name: sample.values[m.name] for m in self.metrics} for key, sample in done.items()}

    def clear(self) -> None:
        """Forget what was added since the last `flush`."""
        self._done, self._order, self._postponed = {}, [], Postponed(self._postponed.spectra)
        self._waiting.clear()

    def _check(self, key: Key, sample: Sample) -> None:
        try:
            check_count(sample.count, max(metric.at_least for metric in self.metrics))
        except FeatureError as error:
            name = ", ".join(map(str, key)) if isinstance(key, tuple) else key
            raise FeatureError(f"{name}: {error}") from None

    def _reduce(self, x: Tensor, masks: dict[Key, Mask]) -> None:
        plain = [metric for metric in self.metrics if not metric.spectrum]
        for key, f in each_mask(x, masks).items():
            for which in self._postponed.spectra:
                getattr(f, which)  # first: other metrics use the Gram matrix if it is there
            self._done[key] = Sample.of(f, plain)
            self._postponed.add(key, f)
        if self._postponed.nbytes > PENDING_BYTES:
            self._solve()

    def _solve(self) -> None:
        """Values of the metrics that waited for their eigenvalues on the CPU."""
        for key, f in self._postponed.solve().items():
            self._done[key].values.update({m.name: m.value(f) for m in self.metrics if m.spectrum})

    def _enqueue(self, x: Tensor, masks: dict[Key, Mask]) -> None:
        direct = [metric for metric in self.metrics if metric.needs_tokens]
        for key, mask in masks.items():
            if direct:
                self._done[key] = Sample.of(Features(x, mask), direct)
            if len(direct) < len(self.metrics):
                self._waiting[tuple(x.shape[1:])][key] = Statistics.of(x, mask)
        if sum(s.nbytes for group in self._waiting.values() for s in group.values()) > PENDING_BYTES:
            self._settle()

    def _settle(self) -> None:
        """Turn the waiting statistics into values, all points of one shape together."""
        metrics = [metric for metric in self.metrics if not metric.needs_tokens]
        for group in self._waiting.values():
            together = Sample.of(ReducedFeatures(Statistics.cat(list(group.values()))), metrics)
            for key, sample in zip(group, together.split([len(s.norms) for s in group.values()]), strict=True):
                if key in self._done:
                    sample.values.update(self._done[key].values)
                self._done[key] = sample
        self._waiting.clear()


def each_mask(x: Float[Tensor, "batch token dim"], masks: Mapping[Key, Mask]) -> dict[Key, Features]:
    """Features under each mask; what does not depend on the mask is shared."""
    if len(masks) == 1:
        return {key: Features(x, mask) for key, mask in masks.items()}
    whole = Features(x)
    return {key: whole if mask is None else whole.masked(mask) for key, mask in masks.items()}


def to_cpu(samples: Mapping[Key, Sample]) -> dict[Key, Sample]:
    """All samples, with one transfer if they are on a device."""
    columns = [column for sample in samples.values() for column in sample.columns()]
    if all(column.device.type == "cpu" for column in columns):
        return dict(samples)
    moved = iter(torch.cat([c.to(torch.float64) for c in columns]).cpu().split([len(c) for c in columns]))
    return {key: sample.like([next(moved) for _ in sample.columns()]) for key, sample in samples.items()}
