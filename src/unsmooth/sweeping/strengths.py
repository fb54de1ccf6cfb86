"""`sweep`: apply an edit at growing strength, measure, ask the task, undo."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from torch import Tensor, nn

from unsmooth.analysis import measure
from unsmooth.analysis.about import About, DataFacts, Definitions, Origin, module_of
from unsmooth.analysis.policies import resolve_policies
from unsmooth.analysis.sweep import DEFINITIONS, HEADLINE, Sweep, SweepPoint, SweepSettings, SweptEdit, TaskFacts
from unsmooth.control import Edit, edit
from unsmooth.control.effect import numbers
from unsmooth.errors import DataError, OptionError
from unsmooth.metrics.differences import paired_difference
from unsmooth.models import view
from unsmooth.models.forward import evaluating
from unsmooth.models.inputs import each_batch
from unsmooth.models.select import Layers
from unsmooth.sources import Data, LoadedModel
from unsmooth.sweeping.tasks import Task

STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
METRICS = ("hfc_lfc", "cosine_similarity", "effective_rank")
#: No eigenvalue on the side that smooths in theory, and none on the side that sharpens.
EDITS: tuple[Mapping[str, Any], ...] = ({"high": 0.0}, {"low": 0.0})
Loss = Callable[[nn.Module], Tensor | float]


def sweep(
    model: nn.Module | LoadedModel,
    batches: Iterable[Any],
    task: Task | Loss,
    *,
    edits: Sequence[Mapping[str, Any]] = EDITS,
    strengths: Sequence[float] = STRENGTHS,
    layers: Layers = "all",
    tokens: str | Sequence[str] = ("all", "no-outliers"),
    metrics: Sequence[str] = METRICS,
    origin: Origin | None = None,
    progress: Callable[[str], object] = lambda said: None,
) -> Sweep:
    """Edit a model at increasing strength, and measure HFC/LFC and the score on a task each time.

    Args:
        model: any model that `edit` takes; afterwards its weights are bit for bit what they were.
        batches: inputs on which smoothness is measured, after the last block.
        task: a `Task` (`unsmooth.sweeping`: k nearest neighbours, perplexity, retrieval), or any function of the model
            that returns a loss: one number, or a tensor with one for each sample, which gives paired intervals.
        edits: each as keyword arguments of `unsmooth.edit`; `{"drop_sink": True}` finds the sink in `batches`.
        strengths: fractions of each edit, between 0 and 1; 0 is always included.
        layers: which layers are edited.
        tokens: token policies; tables and figures show the last.
        metrics: metrics that are measured in addition to HFC/LFC.
        origin: where model and data come from; known already where both were loaded by reference.
        progress: called with a line of text before each step.

    >>> import torch
    >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    >>> x = torch.randn(3, 5, 8)
    >>> found = sweep(encoder, [x], lambda m: m(x).square().mean((1, 2)), edits=[{"scale": 0.0}], strengths=[1.0])
    >>> [round(point.strength, 6) for point in found.edits[0].points]
    [0.0, 1.0]
    """
    steps = _checked(strengths)
    _check_edits(edits)
    if not isinstance(task, Task) and not callable(task):
        raise OptionError(
            f"a task is a function of the model that returns a loss, or a Task (unsmooth.sweeping); got {task!r}"
        )
    plain, policies = module_of(model), resolve_policies(tokens)
    given = batches if isinstance(batches, Data) else list(each_batch(batches))
    origin = origin or Origin.of(model, given)
    asked = task if isinstance(task, Task) else Task("loss", "as returned", "lower", "the function given", task)
    v = view(plain)
    names = tuple(dict.fromkeys((HEADLINE, *metrics)))
    where = layers if isinstance(layers, str) else str(list(layers))
    settings = SweepSettings(f"blocks.{len(v.layers) - 1}.post", names, policies, where)
    bench = _Bench(plain, given, asked, layers, settings, origin)
    for options in edits:  # what is refused is said before the work
        bench.apply(options).undo()
    progress("the model as it is")
    smoothness, before = bench.look()
    start = SweepPoint(0.0, 0.0, smoothness, float(before.mean()))
    swept = tuple(bench.sweep(options, steps[1:], start, before, progress) for options in edits)
    about = About.of(v, settings, Definitions(columns=DEFINITIONS), DataFacts(0, bench.inputs), origin)
    facts = TaskFacts(asked.name, asked.unit, asked.better, asked.definition, len(before))
    return Sweep(swept, facts, about)


@dataclass
class _Bench:
    """A model that is edited, measured on batches and asked a task."""

    model: nn.Module
    batches: Any
    task: Task
    layers: Layers
    settings: SweepSettings
    origin: Origin
    inputs: int = 0

    def apply(self, options: Mapping[str, Any]) -> Edit:
        """The edit at its full strength."""
        sink = {"drop_sink": self.batches} if options.get("drop_sink") is True else {}
        return edit(self.model, **{"layers": self.layers, **options, **sink})

    def look(self) -> tuple[dict[str, dict[str, float]], np.ndarray]:
        """Metrics by token policy, and the task's scores."""
        asked = self.settings
        with evaluating(self.model):
            measured = measure(self.model, self.batches, asked.metrics, asked.tokens, [asked.point], origin=self.origin)
            values = _values(self.task, self.model)
        found: dict[str, dict[str, float]] = {policy: {} for policy in asked.tokens}
        for cell, moments in measured.cells.items():
            found[cell.tokens][cell.metric] = moments.mean
            self.inputs = self.inputs or moments.count
        return found, values

    def sweep(
        self, options: Mapping[str, Any], strengths: Sequence[float], start: SweepPoint, before: np.ndarray,
        progress: Callable[[str], object],
    ) -> SweptEdit:  # fmt: skip
        """One edit at each strength, and undone."""
        name, points = _name(options), [start]
        done = self.apply(options)
        try:
            for strength in strengths:
                progress(f"{name}, strength {strength:g}")
                done.go(strength)
                smoothness, after = self.look()
                points.append(_point(strength, strength * _moved(done.rows), smoothness, before, after))
        finally:
            done.restore()
        return SweptEdit(name, tuple(points))


def _check_edits(edits: Sequence[Mapping[str, Any]]) -> None:
    if not edits:
        raise OptionError("no edit to sweep: give some, such as [{'high': 0.0}]")
    known = set(signature(edit).parameters) - {"model", "strength", "data", "loss"}
    for unknown in (name for options in edits for name in options if name not in known):
        raise OptionError.unknown("option of an edit", unknown, sorted(known))


def _checked(strengths: Sequence[float]) -> list[float]:
    """In order, from 0."""
    steps = sorted({0.0, *map(float, strengths)})
    if not all(0 <= step <= 1 for step in steps) or len(steps) < 2:
        raise OptionError(f"strengths {list(strengths)}: expected numbers from 0 to 1, and one above 0")
    return steps


def _name(options: Mapping[str, Any]) -> str:
    """An edit by its arguments: `high=0, of=layer`."""
    return ", ".join(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
                     for key, value in options.items())  # fmt: skip


def _values(task: Task, model: nn.Module) -> np.ndarray:
    """The task's score of each sample; of one number, that."""
    found = numbers(task.values(model), f"the task {task.name!r}").numpy()
    if not len(found) or not np.isfinite(found).all():
        raise DataError(f"the task {task.name!r} gave no finite number: expected a loss, or one for each sample")
    return found


def _point(
    strength: float, moved: float, smoothness: dict[str, dict[str, float]], before: np.ndarray, after: np.ndarray
) -> SweepPoint:
    if len(before) != len(after):
        raise DataError(f"the task gave {len(before)} scores before the edit and {len(after)} after: expected the same")
    gap = paired_difference(before, after)
    low, high = (None, None) if math.isnan(gap.low) else (gap.low, gap.high)
    return SweepPoint(strength, moved, smoothness, float(after.mean()), gap.mean, low, high)


def _moved(rows: Sequence[Mapping[str, float]]) -> float:
    """‖ΔH‖ / ‖H‖ over all edited matrices."""
    size = math.hypot(*(row["size"] for row in rows))
    return math.hypot(*(row["change"] for row in rows)) / size if size else 0.0
