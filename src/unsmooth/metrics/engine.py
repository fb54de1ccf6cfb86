"""From features inside a forward hook to one value per sample and metric, with nothing large kept."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.errors import FeatureError
from unsmooth.metrics import staging
from unsmooth.metrics.definitions import check_count
from unsmooth.metrics.degenerate import Flags
from unsmooth.metrics.dense import check_shapes
from unsmooth.metrics.features import Features
from unsmooth.metrics.postponed import Postponed
from unsmooth.metrics.registry import Metric
from unsmooth.metrics.staging import Mask, MaskOf, Stage, Stages, is_long
from unsmooth.metrics.statistics import ReducedFeatures, Statistics
from unsmooth.metrics.stopwatch import Stopwatch

PENDING_BYTES = 1 << 28  # of Gram matrices that wait on a CPU; more are solved before the forward goes on
Key = TypeVar("Key", bound=Hashable)
Groups = dict[tuple[Any, ...], list[tuple[dict[Key, int], Statistics]]]  # by shape and device: keys, their sizes
Choice = Callable[[int, int], Sequence[int] | None]


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
            if not (f.without_eigenvalues(which) and all(m.sums_only for m in metrics if m.spectrum == which)):
                f.singular_values(which)  # first: other metrics use the Gram matrix if it is there
        return cls({metric.name: metric.value(f) for metric in metrics}, Flags.of(f), f.count)

    def rows(self) -> tuple[list[str], Float[Tensor, "row batch"]]:
        """Everything as one matrix, and what its rows are."""
        flags = {f"{FLAG}{f.name}": getattr(self.flags, f.name) for f in fields(Flags)}
        columns = {**self.values, **flags, COUNT: self.count}
        return list(columns), torch.stack([column.to(torch.float64) for column in columns.values()])


FLAG, COUNT = "flag ", "tokens kept"  # rows beside the metrics


class Evaluator(Generic[Key]):
    """Reduces features to metric values: `add` inside a forward hook, `flush` after each forward.

    On the CPU `add` computes everything but eigenvalues, which wait for many points together. On a GPU (`deferred`) it
    copies the tokens to a place where several points wait, and these are reduced to statistics by the same few
    launches; nothing waits for the device before `flush`. Neither keeps `x`, and nothing survives `flush`. Long inputs
    are reduced where they lie, a chunk at a time: no copy of them is made, in float64 or otherwise.

    `choose`, given the rows of a Gram matrix and the size of the batch, says whose spectra are found (None: all).
    """

    def __init__(self, metrics: Sequence[Metric], deferred: bool | None = None, choose: Choice | None = None):
        self.metrics = tuple(metrics)
        self.flagged: dict[Key, Flags] = {}  # the keys with a sample that is flagged
        self.norms: dict[Key, Float[Tensor, "batch token"]] = {}  # of all tokens, for the keys that asked
        self.chosen: dict[Key, Sequence[int]] = {}  # the samples whose spectra were found, where not everybody's
        self.stopwatch = Stopwatch()  # of the spectra
        self._deferred = deferred
        self._choose = choose
        self._plain = [metric for metric in self.metrics if not metric.spectrum]
        self._spectral = [metric for metric in self.metrics if metric.spectrum]
        spectra = list(dict.fromkeys(m.spectrum for m in self._spectral))
        enough = [which for which in spectra if all(m.sums_only for m in self._spectral if m.spectrum == which)]
        self._postponed: Postponed[Key] = Postponed(spectra, enough)
        self.clear()

    def add(self, key: Key, x: Float[Tensor, "batch token dim"], mask: Mask = None) -> None:
        """Reduce the features of one point."""
        self.add_each(x, {key: mask})

    def add_each(
        self, x: Float[Tensor, "batch token dim"], masks: Mapping[Key, Mask | MaskOf], keep_norms: Key | None = None
    ) -> None:
        """Reduce the same features under several masks, computing once what they share.

        A mask may be a function of the tokens' norms, which is called for several points at once.
        """
        check_shapes(x, None)
        wide = dict(masks)
        for key, mask in masks.items():
            if key in self._order:
                raise ValueError(f"{key!r} was added twice before flush()")
            if isinstance(mask, Tensor):
                check_shapes(x, mask)
                wide[key] = mask.expand(x.shape[:-1])
        x = x.detach() if x.requires_grad else x
        deferred = (x.is_cuda or is_long(x)) if self._deferred is None else self._deferred
        reduce = self._stage if deferred else self._reduce
        if torch.is_grad_enabled():
            with torch.no_grad():
                reduce(x, wide, keep_norms)
        else:  # this is called a few hundred times in a forward pass
            reduce(x, wide, keep_norms)
        self._order.update(dict.fromkeys(wide))

    def flush(self) -> dict[Key, dict[str, Float[Tensor, " batch"]]]:
        """Values per key and metric, float64 on the CPU, in the order of `add`; then forget them.

        Sets `flagged`, `norms` and `chosen`. A sample that was not chosen has NaN for the metrics of its spectrum.
        """
        try:
            with torch.no_grad():
                for stage in self._stages.take_all():
                    self._reduce_stage(stage)
                self._settle()
                self._solve()
                done = self._arrived()
            self.norms, self.chosen = self._norms, self._chosen
        finally:
            self.clear()
        return {key: {m.name: torch.from_numpy(rows[m.name]) for m in self.metrics} for key, rows in done.items()}

    def _arrived(self) -> dict[Key, dict[str, npt.NDArray[np.float64]]]:
        """All rows by key, with one transfer for each group of points, in the order of `add`."""
        done: dict[Key, dict[str, npt.NDArray[np.float64]]] = {key: {} for key in self._order}
        least = max((metric.at_least for metric in self.metrics), default=1)
        self.flagged, few = {}, False
        for sizes, names, matrix in self._ready:
            host, start = matrix.cpu().numpy(), 0
            marks = [i for i, name in enumerate(names) if name.startswith(FLAG)]
            marked = bool(host[marks].any())
            few = few or (COUNT in names and host[names.index(COUNT)].min(initial=least) < least)
            for key, size in sizes.items():
                block = host[:, start : start + size]
                done[key].update(zip(names, block, strict=True))
                if marked and block[marks].any():
                    self.flagged[key] = Flags(*torch.from_numpy(block[marks] != 0))
                start += size
        for key in self._order if few else ():
            self._refuse(key, done[key][COUNT], least)
        for key, chosen in self._chosen.items():
            self._spread_out(done[key], chosen)
        return done

    def clear(self) -> None:
        """Forget what was added since the last `flush`."""
        self._ready: list[tuple[dict[Key, int], list[str], Tensor]] = []  # keys with their sizes, and their rows
        self._order: dict[Key, None] = {}
        self._norms: dict[Key, Tensor] = {}
        self._chosen: dict[Key, Sequence[int]] = {}
        self._postponed = Postponed(self._postponed.spectra, self._postponed.sums)
        self._waiting: Groups[Key] = defaultdict(list)
        self._grams: Groups[Key] = defaultdict(list)
        self._stages: Stages[Key] = Stages()

    def _refuse(self, key: Key, count: npt.NDArray[np.float64], least: int) -> None:
        try:
            check_count(torch.from_numpy(count), least)
        except FeatureError as error:
            name = ", ".join(map(str, key)) if isinstance(key, tuple) else key
            raise FeatureError(f"{name}: {error}") from None

    def _spread_out(self, rows: dict[str, npt.NDArray[np.float64]], chosen: Sequence[int]) -> None:
        """Put the values of the chosen samples in their places; NaN is the others'."""
        for name in (metric.name for metric in self._spectral):
            wide = np.full_like(rows[COUNT], math.nan)
            if chosen:
                wide[list(chosen)] = rows[name]
            rows[name] = wide

    def _whose(self, x: Tensor) -> Sequence[int] | None:
        if not self._spectral or self._choose is None:
            return None
        chosen = self._choose(min(x.shape[-2:]), x.shape[-3])
        return None if chosen is None or len(chosen) == x.shape[-3] else chosen

    def _reduce(self, x: Tensor, masks: dict[Key, Mask | MaskOf], keep_norms: Key | None) -> None:
        chosen, given = self._whose(x), list(masks.values())
        spectra = self._postponed.spectra if chosen is None else ()
        alone = given[0] if len(given) == 1 and keep_norms is None and isinstance(given[0], Tensor) else None
        whole = Features(x, alone)
        if alone is not None or None in given:
            self._form(whole, spectra)  # first: other metrics use the Gram matrix if it is there
        if keep_norms is not None:
            self._norms[keep_norms] = whole.norms
        known = {key: mask(whole.norms) if callable(mask) else mask for key, mask in masks.items()}
        seen = {key: whole if mask is None or mask is alone else whole.masked(mask) for key, mask in known.items()}
        for key, f in seen.items():
            self._form(f, spectra)
            self._ready.append(({key: len(x)}, *Sample.of(f, self._plain).rows()))
            if chosen is not None:
                self._chosen[key] = chosen
                picked, mask = list(chosen), known[key]
                f = Features(x[picked], None if mask is None else mask[picked])
                self._form(f, self._postponed.spectra if picked else ())
            if self._spectral and (chosen is None or chosen):
                self._postponed.add(key, f)
        if self._postponed.nbytes > PENDING_BYTES:
            self._solve()

    def _form(self, f: Features, spectra: Sequence[str]) -> None:
        with self.stopwatch.on(f.device):
            for which in spectra:
                getattr(f, which)

    def _solve(self) -> None:
        """Values of the metrics that waited for their eigenvalues on the CPU."""
        with self.stopwatch.on(torch.device("cpu")):
            for key, f in self._postponed.solve().items():
                found = torch.stack([m.value(f) for m in self._spectral])
                self._ready.append(({key: found.shape[-1]}, [m.name for m in self._spectral], found))

    def _stage(self, x: Tensor, masks: dict[Key, Mask | MaskOf], keep_norms: Key | None) -> None:
        if (stage := self._stages.add(x, masks, keep_norms)) is not None:
            self._reduce_stage(stage)

    def _reduce_stage(self, stage: Stage[Key]) -> None:
        """Statistics of several points together, and the Gram matrices of those whose spectra are wanted."""
        x = stage.tokens[: len(stage.points)]
        points, batch = x.shape[:2]
        flat, chosen = x.flatten(0, 1), self._whose(x)
        whole = Statistics.of(flat, None)
        norms = whole.norms.unflatten(0, (points, batch))
        for (_, asked), each in zip(stage.points, norms, strict=True):
            if asked is not None:
                self._norms[asked] = each
        direct = [metric for metric in self.metrics if metric.needs_tokens]
        for place, given in enumerate(stage.points[0][0].values()):
            keys = [list(masks)[place] for masks, _ in stage.points]
            mask = given(norms) if callable(given) else given
            mask = None if mask is None else mask.expand(norms.shape).flatten(0, 1)
            found = whole if mask is None else Statistics.of(flat, mask)
            self._waiting[*x.shape[2:], x.device].append((dict.fromkeys(keys, batch), found))
            rows = [range(i * batch, (i + 1) * batch) for i in range(points)]
            for key, own in zip(keys, rows, strict=True):
                if direct:
                    kept = None if mask is None else mask[own.start : own.stop]
                    sample = Sample.of(Features(flat[own.start : own.stop], kept), direct)
                    self._ready.append(({key: batch}, *sample.rows()))
                if self._spectral:
                    self._take_gram(key, flat, found, mask is not None, own, chosen)

    def _take_gram(
        self, key: Key, x: Tensor, found: Statistics, masked: bool, own: range, chosen: Sequence[int] | None
    ) -> None:
        picked: Any = slice(own.start, own.stop)
        if chosen is not None:
            self._chosen[key] = chosen
            picked = [own[i] for i in chosen]
        if chosen is None or chosen:
            with self.stopwatch.on(x.device):
                formed = found[picked].with_gram(x[picked], masked)
            self._grams[*x.shape[1:], x.device].append(({key: len(formed.norms)}, formed))
        if sum(s.nbytes for group in self._grams.values() for _, s in group) > staging.DEFERRED_BYTES:
            self._settle_grams()

    def _settle(self) -> None:
        """Turn the waiting statistics into values, all points of one shape together."""
        plain = [metric for metric in self._plain if not metric.needs_tokens]
        self._settle_groups(self._waiting, plain)
        self._settle_grams()

    def _settle_grams(self) -> None:
        if self._grams:
            for device in {found.norms.device for group in self._grams.values() for _, found in group}:
                with self.stopwatch.on(device):
                    chosen = {shape: group for shape, group in self._grams.items() if shape[-1] == device}
                    self._settle_groups(chosen, self._spectral)
            self._grams.clear()

    def _settle_groups(self, groups: Groups[Key], metrics: Sequence[Metric]) -> None:
        for group in groups.values():
            together = Sample.of(ReducedFeatures(Statistics.cat([found for _, found in group])), metrics)
            names, rows = together.rows()
            if metrics is self._spectral:  # the rest is known of all samples, not only of those chosen
                names, rows = names[: len(metrics)], rows[: len(metrics)]
            sizes = {key: size for keys, _ in group for key, size in keys.items()}
            self._ready.append((sizes, names, rows))
        groups.clear()
