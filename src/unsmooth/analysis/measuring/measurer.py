"""One forward pass per batch yields every requested number; kept are accumulators, and few values per sample."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.analysis.about import (
    THROUGH_THE_ORIGINAL,
    About,
    DataFacts,
    Definitions,
    ModelFacts,
    Origin,
    is_compiled,
    module_of,
)
from unsmooth.analysis.measuring.budget import RankBudget
from unsmooth.analysis.measuring.changes import READINGS
from unsmooth.analysis.measuring.extremes import STREAM, Extremes
from unsmooth.analysis.measuring.fingerprint import batch_keys, sample_keys
from unsmooth.analysis.measuring.measurement import Measurement, MeasureSettings
from unsmooth.analysis.measuring.over_data import over_data
from unsmooth.analysis.measuring.running import RunningTables, Shape
from unsmooth.analysis.measuring.zeros import refuse_zeros, zero_tokens
from unsmooth.analysis.policies import (
    COUNT_PADDING,
    PADDED,
    POLICIES,
    TokenKinds,
    mask_by_norms,
    norms_of,
    resolve_policies,
)
from unsmooth.analysis.special import SpecialTokens
from unsmooth.analysis.walk import Hooked, Seen, nothing
from unsmooth.metrics.degenerate import check_rule, degeneracies
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.registry import Metric, resolve
from unsmooth.metrics.second_moment import SecondMoment
from unsmooth.metrics.staging import MaskOf
from unsmooth.models import ModelView, hook_points, select_points, split_point, view
from unsmooth.models.forward import call
from unsmooth.models.inputs import each_batch
from unsmooth.models.storage import home
from unsmooth.sources.loaded import LoadedModel


def measure(
    model: nn.Module | LoadedModel,
    batches: Iterable[Any],
    metrics: str | Sequence[str] = "paper",
    tokens: str | Sequence[str] = "all",
    points: str | Sequence[str] = "all",
    *,
    special_ids: Iterable[int] | None = None,
    tokenizer: Any = None,
    degenerate: str = "error",
    rank_budget: float | str | None = None,
    origin: Origin | None = None,
) -> Measurement:
    """Measure how similar a Transformer's tokens are, at every point of every layer.

    Args:
        model: any supported Transformer; its mode, dtype, device and hooks are as before afterwards.
        batches: image tensors, dicts of keyword inputs (Hugging Face), or tuples whose first item is the input.
        metrics: a preset (`paper`, `rankme`, …) or metric names.
        tokens: one or several token policies: `all`, `patches`, `content`, `no-outliers`.
        points: `all`, `residual`, point names or patterns such as `blocks.*.attn`.
        special_ids: ids of special tokens, for the policy `content`; none at all if empty. By default they are those
            of the `tokenizer`, else of the model's configuration; a batch's `special_tokens_mask` goes before both.
        tokenizer: the model's, for its special tokens.
        degenerate: `error` refuses samples on which a metric is undefined (a zero token, a zero mean);
            `keep` counts them by a conventional value, and says so in the notes.
        rank_budget: limit of the time of measuring, as a multiple of that of the forward passes. To keep it, effective
            rank is computed for every 2nd, 4th, 8th, … sample only, and a note says so. By default 2 if tokens and
            width exceed 288, and no limit otherwise; a number applies to every size; `exact` computes the rank of every
            sample.
        origin: where model and data come from; known already where both were loaded by reference.
    """
    origin = origin or Origin.of(model, batches)
    with Measurer(
        model, metrics, tokens, points, special_ids=special_ids, tokenizer=tokenizer, degenerate=degenerate,
        rank_budget=rank_budget, origin=origin,
    ) as measurer:  # fmt: skip
        for batch in each_batch(batches):
            measurer.update(batch)
    return measurer.result()


class Measurer(Hooked):
    """`measure`, batch by batch: enter, `update` with each batch, leave, take the `result`."""

    _special = SpecialTokens(None, told=False)

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        metrics: str | Sequence[str] = "paper",
        tokens: str | Sequence[str] = "all",
        points: str | Sequence[str] = "all",
        *,
        special_ids: Iterable[int] | None = None,
        tokenizer: Any = None,
        degenerate: str = "error",
        rank_budget: float | str | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.view = view(module_of(model))
        self._subject: ModelView | ModelFacts = self.view  # what the result is about
        self.origin = origin or Origin.of(model)
        self._special = SpecialTokens.find(model, special_ids, tokenizer)
        shape = Shape(self.view.family.placement, len(self.view.layers), self.view.points)
        self._set_up(metrics, tokens, select_points(self.view, points), shape, degenerate, rank_budget)
        if is_compiled(model):
            self.notes[THROUGH_THE_ORIGINAL] = None

    def _set_up(
        self,
        metrics: str | Sequence[str],
        tokens: str | Sequence[str],
        points: tuple[str, ...],
        shape: Shape,
        degenerate: str,
        rank_budget: float | str | None,
    ) -> None:
        """Everything that does not ask for a model."""
        self.metrics: tuple[Metric, ...] = resolve(metrics)
        self.policies = resolve_policies(tokens)
        self.points = points
        self.batches = 0
        self.notes: dict[str, None] = {}
        self._budget = RankBudget(rank_budget)
        self._per_sample = tuple(metric for metric in self.metrics if not metric.over_data)
        self._over_data = tuple(metric for metric in self.metrics if metric.over_data)
        self._moments: dict[tuple[str, str], SecondMoment] = {}
        self._evaluator: Evaluator[tuple[str, str]] = Evaluator(self._per_sample, choose=self._budget.choose)
        self._spectral = {metric.name for metric in self.metrics if metric.spectrum}
        self._degenerate = check_rule(degenerate)
        self._tables = RunningTables(self.points, [metric.name for metric in self._per_sample], self.policies, shape)
        self._extremes = Extremes(self.policies)
        self._stream = {p: (p, self.policies[0]) for p in self.points if split_point(p)[1] in STREAM}
        self._size = 0  # of the batch
        self._began = 0.0
        self._masks: dict[str, MaskOf | None] = {}
        self._listening = False  # to the forward passes of `update`, no others
        self._kinds = TokenKinds()
        self._same_as: dict[str, str] = {}
        self._previous: Seen | None = None

    def hooks(self) -> Iterable[AbstractContextManager[Any]]:
        """On every point that is measured."""
        yield hook_points(self.view, self.points, self._on_point)

    def before(self, inputs: Any) -> None:
        """Look at the inputs of the forward pass that comes now."""
        self.require_hooks()
        self._kinds = self._special.kinds(inputs, self.view, self.policies)
        self._note_padding()
        self._try_out(inputs)
        self._begin()

    def _begin(self) -> None:
        self._masks = {p: None if p == "all" else partial(mask_by_norms, p, kinds=self._kinds) for p in self.policies}
        self._same_as = {}
        self._listening = True
        self._began = time.perf_counter()

    def after(self, batch: Any, inputs: Any) -> None:
        """Take in what the forward pass left."""
        # A device is at work on the forward pass now: keys come for nothing, and `flush` waits for them too.
        self._take_in(sample_keys(batch, inputs) if self.view.batch_first else batch_keys(batch, self._size))

    def _take_in(self, keys: Tensor | None) -> None:
        self._listening, self._previous = False, None
        values = self._flush()
        self._learn()
        self._extremes.add({point: norms for (point, _), norms in self._evaluator.norms.items()}, self._kinds)
        if self._per_sample:
            each = {(p, t): values[self._same_as.get(p, p), t] for p in self.points for t in self.policies}
            self._tables.add(each, self._present, keys)
        self.batches += 1

    def _try_out(self, inputs: Any) -> None:
        """Before several long texts, the first time: a forward pass and one spectrum, to know how many can be had."""
        ids = inputs.get("input_ids") if isinstance(inputs, Mapping) else inputs
        if not (isinstance(ids, Tensor) and ids.dim() == 2 and len(ids) > 1 and self._spectral):
            return
        shape = (1, ids.shape[1], self.view.width)
        if not self._budget.expects(min(shape[1:])):
            return
        device, dtype = home(self.view.model)
        trial: Evaluator[int] = Evaluator(self._per_sample)
        own = torch.Generator(device).manual_seed(0)  # nobody else's random numbers change
        trial.add(0, torch.randn(shape, generator=own, device=device, dtype=dtype))
        trial.flush()
        spectra = trial.stopwatch.read() * len(self.points)
        began = time.perf_counter()
        call(self.view.model, inputs)
        ids[..., :1].cpu()  # waits for the device
        self._budget.guess(len(ids), time.perf_counter() - began, 0.0, 0)
        self._budget.guess(1, math.inf, spectra, 1)

    def _learn(self) -> None:
        chosen = self._evaluator.chosen.values()
        taken = max(map(len, chosen)) if chosen else self._size
        self._budget.learn(self._size, time.perf_counter() - self._began, self._evaluator.stopwatch.read(), taken)

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        self._listening, self._previous = False, None
        self._evaluator.clear()

    def _flush(self) -> Mapping[tuple[str, str], Mapping[str, Tensor]]:
        """The values of every distinct point and policy, once nothing is wrong with the features."""
        with self.numbered():
            values = self._evaluator.flush()
            for (point, policy), flags in self._evaluator.flagged.items():
                norms = self._evaluator.norms.get((point, self.policies[0]))
                zeros = None if norms is None else zero_tokens(norms, self._kinds, self._special.told)
                where = f"{point}, {policy} tokens"
                for said in degeneracies(flags, self._per_sample, self._degenerate, where, zeros):
                    self.notes[said] = None
        return values

    def result(self, partial: bool = False) -> Measurement:
        """What was measured so far."""
        if not self.batches:
            raise nothing("measured")
        cells, changes, kept = self._tables.result()
        notes = list(self.notes)
        least = min((m.count for cell, m in cells.items() if cell.metric in self._spectral), default=0)
        if (said := self._budget.note(", ".join(sorted(self._spectral)), least)) is not None:
            notes.append(said)
        found = Measurement(cells, changes, self._about(), partial, notes, kept, self._extremes.result())
        if not self._over_data:
            return found
        return over_data(
            found, {(p, t): self._moments[self._same_as.get(p, p), t] for p in self.points for t in self.policies}
        )

    def _on_point(self, point: str, x: Float[Tensor, "batch token dim"]) -> None:
        if not self._listening:
            return
        # post[i] and pre[i+1] are one tensor: it is reduced once.
        if self._previous is not None and self._previous.is_still(x):
            self._same_as[point] = self._previous.point
            return
        self._previous, self._size = Seen.now(point, x), len(x)
        if not self.batches and self._degenerate == "error":
            with self.numbered():
                refuse_zeros(point, x, self._masks, self._kinds, self._special.told, self._per_sample)
        self._evaluator.add_each(x, {(point, p): mask for p, mask in self._masks.items()}, self._stream.get(point))
        for policy, mask in self._masks.items() if self._over_data else ():
            kept = None if mask is None else mask(norms_of(x))
            self._moments.setdefault((point, policy), SecondMoment()).update(x, kept)

    def _present(self, samples: int) -> npt.NDArray[np.bool_] | None:
        """Which samples have a value in each row of the tables; None: all."""
        chosen = self._evaluator.chosen
        if not chosen:
            return None
        present = np.ones((len(self._tables.cells), samples), bool)
        for row, cell in enumerate(self._tables.cells):
            key = (self._same_as.get(cell.point, cell.point), cell.tokens)
            if cell.metric in self._spectral and key in chosen:
                present[row] = np.isin(np.arange(samples), chosen[key])
        return present

    def _note_padding(self) -> None:
        counting = [policy for policy in COUNT_PADDING if policy in self.policies]
        if counting and self._kinds.padding is not None and bool(self._kinds.padding.any()):
            named = " and ".join(f"tokens={policy!r}" for policy in counting)
            count = "counts" if len(counting) == 1 else "count"
            note = f"{PADDED}, which {named} {count} as tokens; tokens='content' leaves it out"
            if note not in self.notes:
                warnings.warn(note, stacklevel=4)
            self.notes[note] = None

    def _about(self) -> About[MeasureSettings]:
        definitions = Definitions(
            metrics={metric.name: metric.definition for metric in self.metrics},
            tokens={policy: POLICIES[policy] for policy in self.policies},
            changes=dict(READINGS),
        )
        settings = MeasureSettings(tuple(metric.name for metric in self.metrics), self.policies, self.points)
        return About.of(self._subject, settings, definitions, DataFacts(batches=self.batches), self.origin)
