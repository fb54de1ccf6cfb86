"""Explain a real model, batch by batch: one forward pass each, nothing kept but rows of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from unsmooth.analysis.about import THROUGH_THE_ORIGINAL, About, DataFacts, Definitions, Origin, is_compiled, module_of
from unsmooth.analysis.explanation import DEFINITIONS, ExplainSettings, Explanation
from unsmooth.analysis.facts import DENSE_UP_TO, LayerFacts, check_finite, layer_facts
from unsmooth.analysis.policies import POLICIES, TokenKinds, resolve_policies, token_mask
from unsmooth.analysis.special import SpecialTokens
from unsmooth.analysis.sublayer import Mask, Pass, head_rows, layer_rows
from unsmooth.analysis.walk import require_hooks, walk
from unsmooth.errors import FeatureError, OptionError, WeightsError
from unsmooth.models import ModelView, capture_attention, check_attention, hook_points, view
from unsmooth.models.forward import each_batch, evaluating, lengthened, padding_of, pictures_follow, to_model
from unsmooth.models.storage import is_sharded
from unsmooth.models.taps import candidates
from unsmooth.sources.loaded import LoadedModel
from unsmooth.theory.stochastic import widened

NONE = torch.zeros(0, dtype=torch.complex128)
ACCURACY = 0.01  # a layer's Krylov search ends when γ is known to about this share of itself


def explain(
    model: nn.Module | LoadedModel,
    batches: Iterable[Any],
    tokens: str | Sequence[str] = "all",
    *,
    special_ids: Iterable[int] | None = None,
    tokenizer: Any = None,
    folded: bool = True,
    layers: Sequence[int] | None = None,
    spectra: int = 8,
    max_products: int = 240,
    layer_spectrum: bool | None = None,
    origin: Origin | None = None,
) -> Explanation:
    """Why a Transformer's attention smooths or sharpens, per layer, head and input, and whether it does.

    Args:
        model: any supported Transformer; its mode, dtype, device and hooks are as before afterwards.
        batches: image tensors, dicts of keyword inputs (Hugging Face), or tuples whose first item is the input.
        tokens: one or several token policies, as in `measure`: whose HFC and LFC the measured and frozen steps are of.
            Padding is left out under all of them, and exponents are of all other tokens under all of them.
        special_ids: as in `unsmooth.measure`.
        tokenizer: as in `unsmooth.measure`.
        folded: fold the norms, LayerScale and biases into H (`False`: the bare W_V W_proj with step size 1).
        layers: which layers (passes), all by default.
        spectra: for how many inputs the spectrum of every A is computed; it costs O(n³) a head (causal: nothing).
        max_products: the longest Krylov search per layer; a search cut short is marked `converged = False`.
        layer_spectrum: find all eigenvalues of Σ_h H_h of each layer, a dense d×d problem: by default up to a width of
            1,024. Without them γ is the same, by Krylov searches, and alignment and the fixed point are not known.
        origin: where model and data come from; known already where both were loaded by reference.
    """
    origin = origin or Origin.of(model, batches)
    with Explainer(
        model, tokens, special_ids=special_ids, tokenizer=tokenizer, folded=folded, layers=layers, spectra=spectra,
        max_products=max_products, layer_spectrum=layer_spectrum, origin=origin,
    ) as explainer:  # fmt: skip
        for batch in each_batch(batches):
            explainer.update(batch)
    return explainer.result()


class Explainer:
    """`explain`, batch by batch: enter, `update` with each batch, leave, take the `result`.

    With `most`, only so many inputs are explained, whatever the batches hold beside them.
    """

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        tokens: str | Sequence[str] = "all",
        *,
        special_ids: Iterable[int] | None = None,
        tokenizer: Any = None,
        folded: bool = True,
        layers: Sequence[int] | None = None,
        spectra: int = 8,
        max_products: int = 240,
        layer_spectrum: bool | None = None,
        most: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.view, self._compiled = view(module_of(model)), is_compiled(model)
        self.origin = origin or Origin.of(model)
        self.most = most
        self.policies = resolve_policies(tokens)
        self.folded, self.spectra, self.max_products = folded, spectra, max_products
        self.whole = self.view.width <= DENSE_UP_TO if layer_spectrum is None else layer_spectrum
        self.chosen = _check_layers(layers, len(self.view.layers))
        check_rows_sum(self.view)
        for index in self.chosen:
            layer = self.view.layers[index]
            if not any(is_sharded(p) for p in layer.attention.parameters()):  # these are whole in the forward pass only
                check_finite(layer.name, layer.weights())
        # the norm after the sum is part of a post-norm sub-layer, and γ is of both
        self._points = ("pre", "attn", "mid") if self.view.family.placement == "post" else ("pre", "attn")
        self.layer_rows: list[dict[str, Any]] = []
        self.head_rows: list[dict[str, Any]] = []
        self.inputs = self.batches = 0
        self._facts: dict[int, LayerFacts] = {}
        self._mask: Mask = None
        self._kinds = TokenKinds()
        self._special = SpecialTokens.find(model, special_ids, tokenizer)
        self._pictures = False
        self._pending: dict[int, dict[str, Tensor]] = {}
        self._drafts: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
        self._listening = False  # to the forward passes of `update`, no others
        self._stack: ExitStack | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.view.model))
            points = [f"blocks.{i}.{name}" for i in self.chosen for name in self._points]
            stack.enter_context(hook_points(self.view, points, self._on_point))
            stack.enter_context(capture_attention(self.view, self._on_attention, self.chosen))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pending.clear()
        hooks, self._stack = require_hooks(self, self._stack), None
        hooks.__exit__(kind, error, trace)

    def facts(self, index: int) -> LayerFacts:
        """The data-free part of a layer, computed when it is first needed."""
        if index not in self._facts:
            self._facts[index] = layer_facts(self.view.layers[index], self.folded, self.whole)
        return self._facts[index]

    def update(self, batch: Any) -> None:
        """One forward pass; its rows are added together, or not at all.

        Before the first one, one input more: do weights and matrices reproduce the attention's own output?
        """
        self.check(batch)
        try:
            walk(self.view.model, batch, [self])
        except FeatureError as error:
            raise FeatureError(f"{error} (batch {self.batches})") from None

    def check(self, batch: Any) -> None:
        """Before the first batch: WeightsError unless weights and matrices reproduce the attention's own output."""
        if not self.batches:
            check_attention(self.view, first_input(to_model(batch, self.view.model), self.view))

    def before(self, inputs: Any) -> None:
        """Look at the inputs of the forward pass that comes now."""
        require_hooks(self, self._stack)
        self.abandon()
        self._listening = True
        self._mask = kept_tokens(inputs, self.view)
        if self._mask is not None and self.most is not None:
            self._mask = self._mask[: self.most - self.inputs]
        v = self.view
        self._kinds = TokenKinds.of_batch(
            inputs, v.prefix_tokens, self._special.ids, v.model, v.suffix_tokens, v.family.pictures
        )
        if "content" in self.policies and self._kinds.text:
            self._special.check(self._kinds, v.causal)
        self._kinds = self._kinds.first(None if self.most is None else self.most - self.inputs)
        self._pictures = v.family.pictures is not None and pictures_follow(inputs)

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        self._listening = False
        self._drafts = ([], [])
        self._pending.clear()

    def after(self, batch: Any, inputs: Any) -> None:
        """Take in what the forward pass left."""
        for rows, drafts in zip((self.layer_rows, self.head_rows), self._drafts, strict=True):
            rows += [{**row, "input": row["input"] + self.inputs} for row in drafts]
        self._listening = False
        self.inputs = 1 + max((row["input"] for row in self.layer_rows), default=-1)
        self.batches += 1

    def result(self, partial: bool = False) -> Explanation:
        """What was explained so far."""
        if not self.batches:
            raise FeatureError("nothing was explained: there was no batch; give at least one")
        facts = [self.facts(i) for i in self.chosen]
        spectra = [
            {
                "layer": f.index,
                "folded": done,
                "layer_values": NONE if s.layer is None else s.layer,
                "head_values": s.heads,
            }
            for f in facts
            for done, s in ((False, f.raw), (True, f.effective))
            if self.folded or not done
        ]
        notes = sorted({note for f in facts for note in f.folded.approximations}) if self.folded else []
        notes += [THROUGH_THE_ORIGINAL] if self._compiled else []
        if any(f.mean is None for f in facts):
            notes.append(
                f"the eigenvalues of the sum of heads were not all found (width {self.view.width}): shares of them, "
                "alignment and the fixed point are not known; layer_spectrum=True finds them"
            )
        searched = [row for row in self.layer_rows if row["policy"] == self.policies[0]]
        cut = sum(not row["converged"] for row in searched)
        if cut:
            notes.append(
                f"{cut} of {len(searched)} Krylov searches met their limit of {self.max_products} products: "
                "those exponents are estimates (raise max_products)"
            )
        weights = [row for f in facts for row in f.rows]
        return Explanation(self.layer_rows, self.head_rows, weights, spectra, self._about(), partial, notes)

    def _on_point(self, point: str, x: Tensor) -> None:
        _, index, name = point.split(".")
        self._receive(int(index), name, x)

    def _on_attention(self, index: int, a: Tensor) -> None:
        self._receive(index, "attention", a)

    def _receive(self, index: int, name: str, tensor: Tensor) -> None:
        if not self._listening:
            return
        found = self._pending.setdefault(index, {})
        found[name] = tensor if self.most is None else tensor[: self.most - self.inputs]
        if len(found) == len(self._points) + 1:
            self._explain(index, **self._pending.pop(index))

    def _explain(self, index: int, pre: Tensor, attn: Tensor, attention: Tensor, mid: Tensor | None = None) -> None:
        if self._mask is not None:
            self._mask = self._mask.to(pre.device)  # layers may be spread over devices
        if self._mask is not None and self._pictures:
            self._mask = lengthened(self._mask, pre.shape[1], True)
        if self._mask is not None and self._mask.shape != pre.shape[:2]:
            raise FeatureError(
                f"the inputs describe {tuple(self._mask.shape)} (batch, token) positions but blocks.{index}.pre has "
                f"{tuple(pre.shape[:2])}: padding cannot be told apart; give inputs of one length, without a mask"
            )
        if not bool(torch.isfinite(pre if self._mask is None else pre[self._mask]).all()):
            raise FeatureError(f"blocks.{index}.pre holds NaN or infinity: there is nothing to explain")
        facts = self.facts(index)
        seen = Pass(pre, attn, widened(attention, self._mask), self._mask, mid)
        krylov = {"max_products": self.max_products, "accuracy": ACCURACY}
        rows, steps = layer_rows(facts, seen, self._chosen_tokens(index, seen), self.folded, krylov)
        self._drafts[0].extend(rows)
        left = max(self.spectra - self.inputs, 0)
        self._drafts[1].extend(head_rows(facts, seen.attention, steps, self._mask, left))

    def _chosen_tokens(self, index: int, seen: Pass) -> dict[str, Mask]:
        """The tokens of each policy; one that is an outlier before or after the sub-layer is one."""
        found: dict[str, Mask] = {}
        for policy in self.policies:
            masks = [self._mask, *(token_mask(policy, x, self._kinds) for x in (seen.x, seen.after))]
            kept = [mask for mask in masks if mask is not None]
            found[policy] = torch.stack(kept).all(0) if kept else None
            if kept and bool((found[policy].sum(-1) < 2).any()):  # type: ignore[union-attr]
                raise FeatureError(
                    f"token policy {policy!r} leaves fewer than two tokens of an input at blocks.{index}.pre: there is "
                    "no high-frequency part; use tokens='all', or longer inputs"
                )
        return found

    def _about(self) -> About[ExplainSettings]:
        settings = ExplainSettings(self.folded, self.chosen, self.spectra, self.max_products, ACCURACY, self.policies)
        definitions = Definitions(columns=dict(DEFINITIONS), tokens={p: POLICIES[p] for p in self.policies})
        counts = DataFacts(batches=self.batches, inputs=self.inputs)
        return About.of(self.view, settings, definitions, counts, self.origin)


def _check_layers(layers: Sequence[int] | None, count: int) -> tuple[int, ...]:
    if layers is not None and (isinstance(layers, str) or not isinstance(layers, Iterable)):
        raise OptionError(f"layers must be a list of numbers from 0 to {count - 1}, got {layers!r}")
    chosen = tuple(range(count)) if layers is None else tuple(dict.fromkeys(layers))
    if not chosen or any(not isinstance(i, int) or not 0 <= i < count for i in chosen):
        raise OptionError(f"layers must be between 0 and {count - 1}, got {list(chosen)}")
    return chosen


def check_rows_sum(v: ModelView) -> None:
    """Before any forward pass: no part of the attention goes to a sink, and no map across heads follows the softmax."""
    for layer in v.layers:
        if layer.sink:
            why = " or ".join(candidates(layer.attention_row.sink))
            raise WeightsError(
                f"{layer.name} of {v.family.name}: attention rows must sum to 1 (A·1 = 1), and here they do not "
                f"because of {why}: this model can be measured, not explained"
            )


def first_input(batch: Any, v: ModelView) -> Any:
    """The first input of a batch, as a batch; all of it for torch's encoder, whose first axis may be another."""
    if v.family.batch_first:
        return batch
    if isinstance(batch, tuple):
        return (first_input(batch[0], v),)
    if isinstance(batch, Mapping):
        return {name: x[:1] if isinstance(x, Tensor) and x.dim() else x for name, x in batch.items()}
    return batch[:1] if batch.dim() else batch


def kept_tokens(batch: Any, v: ModelView) -> Tensor | None:
    """The tokens that are no padding, where a batch says so and has any."""
    padding = padding_of(batch, v.prefix_tokens, v.model)
    return None if padding is None or not bool(padding.any()) else ~padding
