"""One forward pass per batch yields every requested number; kept are accumulators, and few values per sample."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import product
from types import TracebackType
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.analysis.changes import READINGS, change, steps
from unsmooth.analysis.extremes import STREAM, Extreme, farthest
from unsmooth.analysis.fingerprint import sample_keys
from unsmooth.analysis.measurement import Cell, Change, Measurement
from unsmooth.analysis.per_sample import Recorder
from unsmooth.analysis.policies import COUNT_PADDING, PADDED, POLICIES, TokenKinds, resolve_policies, token_mask
from unsmooth.errors import FeatureError
from unsmooth.metrics.degenerate import check_rule, degeneracies
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.moments import Moments
from unsmooth.metrics.registry import Metric, resolve
from unsmooth.models import hook_points, select_points, split_point, view
from unsmooth.models.forward import call, each_batch, evaluating, to_model
from unsmooth.sources.provenance import library_versions


def measure(
    model: nn.Module,
    batches: Iterable[Any],
    metrics: str | Sequence[str] = "paper",
    tokens: str | Sequence[str] = "all",
    points: str | Sequence[str] = "all",
    *,
    special_ids: Iterable[int] = (),
    degenerate: str = "error",
    about: Mapping[str, Any] | None = None,
) -> Measurement:
    """Measure how smooth a Transformer's features are, at every point of every layer.

    Args:
        model: any supported Transformer; its mode, dtype, device and hooks are as before afterwards.
        batches: image tensors, dicts of keyword inputs (Hugging Face), or tuples whose first item is the input.
        metrics: a preset (`paper`, `rankme`, …) or metric names.
        tokens: one or several token policies: `all`, `patches`, `content`, `no-outliers`.
        points: `all`, `residual`, point names or patterns such as `blocks.*.attn`.
        special_ids: ids of special tokens, for the policy `content` where a batch has no `special_tokens_mask`.
        degenerate: `error` refuses samples on which a metric has no meaning (a zero token, a zero mean);
            `keep` counts them by their conventional value, and says so in the notes.
        about: facts about model and data to keep with the numbers.
    """
    with Measurer(model, metrics, tokens, points, special_ids=special_ids, degenerate=degenerate) as measurer:
        for batch in each_batch(batches):
            measurer.update(batch)
    return measurer.result(about=about)


class Measurer:
    """`measure`, batch by batch: enter, `update` with each batch, leave, take the `result`."""

    def __init__(
        self,
        model: nn.Module,
        metrics: str | Sequence[str] = "paper",
        tokens: str | Sequence[str] = "all",
        points: str | Sequence[str] = "all",
        *,
        special_ids: Iterable[int] = (),
        degenerate: str = "error",
    ) -> None:
        self.view = view(model)
        self.metrics: tuple[Metric, ...] = resolve(metrics)
        self.policies = resolve_policies(tokens)
        self.points = select_points(self.view, points)
        self.batches = 0
        self.cells: dict[Cell, Moments] = {}
        self.changes: dict[Change, Moments] = {}
        self.notes: dict[str, None] = {}
        self._special_ids = frozenset(special_ids)
        self._evaluator: Evaluator[tuple[str, str]] = Evaluator(self.metrics)
        self._degenerate = check_rule(degenerate)
        self._recorder = Recorder()
        self._extremes: dict[str, Extreme] = {}
        self._farthest: dict[str, Tensor] = {}
        self._stack = ExitStack()
        self._kinds = TokenKinds()
        self._same_as: dict[str, str] = {}
        self._previous: tuple[str, Tensor] | None = None

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
        self._stack.__exit__(kind, error, trace)

    def update(self, batch: Any) -> None:
        """One forward pass, and its samples added to every accumulator (all of them, or none)."""
        inputs = to_model(batch, self.view.model)
        v = self.view
        self._kinds = TokenKinds.of_batch(
            inputs, v.prefix_tokens, self._special_ids, v.model, v.suffix_tokens, v.family.pictures
        )
        self._note_padding()
        self._note_special()
        self._same_as, self._farthest = {}, {}
        call(self.view.model, inputs)
        self._previous = None
        # A device is at work on the forward pass now: keys come for nothing, and `flush` waits for them too.
        keys = sample_keys(batch, inputs) if self.view.batch_first else None
        values = self._flush()
        self._accumulate({(p, t): values[self._same_as.get(p, p), t] for p in self.points for t in self.policies}, keys)
        self.batches += 1

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

    def result(self, partial: bool = False, about: Mapping[str, Any] | None = None) -> Measurement:
        """What was measured so far."""
        if not self.batches:
            raise FeatureError("nothing was measured: there was no batch; give at least one")
        about = {**self._about(), **(about or {})}
        kept = self._recorder.result()
        return Measurement(self.cells, self.changes, about, partial, list(self.notes), kept, self._extremes)

    def _on_point(self, point: str, x: Float[Tensor, "batch token dim"]) -> None:
        # post[i] and pre[i+1] are one tensor: it is reduced once. The reference keeps its memory from being reused.
        if self._previous is not None and _same_memory(x, self._previous[1]):
            self._same_as[point] = self._previous[0]
            return
        self._previous = (point, x)
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

    def _note_special(self) -> None:
        if "content" in self.policies and self._kinds.text and self._kinds.special is None:
            self.notes[
                "nothing says which tokens are special (special_ids, or special_tokens_mask in a batch): "
                "tokens='content' leaves out padding only"
            ] = None

    def _about(self) -> dict[str, Any]:
        parameter = next(self.view.model.parameters())
        return {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": {
                "class": type(self.view.model).__qualname__,
                "family": self.view.family.name,
                "placement": self.view.family.placement,
                "layers": len(self.view.layers),
                "width": self.view.width,
                "dtype": str(parameter.dtype).removeprefix("torch."),
                "device": str(parameter.device),
            },
            "data": {"batches": self.batches},
            "settings": {
                "metrics": [m.name for m in self.metrics],
                "tokens": list(self.policies),
                "points": list(self.points),
            },
            "definitions": {
                "metrics": {m.name: m.definition for m in self.metrics},
                "tokens": {p: POLICIES[p] for p in self.policies},
                "changes": dict(READINGS),
            },
            "versions": library_versions(),
        }


def _same_memory(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape and a.stride() == b.stride())
