"""From features inside a forward hook to one value per sample and metric, with nothing large kept."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.errors import FeatureError
from unsmooth.measure.device_spectra import DeviceSpectra
from unsmooth.measure.features import Features
from unsmooth.measure.metrics import check_count
from unsmooth.measure.registry import Metric
from unsmooth.measure.workers import even_slices, spread

LAPACK_USES_THREADS = 512  # rows of a Gram matrix from which one eigenproblem gains from several threads
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


class Evaluator(Generic[Key]):
    """Reduces features to metric values: `add` inside a forward hook, `flush` after each forward.

    On the CPU `add` computes the values at once, a part of the batch per thread. On CUDA it only enqueues
    work and never waits; Gram matrices are collected up to a fixed size, so that their eigenvalues are
    found by few, full launches. Neither keeps `x`, and nothing survives `flush`.
    """

    def __init__(self, metrics: Sequence[Metric]):
        self.metrics = tuple(metrics)
        self._which = tuple(dict.fromkeys(metric.spectrum for metric in self.metrics if metric.spectrum))
        self.nonfinite: set[Key] = set()
        self.flags: dict[Key, Flags] = {}
        self._done: dict[Key, Sample] = {}
        self._waiting: dict[Key, tuple[Features, Sample]] = {}
        self._spectra = DeviceSpectra()

    def add(
        self,
        key: Key,
        x: Float[Tensor, "batch token dim"],
        mask: Mask = None,
    ) -> None:
        """Reduce the features of one point."""
        self.add_each(x, {key: mask})

    def add_each(self, x: Float[Tensor, "batch token dim"], masks: Mapping[Key, Mask]) -> None:
        """Reduce the same features under several masks, computing once what they share."""
        for key in masks:
            if key in self._done or key in self._waiting:
                raise ValueError(f"{key!r} was added twice before flush()")
        with torch.no_grad():
            if x.is_cuda:
                self._enqueue(x.detach(), masks)
            else:
                self._reduce(x.detach(), masks)

    def flush(self) -> dict[Key, dict[str, Float[Tensor, " batch"]]]:
        """Values per key and metric, float64 on the CPU, in the order of `add`; then forget them.

        Sets `flags`, and `nonfinite` to the keys with NaN or infinity in a kept token.
        """
        try:
            with torch.no_grad():
                done = self._done | (self._collect() if self._waiting else {})
                for key, sample in done.items():
                    self._check(key, sample)
        finally:
            self._done, self._waiting, self._spectra = {}, {}, DeviceSpectra()
        self.flags = {key: sample.flags for key, sample in done.items()}
        self.nonfinite = {key for key, flags in self.flags.items() if bool(flags.nonfinite.any())}
        return {key: sample.values for key, sample in done.items()}

    def _check(self, key: Key, sample: Sample) -> None:
        try:
            check_count(sample.count, max(metric.at_least for metric in self.metrics))
        except FeatureError as error:
            raise FeatureError(f"{key}: {error}") from None

    def _reduce(self, x: Tensor, masks: Mapping[Key, Mask]) -> None:
        wide = {key: None if mask is None else mask.expand(x.shape[:-1]) for key, mask in masks.items()}

        @torch.no_grad()
        def part(rows: slice) -> dict[Key, Sample]:
            chosen = {key: None if mask is None else mask[rows] for key, mask in wide.items()}
            return {key: self._sample(f) for key, f in each_mask(x[rows], chosen).items()}

        threads = torch.get_num_threads()
        if len(x) < threads and min(x.shape[-2:]) >= LAPACK_USES_THREADS:
            parts = [part(slice(None))]
        else:
            parts = spread(part, even_slices(len(x), threads))
        for key in masks:
            self._done[key] = join([p[key] for p in parts])

    def _enqueue(self, x: Tensor, masks: Mapping[Key, Mask]) -> None:
        for key, f in each_mask(x, masks).items():
            for which in self._which:
                self._spectra.ask(f, which)
            direct = {metric.name: metric.value(f) for metric in self.metrics if not metric.spectrum}
            self._waiting[key] = f, Sample(direct, Flags.of(f), f.count)
            f.release()

    def _collect(self) -> dict[Key, Sample]:
        self._spectra.finish()
        for f, sample in self._waiting.values():
            spectral = {m.name: m.value(f) for m in self.metrics if m.spectrum}
            sample.values = {m.name: (spectral if m.spectrum else sample.values)[m.name] for m in self.metrics}
        return to_cpu({key: sample for key, (_, sample) in self._waiting.items()})

    def _sample(self, f: Features) -> Sample:
        for which in self._which:  # first: other metrics use the Gram matrix if it is there
            f.singular_values(which)
        return Sample({metric.name: metric.value(f) for metric in self.metrics}, Flags.of(f), f.count)


def each_mask(x: Float[Tensor, "batch token dim"], masks: Mapping[Key, Mask]) -> dict[Key, Features]:
    """Features under each mask; what does not depend on the mask is shared."""
    if len(masks) == 1:
        return {key: Features(x, mask) for key, mask in masks.items()}
    whole = Features(x)
    return {key: whole if mask is None else whole.masked(mask) for key, mask in masks.items()}


def join(parts: Sequence[Sample]) -> Sample:
    """The samples of one key, computed in parts, in order."""
    if len(parts) == 1:
        return parts[0]
    values = {name: torch.cat([p.values[name] for p in parts]) for name in parts[0].values}
    flags = Flags(*(torch.cat([getattr(p.flags, f.name) for p in parts]) for f in fields(Flags)))
    return Sample(values, flags, torch.cat([p.count for p in parts]))


def to_cpu(samples: dict[Key, Sample]) -> dict[Key, Sample]:
    """All samples with one transfer."""
    columns = [
        column
        for s in samples.values()
        for column in (*s.values.values(), *(getattr(s.flags, f.name) for f in fields(Flags)), s.count)
    ]
    moved = torch.cat([c.to(torch.float64) for c in columns]).cpu().split([len(c) for c in columns])
    arrived = iter(moved)
    return {
        key: Sample(
            {name: next(arrived) for name in s.values},
            Flags(*(next(arrived).bool() for _ in fields(Flags))),
            next(arrived),
        )
        for key, s in samples.items()
    }
