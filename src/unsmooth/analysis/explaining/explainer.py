"""Explain a real model, batch by batch: one forward pass each, nothing kept but rows of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.analysis.about import THROUGH_THE_ORIGINAL, Origin, is_compiled
from unsmooth.analysis.attention_listener import AttentionListener, BatchTokens, counted_tokens
from unsmooth.analysis.explaining.explanation import DEFINITIONS, ExplainSettings, Explanation
from unsmooth.analysis.explaining.facts import DENSE_UP_TO, LayerFacts, layer_facts
from unsmooth.analysis.explaining.heads import head_rows
from unsmooth.analysis.explaining.sublayer import Mask, Pass, layer_rows
from unsmooth.analysis.policies import token_mask
from unsmooth.analysis.walk import nothing
from unsmooth.errors import FeatureError
from unsmooth.metrics.workers import small_problems, spread
from unsmooth.models import hook_points
from unsmooth.models.inputs import each_batch
from unsmooth.models.select import Layers, attention_names, select_layers
from unsmooth.models.storage import is_sharded
from unsmooth.sources.loaded import LoadedModel
from unsmooth.theory.matrices import HeadMatrices

NONE = torch.zeros(0, dtype=torch.complex128)
SPECTRA, SPECTRA_TOKENS = 8, 512  # of so many inputs, up to so many tokens each, spectra of A are found unless told
ACCURACY = 0.01  # a layer's Krylov search ends when γ is known to about this share of itself


def explain(
    model: nn.Module | LoadedModel,
    batches: Iterable[Any],
    tokens: str | Sequence[str] = "all",
    *,
    special_ids: Iterable[int] | None = None,
    tokenizer: Any = None,
    folded: bool = True,
    layers: Layers | None = None,
    spectra: int | None = None,
    max_products: int = 240,
    layer_spectrum: bool | None = None,
    heads_in_turn: bool | None = None,
    origin: Origin | None = None,
) -> Explanation:
    """Explain from the weights why attention smooths or sharpens, by layer and head, and measure whether it does.

    Args:
        model: any supported Transformer; its mode, dtype, device and hooks are as before afterwards.
        batches: image tensors, dicts of keyword inputs (Hugging Face), or tuples whose first item is the input.
        tokens: one or several token policies, as in `measure`, for the measured changes of HFC/LFC. Under each of them
            padding is left out, and the exponents are those of all other tokens.
        special_ids: as in `unsmooth.measure`.
        tokenizer: as in `unsmooth.measure`.
        folded: fold the norms, LayerScale and biases into H (`False`: the bare W_V W_proj with step size 1).
        layers: which layers (passes), as in `reparametrize`: indices or a pattern; all by default.
        spectra: for how many inputs the spectrum of every attention matrix is computed; this takes O(n³) per head,
            unless the model is causal. By default 8, above 512 tokens as many as take no longer than 8 of 512, and none
            above 1,024.
        max_products: the longest Krylov search per layer; a search cut short is marked `converged = False`.
        layer_spectrum: compute all eigenvalues of Σ_h H_h of each layer (a dense d×d problem); by default up to a width
            of 1,024. Without them γ is the same, but alignment and the fixed point are unknown.
        heads_in_turn: compute attention matrices a few heads at a time from queries and keys, and keep none. By default
            this is done where those of a batch take more than a GiB, in models that call PyTorch's fused attention.
        origin: where model and data come from; known already where both were loaded by reference.
    """
    origin = origin or Origin.of(model, batches)
    with Explainer(
        model, tokens, special_ids=special_ids, tokenizer=tokenizer, folded=folded, layers=layers, spectra=spectra,
        max_products=max_products, layer_spectrum=layer_spectrum, heads_in_turn=heads_in_turn, origin=origin,
    ) as explainer:  # fmt: skip
        for batch in each_batch(batches):
            explainer.update(batch)
    return explainer.result()


class Explainer(AttentionListener):
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
        layers: Layers | None = None,
        spectra: int | None = None,
        max_products: int = 240,
        layer_spectrum: bool | None = None,
        heads_in_turn: bool | None = None,
        most: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(model, tokens, special_ids, tokenizer, heads_in_turn, most, origin)
        self._compiled = is_compiled(model)
        self.folded, self.spectra, self.max_products = folded, spectra, max_products
        self._fewer_spectra = False
        self.whole = self.view.width <= DENSE_UP_TO if layer_spectrum is None else layer_spectrum
        names = attention_names(self.view.model, self.view.layers)
        self.chosen = tuple(select_layers("all" if layers is None else layers, names))
        for index in self.chosen:  # weights without a spectrum are refused before any forward pass
            self.read_weights(index)
        # the norm after the sum is part of a post-norm sub-layer, and γ is of both
        self._points = ("pre", "attn", "mid") if self.view.family.placement == "post" else ("pre", "attn")
        self.layer_rows: list[dict[str, Any]] = []
        self.head_rows: list[dict[str, Any]] = []
        self._facts: dict[int, LayerFacts] = {}
        self._tokens: BatchTokens | None = None  # of the forward pass that is listened to
        self._pending: dict[int, dict[str, Any]] = {}
        self._drafts: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])

    def hooks(self) -> Iterable[AbstractContextManager[Any]]:
        """On the points of every chosen layer; on its attention matrices from the inputs of a pass to its end."""
        yield hook_points(
            self.view, [f"blocks.{i}.{name}" for i in self.chosen for name in self._points], self._on_point
        )

    def facts(self, index: int) -> LayerFacts:
        """The data-free part of a layer, computed when it is first needed; dense spectra of all layers side by side."""
        if index not in self._facts:
            together = [index]
            if self.whole and self._at_hand(index):
                together = [i for i in self.chosen if i not in self._facts and self._at_hand(i)]
            # Read here, not by the workers: shards are gathered, and all processes must do that in one order.
            given = [(layer := self.view.layers[i], self.folded, self.whole, layer.weights()) for i in together]
            # heads alone are spread over the cores by themselves, which a worker's one thread would not do
            found = spread(lambda each: layer_facts(*each), given) if self.whole else [layer_facts(*given[0])]
            self._facts |= dict(zip(together, found, strict=True))
        return self._facts[index]

    def _at_hand(self, index: int) -> bool:
        """Whether a layer's weights are there at any time: sharded and offloaded ones are in the forward pass only."""
        return not any(is_sharded(p) or p.is_meta for p in self.view.layers[index].attention.parameters())

    def before(self, inputs: Any) -> None:
        """Look at the inputs of the forward pass that comes now."""
        super().before(inputs)
        with self.numbered():
            self._tokens = self.tokens_of(inputs)

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        super().abandon()
        self._tokens = None
        self._drafts = ([], [])
        self._pending.clear()

    def after(self, batch: Any, inputs: Any) -> None:
        """Take in what the forward pass left."""
        for rows, drafts in zip((self.layer_rows, self.head_rows), self._drafts, strict=True):
            rows += [{**row, "input": row["input"] + self.inputs} for row in drafts]
        self.abandon()
        self.inputs = 1 + max((row["input"] for row in self.layer_rows), default=-1)
        self.batches += 1

    def result(self, partial: bool = False) -> Explanation:
        """What was explained so far."""
        if not self.batches:
            raise nothing("explained")
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
        notes += self._fix_notes()
        notes += self.rounding_note()
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
        if self._fewer_spectra:
            notes.append(
                f"spectra of attention matrices, which take n³ operations a head, were found for fewer than {SPECTRA} "
                f"inputs, for these are longer than {SPECTRA_TOKENS} tokens; spectra={SPECTRA} finds them"
            )
        asked = SPECTRA if self.spectra is None else self.spectra
        settings = ExplainSettings(self.folded, self.chosen, asked, self.max_products, ACCURACY, self.policies)
        about = self.about(settings, DEFINITIONS)
        return Explanation(self.layer_rows, self.head_rows, weights, spectra, about, partial, notes)

    def _fix_notes(self) -> list[str]:
        """One for a published fix that acts before the norms, where its effect is in neither A nor H."""
        fixes = [getattr(self.view.layers[i].attention, "fix", None) for i in self.chosen]
        named = sorted({type(fix).__name__ for fix in fixes if fix is not None and not hasattr(fix, "matrix")})
        return [
            f"{name} acts outside the attention matrices: γ and the other predictions leave it out" for name in named
        ]

    def _on_point(self, point: str, x: Tensor) -> None:
        _, index, name = point.split(".")
        self._receive(int(index), name, x[: self.left()])

    def attended(self, index: int, a: HeadMatrices) -> None:
        """The matrices of a layer, after which, or before, its points come."""
        self._receive(index, "attention", a)

    def _receive(self, index: int, name: str, seen: Any) -> None:
        if self._tokens is None:
            return
        found = self._pending.setdefault(index, {})
        found[name] = seen
        if len(found) == len(self._points) + 1:
            with self.numbered(), small_problems(seen.device):
                self._explain(self._tokens, index, **self._pending.pop(index))

    def _explain(
        self,
        tokens: BatchTokens,
        index: int,
        pre: Tensor,
        attn: Tensor,
        attention: HeadMatrices,
        mid: Tensor | None = None,
    ) -> None:
        mask = tokens.kept(pre, index)
        if not bool(torch.isfinite(pre if mask is None else pre[mask]).all()):
            raise FeatureError(
                f"blocks.{index}.pre holds NaN or infinity: there is nothing to explain; look at the weights before it "
                "and at the inputs, or use a wider dtype"
            )
        facts = self.facts(index)
        seen = Pass(pre, attn, attention.widened(mask), mask, mid)
        chosen: dict[str, Mask] = {}
        for policy in self.policies:  # a token that is an outlier before or after the sub-layer is one
            by_policy = (token_mask(policy, x, tokens.kinds) for x in (seen.x, seen.after))
            chosen[policy] = counted_tokens(policy, [mask, *by_policy], pre, index)
        krylov = {"max_products": self.max_products, "accuracy": ACCURACY}
        rows, mixing, steps = layer_rows(facts, seen, chosen, self.folded, krylov)
        self._drafts[0].extend(rows)
        wanted = self._wanted_spectra(pre.shape[1], mixing.own is not None)
        self._drafts[1].extend(head_rows(facts, seen.attention, mixing, steps, max(wanted - self.inputs, 0)))

    def _wanted_spectra(self, tokens: int, causal: bool) -> int:
        """Of how many inputs of this length; causal matrices have theirs on the diagonal."""
        if self.spectra is not None:
            return self.spectra
        found = SPECTRA if causal else min(SPECTRA, int(SPECTRA * (SPECTRA_TOKENS / tokens) ** 3))
        self._fewer_spectra |= found < SPECTRA
        return found
