"""Attribute the change of ln HFC/LFC to parts of a model, batch by batch: one forward pass each, kept are sums."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.analysis.about import Origin, tokenizer_of
from unsmooth.analysis.attention_listener import AttentionListener
from unsmooth.analysis.attributing.attribution import (
    DEFINITIONS,
    PASSES,
    STRONGEST,
    AttributeSettings,
    Attribution,
    affordable,
)
from unsmooth.analysis.attributing.carriers import DEFINITIONS as CARRIER_DEFINITIONS
from unsmooth.analysis.attributing.carriers import CarrierPass, CarrierSums
from unsmooth.analysis.attributing.share_pass import STAGES, LayerWeights, SharePass
from unsmooth.analysis.attributing.shares import AttributedSums, Part
from unsmooth.analysis.layer_weights import cast_weights, fold_weights
from unsmooth.analysis.policies import TokenKinds, token_mask
from unsmooth.analysis.walk import nothing, walk
from unsmooth.models import hook_points, split_point
from unsmooth.models.inputs import each_batch
from unsmooth.models.storage import home
from unsmooth.sources.batches import Data
from unsmooth.sources.loaded import LoadedModel
from unsmooth.theory.divisia import Mask, heads_on_deviations, spectral_side
from unsmooth.theory.matrices import HeadMatrices


def attribute(
    model: nn.Module | LoadedModel,
    batches: Iterable[Any],
    tokens: str | Sequence[str] = "all",
    *,
    special_ids: Iterable[int] | None = None,
    tokenizer: Any = None,
    spectrum: bool = False,
    total: int = STRONGEST,
    passes: int = PASSES,
    remove: str = "zero",
    carriers: bool = False,
    heads_in_turn: bool | None = None,
    origin: Origin | None = None,
) -> Attribution:
    """Split the change of ln HFC/LFC from the first block to the last exactly into heads, mean paths, MLPs and norms.

    Args:
        model: any Transformer that `explain` takes; its mode, dtype, device and hooks are as before afterwards.
        batches: image tensors, dicts of keyword inputs (Hugging Face), or tuples whose first item is the input.
        tokens: one or several token policies, as in `measure`, which select the tokens that are counted. Padding is
            left out under all of them, and `no-outliers` leaves out a token in every layer that is an outlier in one
            (two forward passes).
        special_ids: as in `unsmooth.measure`.
        tokenizer: as in `unsmooth.measure`; it also names the tokens that carry the most.
        spectrum: also split every head by the eigenvalues of its H, into Re λ < 0 and the rest.
        total: for this many of the strongest parts, compute the total effect too: the part is removed and the model
            runs again on the first batches (which are kept until then).
        passes: the largest number of forward passes for this; the first batch is always used.
        remove: `zero` removes the part, `mean` replaces it by its mean over tokens.
        carriers: also find tokens of extreme norm, with their kurtosis, their massive activations and the heads that
            attend to them. If an MLP creates them, this takes three more forward passes over all batches (which are
            kept until then): to find the tokens, with the model as it is, and without what is written to them.
        heads_in_turn: as in `unsmooth.explain`.
        origin: where model and data come from; known already where both were loaded by reference.
    """
    origin = origin or Origin.of(model, batches)
    given = batches if isinstance(batches, Data) or not carriers else list(each_batch(batches))
    first: list[Any] = []
    with Attributor(
        model, tokens, special_ids=special_ids, tokenizer=tokenizer, spectrum=spectrum, carriers=carriers,
        heads_in_turn=heads_in_turn, origin=origin,
    ) as attributor:  # fmt: skip
        for batch in each_batch(given):
            attributor.update(batch)
            if len(first) < affordable(total, passes):
                first.append(batch)
    if attributor.carriers is not None:
        from unsmooth.analysis.attributing.account import take_account

        take_account(attributor, given, attributor.carriers.outliers())
    found = attributor.result()
    if total:
        from unsmooth.analysis.attributing.removal import total_effects

        found.totals = total_effects(attributor, found, first, total, remove)
    return found


class Attributor(AttentionListener):
    """`attribute`, batch by batch: enter, `update` with each batch, leave, take the `result`.

    With `most`, only so many inputs are attributed, whatever the batches hold beside them.
    """

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        tokens: str | Sequence[str] = "all",
        *,
        special_ids: Iterable[int] | None = None,
        tokenizer: Any = None,
        spectrum: bool = False,
        carriers: bool = False,
        heads_in_turn: bool | None = None,
        most: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        super().__init__(model, tokens, special_ids, tokenizer, heads_in_turn, most, origin)
        self.spectrum = spectrum
        stages = STAGES[self.view.family.placement]
        parallel = any("mlp" in stage.adds and len(stage.adds) > 1 for stage in stages)
        names = dict.fromkeys(name for stage in stages for name in stage[:2])
        self._points = (*names, *(("mlp",) if parallel else ()))
        self._weights: dict[int, LayerWeights] = {}
        self._tokenizer = tokenizer_of(model, tokenizer)
        self.sums = {policy: AttributedSums() for policy in self.policies}
        self._now: SharePass | None = None  # the forward pass that is listened to
        self._finding: _OutlierSearch | None = None
        self.carriers = CarrierSums(self.view.family.placement) if carriers else None
        self.looking: CarrierPass | None = None  # at the tokens of a forward pass
        self._ordinary: Mask = None  # no outliers in any layer, of the batch that comes next

    def hooks(self) -> Iterable[AbstractContextManager[Any]]:
        """On the states of every layer's stream; on its attention matrices from the inputs of a pass to its end."""
        points = [f"blocks.{layer.index}.{name}" for layer in self.view.layers for name in self._points]
        yield hook_points(self.view, points, self._on_point)

    def update(self, batch: Any) -> None:
        """One forward pass, all of whose inputs are taken in, or none; for `no-outliers` one before it finds these."""
        self.check(batch)
        with self.numbered():
            if "no-outliers" in self.policies:
                self._finding = _OutlierSearch(self)
                try:
                    walk(self.view.model, batch, [self._finding])
                    self._ordinary = self._finding.kept
                finally:
                    self._finding = None
            super().update(batch)

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        super().abandon()
        self._now = self.looking = None

    def weights(self, index: int) -> LayerWeights:
        """A layer's folded weights, read when they are first needed."""
        if index not in self._weights:
            own = self.read_weights(index)
            folded = fold_weights(cast_weights(own))
            side = spectral_side(*fold_weights(cast_weights(own, torch.float64)).pair) if self.spectrum else None
            self._weights[index] = LayerWeights(folded, None if side is None else side.to(folded.w_v))
        return self._weights[index]

    def before(self, inputs: Any) -> None:
        """Look at the inputs of the forward pass that comes now."""
        super().before(inputs)
        ids = inputs.get("input_ids") if isinstance(inputs, dict) else inputs
        ids = ids if isinstance(ids, Tensor) and ids.dim() == 2 and not ids.is_floating_point() else None
        placement, tokens = self.view.family.placement, self.tokens_of(inputs)
        self._now = SharePass(placement, self.policies, tokens, self._ordinary, ids, self.weights)
        self.looking = None if self.carriers is None else CarrierPass(tokens)

    def after(self, batch: Any, inputs: Any) -> None:
        """Take in what the forward pass left."""
        now, self._now = self._now, None
        assert now is not None
        values, ratios = now.values(), now.ratios()
        for i, policy in enumerate(self.policies):
            sums = self.sums[policy]
            sums.shares.add(now.parts[policy], values[policy], ratios[i])
            by_token, kept = now.by_token(policy, len(self.view.layers)), now.masks[policy]
            kept = None if kept is None else kept.cpu()
            if now.mask is None and kept is None:  # positions are the same for all inputs
                places = torch.arange(by_token.shape[1])[None]
                sums.positions.add(places, by_token.sum(0, keepdim=True).cpu(), None, len(by_token))
            else:
                sums.positions.add(now.positions(by_token), by_token.cpu(), kept)
            if now.ids is not None and now.ids.shape[1] == by_token.shape[1]:
                sums.ids.add(now.ids[: len(by_token)].cpu(), by_token.cpu(), kept)
        if self.carriers is not None and self.looking is not None:
            self.carriers.add(self.looking)
        self.abandon()
        self.inputs += ratios.shape[-1]
        self.batches += 1

    def result(self, partial: bool = False) -> Attribution:
        """What was attributed so far."""
        if not self.batches:
            raise nothing("attributed")
        decode = None if self._tokenizer is None else self._tokenizer.decode
        return Attribution(
            shares={policy: sums.shares for policy, sums in self.sums.items()},
            positions={policy: sums.positions.by_position(self.inputs) for policy, sums in self.sums.items()},
            tokens={policy: sums.ids.strongest(self.inputs, decode) for policy, sums in self.sums.items()},
            about=self.about(AttributeSettings(self.policies, self.spectrum), self._definitions()),
            partial=partial,
            notes=self._notes(),
            carriers=None if self.carriers is None else self.carriers.result(),
        )

    def _definitions(self) -> dict[str, str]:
        return DEFINITIONS if self.carriers is None else {**DEFINITIONS, **CARRIER_DEFINITIONS}

    def _notes(self) -> list[str]:
        notes = self.rounding_note()
        if self.spectrum:
            sizes = torch.stack([torch.linalg.matrix_norm(w.negative.double(), 2).amax()  # type: ignore[union-attr]
                                 for w in self._weights.values()])  # fmt: skip
            if float(sizes.max()) > 10:
                notes.append(
                    f"H is far from normal: the projector on the negative side has norm up to {float(sizes.max()):.3g} "
                    "(1 for a symmetric H), and the shares of both sides cancel accordingly"
                )
        if home(self.view.model)[1] in (torch.bfloat16, torch.float16):
            notes.append("half precision: what rounding adds to the stream counts with the mean path and the MLP")
        return notes

    def _on_point(self, point: str, x: Tensor) -> None:
        index, name = split_point(point)
        assert index is not None
        if self._finding is not None:
            self._finding.see(name, x)
            return
        x = x[: self.left()]
        if self._now is not None:
            self._now.receive(index, name, x)
        if self.looking is not None:
            self.looking.receive(point, x)

    def attended(self, index: int, a: HeadMatrices) -> None:
        """The matrices of a layer, for whoever looks at this forward pass."""
        if self._now is not None:
            self._now.attended(index, a)
        if self.looking is not None:
            self.looking.attended(index, a)

    def written(
        self, part: Part, added: Float[Tensor, "batch token dim"], pre: Tensor, attention: HeadMatrices, mask: Mask
    ) -> Float[Tensor, "batch token dim"]:
        """What a head, or the mean path, has of what attention added to the stream by these matrices."""
        folded = self.weights(part.layer).folded
        mixed = heads_on_deviations(folded, pre, attention, mask)
        parts = torch.einsum("bhnk,hkd->bhnd", mixed, folded.w_proj).to(added.dtype)
        return parts[:, part.head] if part.head is not None else added - parts.sum(1)


class _OutlierSearch:
    """The listener of a forward pass that only looks for tokens which are outliers somewhere along the stream."""

    def __init__(self, attributor: Attributor) -> None:
        self._attributor = attributor
        self._kinds = TokenKinds()
        self.kept: Mask = None

    def before(self, inputs: Any) -> None:
        """Which tokens are padding."""
        self._kinds = self._attributor.tokens_of(inputs).kinds

    def see(self, name: str, x: Tensor) -> None:
        """One state of the stream."""
        if name == "mlp":
            return
        kept = token_mask("no-outliers", x[: self._attributor.left()], self._kinds)
        self.kept = kept if self.kept is None or kept is None else self.kept & kept

    def after(self, batch: Any, inputs: Any) -> None:
        """Nothing is left to do."""

    def abandon(self) -> None:
        """Forget what was found."""
        self.kept = None
