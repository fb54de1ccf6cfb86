"""One walk over the data makes every result that a report asks for, from one forward pass per batch.

The few inputs that are explained run again where they are attributed: `no-outliers` has to know its tokens before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from unsmooth.analysis.about import Origin, module_of
from unsmooth.analysis.attributing.account import take_account
from unsmooth.analysis.attributing.attribution import STRONGEST, Attribution, affordable
from unsmooth.analysis.attributing.attributor import Attributor
from unsmooth.analysis.attributing.removal import total_effects
from unsmooth.analysis.explaining.explainer import Explainer
from unsmooth.analysis.long_enough import LEFT_OUT, LongEnough
from unsmooth.analysis.measuring.extremes import Outliers
from unsmooth.analysis.measuring.measurer import Measurer
from unsmooth.analysis.measuring.outliers import outliers
from unsmooth.analysis.policies import resolve_policies
from unsmooth.analysis.special import SpecialTokens
from unsmooth.analysis.subject import NOT_EXPLAINED, Subject
from unsmooth.analysis.token_view import TokenViewer
from unsmooth.analysis.walk import nothing, walk
from unsmooth.errors import FeatureError, ForwardError, OptionError, WeightsError
from unsmooth.metrics.registry import METRICS
from unsmooth.models import view
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import hook_points
from unsmooth.models.inputs import main_input, rows_of
from unsmooth.sources.batches import Data
from unsmooth.sources.loaded import LoadedModel

Track = Callable[[Iterable[Any], str, int | None], Iterable[Any]]
AT_ONCE = 4  # inputs that are explained together where a whole batch is too much


def analyse(
    model: nn.Module | LoadedModel,
    batches: Iterable[Any],
    name: str | None = None,
    *,
    metrics: str | Sequence[str] | None = None,
    tokens: str | Sequence[str] | None = None,
    explain_inputs: int = 8,
    example: int = 0,
    degenerate: str = "error",
    rank_budget: float | str | None = None,
    tokenizer: Any = None,
    special_ids: Iterable[int] | None = None,
    track: Track | None = None,
    origin: Origin | None = None,
) -> Subject:
    """Measure a model on all of the data, explain it on the first inputs, look at the tokens of one example.

    Args:
        model: the model, or what `load_model` gave, which knows its reference and tokenizer too.
        batches: what to feed it; they are read once.
        name: what the page calls the model: its reference, or its class.
        metrics: presets and metric names; by default every registered metric that a sample has, for they share spectra.
        tokens: token policies; what fits the inputs by default.
        explain_inputs: how many inputs are explained (spectra and exponents cost more than measuring); 0 for none.
        example: which sample of the first batch the token view shows; texts of one token are left out and do not count.
        degenerate: `error` or `keep`, as in `unsmooth.measure`.
        rank_budget: as in `unsmooth.measure`.
        tokenizer: as in `unsmooth.measure`; it also names the tokens of the example.
        special_ids: as in `unsmooth.measure`.
        track: wraps an iterable of batches to show progress.
        origin: where model and data come from; known already where both were loaded by reference.
    """
    if explain_inputs < 0:
        raise OptionError(f"explain_inputs must be 0 (none) or more, got {explain_inputs}")
    origin = origin or Origin.of(model, batches)
    label = name or origin.model or type(module_of(model)).__name__
    walked = iter(track(batches, f"analysing {label}", batches.samples if isinstance(batches, Data) else None)
                  if track is not None else batches)  # fmt: skip
    first = next(walked, None)
    if first is None:
        raise nothing("measured")
    special = SpecialTokens.find(model, special_ids, tokenizer)
    settings: dict[str, Any] = {"tokenizer": tokenizer, "special_ids": special_ids, "degenerate": degenerate,
                                "rank_budget": rank_budget}  # fmt: skip
    policies = tokens or fitting_policies(first, special, module_of(model))
    long = LongEnough(module_of(model), special, resolve_policies(policies))
    every = tuple(name for name, row in METRICS.items() if not row.over_data)
    measurer = Measurer(model, metrics or every, policies, **settings, origin=origin)
    viewer = TokenViewer(model, example, tokenizer=tokenizer, origin=origin)
    asked = {"tokens": policies, "tokenizer": tokenizer, "special_ids": special_ids, "origin": origin}
    explained = _Explained(model, explain_inputs, asked)
    attributed = _Attributed(model, explain_inputs, asked)
    with measurer:
        for number, batch in enumerate(long.of(itertools.chain([first], walked))):
            with ExitStack() as stack:
                listeners = [measurer, *([stack.enter_context(viewer)] if number == 0 else [])]
                explained.walk(batch, listeners)
            attributed.update(batch, explained.possible)
    measurement, explanation = measurer.result(), explained.result()
    attribution = attributed.result(outliers(measurement))
    refused = [] if explanation is None and explained.notes else attributed.refused  # by the same weights: said once
    measurement.notes.extend(long.notes + explained.notes + refused + attributed.notes)
    return Subject(label, measurement, explanation, viewer.result(), attribution)


class _Explained:
    """The explanation of the first inputs, as far as the model allows it."""

    def __init__(self, model: nn.Module | LoadedModel, most: int, settings: dict[str, Any]) -> None:
        self.notes: list[str] = []
        self._left_out = _LeftOut("explained")
        self._module = module_of(model)
        self._explainer: Explainer | None = None
        self._most = most
        if most:
            self._try(lambda: self._start(model, settings))

    def _start(self, model: nn.Module | LoadedModel, settings: dict[str, Any]) -> None:
        self._explainer = Explainer(model, most=self._most, **settings)

    def walk(self, batch: Any, listeners: Sequence[Any]) -> None:
        """One forward pass for all listeners, and for the explanation while inputs of it are wanted."""
        explainer = self._explainer
        if explainer is None or explainer.inputs >= self._most or self._left_out.count >= self._most:
            return walk(self._module, batch, listeners)
        if not self._try(lambda: explainer.check(batch)):
            return walk(self._module, batch, listeners)
        try:
            with explainer:
                return walk(self._module, batch, [*listeners, explainer])
        except WeightsError as error:
            self._give_up(error)
            return walk(self._module, batch, listeners)
        except (ForwardError, FeatureError):
            # attention that is not fused takes more memory: apart, and a few inputs at a time; an input that cannot be
            # explained is left out, and features that cannot be measured are refused here again
            walk(self._module, batch, listeners)
            with explainer:
                for part in _parts(batch, self._most - explainer.inputs):
                    list(self._left_out.taken(partial(walk, self._module, listeners=[explainer]), part))
        return None

    @property
    def possible(self) -> bool:
        """Whether the model can be explained, as far as is known."""
        return self._explainer is not None and self._explainer.batches > 0

    def result(self) -> Any:
        """The explanation, None where there is none."""
        self.notes += self._left_out.note(0 if self._explainer is None else self._explainer.inputs)
        return None if self._explainer is None or not self._explainer.batches else self._explainer.result()

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except WeightsError as error:
            self._give_up(error)
        return self._explainer is not None

    def _give_up(self, error: WeightsError) -> None:
        """A family without separable weights can be measured all the same."""
        self._explainer = None
        self.notes.append(f"{NOT_EXPLAINED}{error}")


class _Attributed:
    """Who did it, for the inputs that are explained, a few at a time, as far as model and features allow it."""

    def __init__(self, model: nn.Module | LoadedModel, most: int, settings: dict[str, Any]) -> None:
        self.notes: list[str] = []
        self.refused: list[str] = []  # by the weights
        self._most = most
        self._attributor: Attributor | None = None
        self._left_out = _LeftOut("attributed")
        self._taken: list[Any] = []  # for the account of the outliers, which is taken when all were seen
        with self._unless_refused():
            self._attributor = Attributor(model, most=most, carriers=True, **settings) if most else None

    def update(self, batch: Any, checked: bool) -> None:
        """The inputs of a batch that are still wanted; `checked` if the explanation found that the weights fit."""
        attributor = self._attributor
        if attributor is None or attributor.inputs >= self._most or self._left_out.count >= self._most:
            return
        attributor.checked |= checked
        parts = _parts(batch, self._most - attributor.inputs) if attributor.view.batch_first else [batch]
        with self._unless_refused(), attributor:
            for part in parts:
                self._taken += self._left_out.taken(attributor.update, part, attributor.view.batch_first)

    def result(self, outliers: Outliers | None) -> Attribution | None:
        """The attribution, with the account of these outliers; None where there is none."""
        self.notes += self._left_out.note(0 if self._attributor is None else self._attributor.inputs)
        if self._attributor is not None and self._attributor.batches:
            with self._unless_refused():
                take_account(self._attributor, self._taken, outliers)
                found = self._attributor.result()
                first = self._taken[: affordable(STRONGEST)]
                found.totals = total_effects(self._attributor, found, first, STRONGEST)
                return found
        return None

    @contextmanager
    def _unless_refused(self) -> Iterator[None]:
        try:
            yield
        except WeightsError as error:
            self._attributor = None
            self.refused.append(f"not attributed: {error}")
        except (FeatureError, ForwardError) as error:
            self._attributor = None
            self.notes.append(f"not attributed: {error}")


class _LeftOut:
    """Inputs of which ln HFC/LFC does not exist somewhere: one among many costs no others their place on the page."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.count = 0
        self._why = ""

    def taken(self, update: Callable[[Any], None], part: Any, separable: bool = True) -> Iterator[Any]:
        """What of a part of a batch `update` took in: all of it, or the inputs that it takes one by one."""
        try:
            update(part)
        except FeatureError as error:
            single = list(_parts(part, AT_ONCE, 1)) if separable else []
            if len(single) > 1:
                for each in single:
                    yield from self.taken(update, each)
            else:
                self.count, self._why = self.count + 1, str(error)
        else:
            yield part

    def note(self, inputs: int) -> list[str]:
        """How many were left out beside these inputs, if any."""
        if not self.count:
            return []
        if not inputs:
            return [f"not {self._what}: {self._why}"]
        return [
            f"{LEFT_OUT}{self.count} of {self.count + inputs} inputs that were to be {self._what}: fewer than two of "
            "their tokens count in some layer, or all are equal"
        ]


def fitting_policies(batch: Any, special: SpecialTokens, model: nn.Module) -> tuple[str, ...]:
    """The token policies that say something about such inputs; `content` where it is known what is special."""
    batch = main_input(batch)
    if isinstance(batch, Tensor) and batch.is_floating_point() and batch.dim() == 4:
        return ("all", "patches", "no-outliers") if _several_patches(model, batch[:1]) else ("all", "no-outliers")
    ids = batch.get("input_ids") if isinstance(batch, Mapping) else batch
    told = isinstance(batch, Mapping) and "special_tokens_mask" in batch
    if isinstance(ids, Tensor) and not ids.is_floating_point() and (told or (special.ids is not None and special.told)):
        return ("all", "content", "no-outliers")
    return ("all", "no-outliers")


def _several_patches(model: nn.Module, picture: Tensor) -> bool:
    """Whether patches can be compared without the special tokens; how many there are only a forward pass says."""
    v, counts = view(model), list[int]()
    special = v.prefix_tokens + v.suffix_tokens
    if special and len(picture):
        with evaluating(v.model), hook_points(v, v.points[:1], lambda _, x: counts.append(x.shape[-2])):
            call(v.model, to_model(picture, v.model))
    return all(count - special > 1 for count in counts)


def _parts(batch: Any, count: int, at_once: int = AT_ONCE) -> Iterable[Any]:
    """The first `count` samples, a few at a time."""
    batch = main_input(batch)
    for start in range(0, count, at_once):
        rows = slice(start, min(start + at_once, count))
        part = rows_of(batch, rows)
        tensors = part.values() if isinstance(part, Mapping) else [part]
        if any(isinstance(x, Tensor) and x.dim() and len(x) for x in tensors):
            yield part
