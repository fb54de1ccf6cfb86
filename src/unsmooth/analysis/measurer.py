"""One forward pass per batch yields every requested number; kept are accumulators, and few values per sample."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.analysis.about import About, DataFacts, Definitions, Origin, module_of
from unsmooth.analysis.changes import READINGS, change, steps
from unsmooth.analysis.extremes import STREAM, Extreme, farthest
from unsmooth.analysis.fingerprint import sample_keys
from unsmooth.analysis.measurement import Cell, Change, Measurement, MeasureSettings
from unsmooth.analysis.per_sample import Recorder
from unsmooth.analysis.policies import COUNT_PADDING, PADDED, POLICIES, TokenKinds, resolve_policies, token_mask
from unsmooth.analysis.special import SpecialTokens
from unsmooth.analysis.walk import require_hooks, walk
from unsmooth.errors import FeatureError
from unsmooth.metrics.degenerate import check_rule, degeneracies
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import Metric, resolve
from unsmooth.models import hook_points, select_points, split_point, view
from unsmooth.models.forward import each_batch, evaluating
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
    origin: Origin | None = None,
) -> Measurement:
    """Measure how smooth a Transformer's features are, at every point of every layer.

    Args:
        model: any supported Transformer; its mode, dtype, device and hooks are as before afterwards.
        batches: image tensors, dicts of keyword inputs (Hugging Face), or tuples whose first item is the input.
        metrics: a preset (`paper`, `rankme`, …) or metric names.
        tokens: one or several token policies: `all`, `patches`, `content`, `no-outliers`.
        points: `all`, `residual`, point names or patterns such as `blocks.*.attn`.
        special_ids: ids of special tokens, for the policy `content`; none at all if empty. By default they are those
            of the `tokenizer`, else of the model's configuration; a batch's `special_tokens_mask` goes before both.
        tokenizer: the model's, for its special tokens.
        degenerate: `error` refuses samples on which a metric has no meaning (a zero token, a zero mean);
            `keep` counts them by their conventional value, and says so in the notes.
        origin: where model and data come from; known already where both were loaded by reference.
    """
    origin = origin or Origin.of(model, batches)
    with Measurer(
        model,
        metrics,
        tokens,
        points,
        special_ids=special_ids,
        tokenizer=tokenizer,
        degenerate=degenerate,
        origin=origin,
    ) as measurer:
        for batch in each_batch(batches):
            measurer.update(batch)
    return measurer.result()


class Measurer:
    """`measure`, batch by batch: enter, `update` with each batch, leave, take the `result`."""

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
        origin: Origin | None = None,
    ) -> None:
        self.view = view(module_of(model))
        self.origin = origin or Origin.of(model)
        self.metrics: tuple[Metric, ...] = resolve(metrics)
        self.policies = resolve_policies(tokens)
        self.points = select_points(self.view, points)
        self.batches = 0
        self.cells: dict[Cell, Moments] = {}
        self.changes: dict[Change, Moments] = {}
        self.notes: dict[str, None] = {}
        self._special = SpecialTokens.find(model, special_ids, tokenizer)
        self._evaluator: Evaluator[tuple[str, str]] = Evaluator(self.metrics)
        self._degenerate = check_rule(degenerate)
        self._recorder = Recorder()
        self._extremes: dict[str, Extreme] = {}
        self._farthest: dict[str, Tensor] = {}
        self._stack: ExitStack | None = None
        self._listening = False  # to the forward passes of `update`, no others
        self._kinds = TokenKinds()
        self._same_as: dict[str, str] = {}
        self._previous: Seen | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.view.model))
            stack.enter_context(hook_points(self.view, self.points, self._on_point))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._previous = None
        hooks, self._stack = require_hooks(self, self._stack), None
        hooks.__exit__(kind, error, trace)

    def update(self, batch: Any) -> None:
        """One forward pass, and its samples added to every accumulator (all of them, or none)."""
        walk(self.view.model, batch, [self])

    def before(self, inputs: Any) -> None:
        """Look at the inputs of the forward pass that comes now."""
        require_hooks(self, self._stack)
        v = self.view
        self._kinds = TokenKinds.of_batch(
            inputs, v.prefix_tokens, self._special.ids, v.model, v.suffix_tokens, v.family.pictures
        )
        self._note_padding()
        if "content" in self.policies and self._kinds.text:
            self._special.check(self._kinds, v.causal)
        self._same_as, self._farthest = {}, {}
        self._listening = True

    def after(self, batch: Any, inputs: Any) -> None:
        """Take in what the forward pass left."""
        self._listening, self._previous = False, None
        # A device is at work on the forward pass now: keys come for nothing, and `flush` waits for them too.
        keys = sample_keys(batch, inputs) if self.view.batch_first else None
        values = self._flush()
        self._accumulate({(p, t): values[self._same_as.get(p, p), t] for p in self.points for t in self.policies}, keys)
        self.batches += 1

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        self._listening, self._previous = False, None
        self._evaluator.clear()

    def _flush(self) -> Mapping[tuple[str, str], Mapping[str, Tensor]]:
        """The values of every distinct point and policy, once nothing is wrong with the features."""
        try:
            values = self._evaluator.flush()
            for (point, policy), flags in self._evaluator.flags.items():
                for said in degeneracies(flags, self.metrics, self._degenerate, f"{point}, {policy} tokens"):
                    self.notes[said] = None
        except FeatureError as error:
            raise FeatureError(f"{error} (batch {self.batches})") from None
        return values

    def result(self, partial: bool = False) -> Measurement:
        """What was measured so far."""
        if not self.batches:
            raise FeatureError("nothing was measured: there was no batch; give at least one")
        kept = self._recorder.result()
        return Measurement(self.cells, self.changes, self._about(), partial, list(self.notes), kept, self._extremes)

    def _on_point(self, point: str, x: Float[Tensor, "batch token dim"]) -> None:
        if not self._listening:
            return
        # post[i] and pre[i+1] are one tensor: it is reduced once.
        if self._previous is not None and self._previous.is_still(x):
            self._same_as[point] = self._previous.point
            return
        self._previous = Seen.now(point, x)
        if split_point(point)[1] in STREAM:
            self._farthest[point] = farthest(x, self._kinds)
        self._evaluator.add_each(x, {(point, policy): token_mask(policy, x, self._kinds) for policy in self.policies})

    def _accumulate(self, values: Mapping[tuple[str, str], Mapping[str, Tensor]], keys: Tensor | None) -> None:
        cells = {Cell(point, m, policy): v for (point, policy), each in values.items() for m, v in each.items()}
        for cell, samples in cells.items():
            self.cells.setdefault(cell, Moments()).update(samples)
        self._recorder.add(keys, cells)
        if self._farthest:
            for point, found in zip(self._farthest, torch.stack(list(self._farthest.values())).cpu(), strict=True):
                self._extremes.setdefault(point, Extreme()).update(found)
        for reading in READINGS:
            for kind, pairs in steps(reading, self.view.family.placement, len(self.view.layers)).items():
                for name, policy in product((m.name for m in self.metrics), self.policies):
                    here = {point: values[point, policy][name] for point in self.points}
                    if (difference := change(here, pairs)) is not None:
                        self.changes.setdefault(Change(reading, kind, name, policy), Moments()).update(difference)

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
        names = tuple(metric.name for metric in self.metrics)
        definitions = Definitions(
            metrics={metric.name: metric.definition for metric in self.metrics},
            tokens={policy: POLICIES[policy] for policy in self.policies},
            changes=dict(READINGS),
        )
        settings = MeasureSettings(names, self.policies, self.points)
        return About.of(self.view, settings, definitions, DataFacts(batches=self.batches), self.origin)


class Seen(NamedTuple):
    """A tensor as it was at a point. The reference keeps its memory from being reused."""

    point: str
    x: Tensor
    version: int | None

    @classmethod
    def now(cls, point: str, x: Tensor) -> Seen:
        """Of this moment; tensors of inference mode do not count what is written to them."""
        return cls(point, x, None if x.is_inference() else x._version)

    def is_still(self, x: Tensor) -> bool:
        """Whether `x` is the same memory, and nothing was added to it in place since."""
        same = x is self.x or (
            x.data_ptr() == self.x.data_ptr() and x.shape == self.x.shape and x.stride() == self.x.stride()
        )
        return same and self.version is not None and x._version == self.version
