"""Attribute the change of ln HFC/LFC to parts of a model, batch by batch: one forward pass each, kept are sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.analysis.about import About, DataFacts, Definitions, Origin, module_of
from unsmooth.analysis.attribution import DEFINITIONS, KINDS, AttributeSettings, Attribution, Part, Shares, TokenSums
from unsmooth.analysis.explainer import check_rows_sum, first_input, kept_tokens
from unsmooth.analysis.facts import check_finite
from unsmooth.analysis.folding import cast_weights, fold_weights
from unsmooth.analysis.measurer import Seen
from unsmooth.analysis.policies import POLICIES, TokenKinds, resolve_policies, token_mask
from unsmooth.analysis.special import SpecialTokens
from unsmooth.analysis.walk import require_hooks, walk
from unsmooth.errors import FeatureError
from unsmooth.models import capture_attention, check_attention, hook_points, split_point, view
from unsmooth.models.family import Placement
from unsmooth.models.forward import each_batch, evaluating, lengthened, pictures_follow, to_model
from unsmooth.models.storage import home
from unsmooth.sources.batches import Data
from unsmooth.sources.loaded import LoadedModel
from unsmooth.theory.divisia import Mask, State, Step, spectral_side
from unsmooth.theory.folding import Folded, output_statistics, statistics
from unsmooth.theory.stochastic import widened


class Stage(NamedTuple):
    """One step of the stream inside a block: from where to where, and what was added between."""

    before: str
    after: str
    adds: tuple[str, ...]  # attention (heads and mean path), mlp, norm1, norm2


STAGES: dict[Placement, tuple[Stage, ...]] = {
    "pre": (Stage("pre", "mid", ("attention",)), Stage("mid", "post", ("mlp",))),
    "post": (
        Stage("pre", "attn_sum", ("attention",)),
        Stage("attn_sum", "mid", ("norm1",)),
        Stage("mid", "mlp_sum", ("mlp",)),
        Stage("mlp_sum", "post", ("norm2",)),
    ),
    "parallel": (Stage("pre", "post", ("attention", "mlp")),),
    "parallel-shared": (Stage("pre", "post", ("attention", "mlp")),),
}


def attribute(
    model: nn.Module | LoadedModel,
    batches: Iterable[Any],
    tokens: str | Sequence[str] = "all",
    *,
    special_ids: Iterable[int] | None = None,
    tokenizer: Any = None,
    spectrum: bool = False,
    total: int = 0,
    remove: str = "zero",
    origin: Origin | None = None,
) -> Attribution:
    """Who changed ln HFC/LFC between the first and the last block, exactly: every head, mean path, MLP and norm.

    Args:
        model: any Transformer that `explain` takes; its mode, dtype, device and hooks are as before afterwards.
        batches: image tensors, dicts of keyword inputs (Hugging Face), or tuples whose first item is the input.
        tokens: one or several token policies, as in `measure`: whose HFC and LFC. Padding is left out under all of
            them, and `no-outliers` leaves out a token in every layer that is an outlier in one (two forward passes).
        special_ids: as in `unsmooth.measure`.
        tokenizer: as in `unsmooth.measure`; it also names the tokens that carry the most.
        spectrum: also split every head by the side of H's spectrum (Re λ < 0 and the rest) on which it acts.
        total: of how many of the strongest parts the total effect is found as well: each is taken out and the model
            runs again on all batches (which are kept meanwhile).
        remove: `zero` takes the part out, `mean` gives every token the part's mean over tokens.
        origin: where model and data come from; known already where both were loaded by reference.
    """
    origin = origin or Origin.of(model, batches)
    given = batches if isinstance(batches, Data) or not total else list(each_batch(batches))
    with Attributor(
        model, tokens, special_ids=special_ids, tokenizer=tokenizer, spectrum=spectrum, origin=origin
    ) as attributor:
        for batch in each_batch(given):
            attributor.update(batch)
    found = attributor.result()
    if total:
        from unsmooth.analysis.removal import total_effects

        found.totals = total_effects(attributor, found, given, total, remove)
    return found


@dataclass(frozen=True)
class _LayerWeights:
    """What a layer's heads multiply by, folded, and the projector on the negative side of each head's spectrum."""

    folded: Folded
    negative: Float[Tensor, "head key key"] | None


class Attributor:
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
        most: int | None = None,
        origin: Origin | None = None,
    ) -> None:
        self.view = view(module_of(model))
        self.origin = origin or Origin.of(model)
        self.policies = resolve_policies(tokens)
        self.spectrum, self.most = spectrum, most
        check_rows_sum(self.view)
        self._stages = STAGES[self.view.family.placement]
        parallel = any("mlp" in stage.adds and len(stage.adds) > 1 for stage in self._stages)
        names = dict.fromkeys(name for stage in self._stages for name in stage[:2])
        self._points = (*names, *(("mlp",) if parallel else ()))
        self.inputs = self.batches = 0
        self.checked = False  # whether weights and matrices reproduce the attention's own output
        self._weights: dict[int, _LayerWeights] = {}
        self._special = SpecialTokens.find(model, special_ids, tokenizer)
        self._tokenizer = model.tokenizer if tokenizer is None and isinstance(model, LoadedModel) else tokenizer
        self._shares = {policy: Shares() for policy in self.policies}
        self._positions = {policy: TokenSums() for policy in self.policies}
        self._ids = {policy: TokenSums() for policy in self.policies}
        self._now: _Batch | None = None  # the forward pass that is listened to
        self._finding: _OutlierSearch | None = None
        self._ordinary: Mask = None  # no outliers in any layer, of the batch that comes next
        self._stack: ExitStack | None = None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(evaluating(self.view.model))
            points = [f"blocks.{layer.index}.{name}" for layer in self.view.layers for name in self._points]
            stack.enter_context(hook_points(self.view, points, self._on_point))
            stack.enter_context(capture_attention(self.view, self._on_attention))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()
        hooks, self._stack = require_hooks(self, self._stack), None
        hooks.__exit__(kind, error, trace)

    def update(self, batch: Any) -> None:
        """One forward pass (two for `no-outliers`), and its samples added to every sum, all of them or none.

        Before the first one, one input more: do weights and matrices reproduce the attention's own output?
        """
        if not self.checked:
            check_attention(self.view, first_input(to_model(batch, self.view.model), self.view))
            self.checked = True
        if "no-outliers" in self.policies:
            self._finding = _OutlierSearch(self)
            try:
                walk(self.view.model, batch, [self._finding])
                self._ordinary = self._finding.kept
            finally:
                self._finding = None
        try:
            walk(self.view.model, batch, [self])
        except FeatureError as error:
            raise FeatureError(f"{error} (batch {self.batches})") from None

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        self._now = None

    def left(self) -> int | None:
        """How many inputs are still wanted; None for all."""
        return None if self.most is None else self.most - self.inputs

    def kinds(self, inputs: Any) -> TokenKinds:
        """What is known about the positions of these inputs."""
        v = self.view
        found = TokenKinds.of_batch(
            inputs, v.prefix_tokens, self._special.ids, v.model, v.suffix_tokens, v.family.pictures
        )
        if "content" in self.policies and found.text:
            self._special.check(found, v.causal)
        return found.first(self.left())

    def weights(self, index: int) -> _LayerWeights:
        """A layer's folded weights, read when they are first needed."""
        if index not in self._weights:
            layer = self.view.layers[index]
            own = layer.weights()
            check_finite(layer.name, own)
            folded = fold_weights(cast_weights(own))
            side = spectral_side(*fold_weights(cast_weights(own, torch.float64)).pair) if self.spectrum else None
            self._weights[index] = _LayerWeights(folded, None if side is None else side.to(folded.w_v))
        return self._weights[index]

    def before(self, inputs: Any) -> None:
        """Look at the inputs of the forward pass that comes now."""
        require_hooks(self, self._stack)
        mask = kept_tokens(inputs, self.view)
        mask = mask if mask is None else mask[: self.left()]
        pictures = self.view.family.pictures is not None and pictures_follow(inputs)
        ids = inputs.get("input_ids") if isinstance(inputs, dict) else inputs
        ids = ids if isinstance(ids, Tensor) and ids.dim() == 2 and not ids.is_floating_point() else None
        self._now = _Batch(self.kinds(inputs), mask, pictures, self._ordinary, ids)

    def after(self, batch: Any, inputs: Any) -> None:
        """Take in what the forward pass left."""
        now, self._now = self._now, None
        assert now is not None
        values, ratios = now.values(), now.ratios(self.policies)
        for i, policy in enumerate(self.policies):
            self._shares[policy].add(now.parts[policy], values[policy], ratios[i])
            by_token, kept = now.by_token(policy, len(self.view.layers)), now.masks[policy]
            kept = None if kept is None else kept.cpu()
            if now.mask is None and kept is None:  # positions are the same for all inputs
                places = torch.arange(by_token.shape[1])[None]
                self._positions[policy].add(places, by_token.sum(0, keepdim=True).cpu(), None, len(by_token))
            else:
                self._positions[policy].add(now.positions(by_token), by_token.cpu(), kept)
            if now.ids is not None and now.ids.shape[1] == by_token.shape[1]:
                self._ids[policy].add(now.ids[: len(by_token)].cpu(), by_token.cpu(), kept)
        self.inputs += ratios.shape[-1]
        self.batches += 1

    def result(self, partial: bool = False) -> Attribution:
        """What was attributed so far."""
        if not self.batches:
            raise FeatureError("nothing was attributed: there was no batch; give at least one")
        decode = None if self._tokenizer is None else self._tokenizer.decode
        return Attribution(
            shares=self._shares,
            positions={policy: sums.by_position(self.inputs) for policy, sums in self._positions.items()},
            tokens={policy: sums.strongest(self.inputs, decode) for policy, sums in self._ids.items()},
            about=self._about(),
            partial=partial,
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        notes = []
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
        elif self._now is not None:
            self._receive(self._now, index, name, x[: self.left()])

    def _on_attention(self, index: int, a: Tensor) -> None:
        if self._now is not None:
            self._receive(self._now, index, "attention", a[: self.left()])

    def _receive(self, now: _Batch, index: int, name: str, x: Tensor) -> None:
        if name in ("attention", "mlp"):
            now.seen[name] = x
        elif name == "pre" and now.last is not None and now.last[0].is_still(x):
            now.states[name] = now.last[1]
        else:
            now.settle(x, self.policies, index)
            now.states[name] = {policy: State.of(x, now.masks[policy]) for policy in self.policies}
        if name == "pre":
            now.seen[name] = x.clone()  # a block may add to its stream in place
        known = now.seen.keys() | now.states.keys()
        for stage in self._stages:
            needed = {stage.before, stage.after, *({"attention"} if "attention" in stage.adds else ())}
            needed |= {"mlp"} if len(stage.adds) > 1 else set()
            if name in needed and needed <= known:
                self._share_out(now, index, stage)
        if name == "post":  # which the next block starts from
            now.last = (Seen.now(name, x), now.states[name])
            now.seen, now.states = {}, {}

    def _share_out(self, now: _Batch, index: int, stage: Stage) -> None:
        steps = {policy: now.step(policy, stage) for policy in self.policies}
        if "attention" in stage.adds:
            mixed, w = self._heads_on_deviations(now.seen, now.mask, index)
        for policy, step in steps.items():
            total = step.total()
            if len(stage.adds) > 1:
                mlp = step.shares(now.seen["mlp"].double())
                now.note(policy, Part(index, "mlp"), mlp)
                total = total - mlp
            if "attention" in stage.adds:
                now.note_heads(policy, index, step, total, mixed, w)
            else:
                now.note(policy, Part(index, stage.adds[0]), total)
            now.mark(policy, index, stage, step)

    def written(
        self, part: Part, added: Float[Tensor, "batch token dim"], seen: Mapping[str, Tensor], mask: Mask
    ) -> Float[Tensor, "batch token dim"]:
        """What a head, or the mean path, has of what attention added (in a forward pass that `seen` is from)."""
        mixed, w = self._heads_on_deviations(seen, mask, part.layer)
        parts = torch.einsum("bhnk,hkd->bhnd", mixed, w.folded.w_proj).to(added.dtype)
        return parts[:, part.head] if part.head is not None else added - parts.sum(1)

    def _heads_on_deviations(
        self, seen: Mapping[str, Tensor], kept: Mask, index: int
    ) -> tuple[Float[Tensor, "batch head token key"], _LayerWeights]:
        """`A_h (Z − 1z̄) W_V^h` of every head; constants (norm bias, b_v) cancel in the deviations."""
        w = self.weights(index)
        folded, dtype = w.folded, w.folded.w_v.dtype
        heads, dim, key = folded.w_v.shape
        x = seen["pre"].to(dtype)
        attention = widened(seen["attention"], kept).to(dtype)
        if kept is not None:
            x = torch.where(kept[..., None], x, 0)
            attention = torch.where(kept[:, None, :, None], attention, 0)
        d = statistics(folded.norm, x)
        values = (x * d[..., None]) @ folded.w_v.transpose(0, 1).reshape(dim, heads * key)
        if kept is None:
            values = values - values.mean(-2, keepdim=True)
        else:
            mean = (values * kept[..., None]).sum(-2, keepdim=True) / kept.sum(-1)[:, None, None]
            values = (values - mean) * kept[..., None]
        mixed = attention @ values.unflatten(-1, (heads, key)).transpose(1, 2)
        d_out = output_statistics(x, attention, folded, d)
        return (mixed if d_out is None else mixed * d_out[:, None, :, None]), w

    def _about(self) -> About[AttributeSettings]:
        settings = AttributeSettings(self.policies, self.spectrum)
        definitions = Definitions(columns=dict(DEFINITIONS), tokens={p: POLICIES[p] for p in self.policies})
        counts = DataFacts(batches=self.batches, inputs=self.inputs)
        return About.of(self.view, settings, definitions, counts, self.origin)


class _OutlierSearch:
    """The listener of a forward pass that only looks for tokens which are outliers somewhere along the stream."""

    def __init__(self, attributor: Attributor) -> None:
        self._attributor = attributor
        self._kinds = TokenKinds()
        self.kept: Mask = None

    def before(self, inputs: Any) -> None:
        """Which tokens are padding."""
        self._kinds = self._attributor.kinds(inputs)

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


class _Batch:
    """One forward pass: which tokens count, and the shares found so far, on the model's device."""

    def __init__(self, kinds: TokenKinds, mask: Mask, pictures: bool, ordinary: Mask, ids: Tensor | None) -> None:
        self.kinds, self.mask, self.pictures, self.ordinary, self.ids = kinds, mask, pictures, ordinary, ids
        self.seen: dict[str, Tensor] = {}
        self.last: tuple[Seen, dict[str, State]] | None = None  # the end of the block before
        self.states: dict[str, dict[str, State]] = {}  # by point and policy
        self.masks: dict[str, Mask] = {}
        self.parts: dict[str, list[Part]] = {}
        self._values: dict[str, list[Tensor]] = {}
        self._tokens: dict[str, dict[tuple[int, int], Tensor]] = {}
        self._first: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._changes: dict[str, list[Tensor]] = {}
        self._steps: list[str] = []

    def positions(self, like: Tensor) -> Tensor:
        """Where each token stands in its sequence; padding does not count."""
        if self.mask is None:
            return torch.arange(like.shape[1]).expand(like.shape[:2])
        return self.mask.cpu().cumsum(-1) - 1

    def settle(self, x: Tensor, policies: Sequence[str], index: int) -> None:
        """The tokens that count under each policy, once the stream's length is known."""
        if self.masks:
            return
        if self.mask is not None and self.pictures:
            self.mask = lengthened(self.mask, x.shape[1], True)
        if self.mask is not None and self.mask.shape != x.shape[:2]:
            raise FeatureError(
                f"the inputs describe {tuple(self.mask.shape)} (batch, token) positions but blocks.{index}.pre has "
                f"{tuple(x.shape[:2])}: padding cannot be told apart; give inputs of one length, without a mask"
            )
        for policy in policies:
            chosen = self.ordinary if policy == "no-outliers" else token_mask(policy, x, self.kinds)
            masks = [m for m in (self.mask, chosen) if m is not None]
            found = torch.stack([m.to(x.device) for m in masks]).all(0) if masks else None
            least = x.shape[1] if found is None else int(found.sum(-1).min())
            if least < 2:
                raise FeatureError(
                    f"token policy {policy!r} leaves fewer than two tokens of an input: there is no high-frequency "
                    "part; use tokens='all', or longer inputs"
                )
            self.masks[policy] = found

    def note(self, policy: str, part: Part, shares: Float[Tensor, "2 batch token"]) -> None:
        """Keep a part's shares: its sum, and what each token has of it, with all parts of its kind."""
        self.parts.setdefault(policy, []).append(part)
        none = torch.full_like(shares[0, :, 0], torch.nan)
        self._values.setdefault(policy, []).append(torch.stack([*shares.sum(-1), none])[None])
        self._add_tokens(policy, part, shares.sum(0))

    def step(self, policy: str, stage: Stage) -> Step:
        """One step of the stream, for the tokens of a policy."""
        return Step(self.states[stage.before][policy], self.states[stage.after][policy])

    def note_heads(self, policy: str, index: int, step: Step, total: Tensor, mixed: Tensor, w: _LayerWeights) -> None:
        """The heads on deviations, and the mean path: what else attention added, exactly."""
        through = step.project(w.folded.w_proj)
        shares = through(mixed)
        sums = shares.sum(-1)
        negative = torch.full_like(sums[0], torch.nan)
        if w.negative is not None:
            negative = through(mixed @ w.negative).sum((0, -1))
        self.parts.setdefault(policy, []).extend(Part(index, "head", head) for head in range(sums.shape[-1]))
        self._values.setdefault(policy, []).append(torch.stack([*sums, negative]).permute(2, 0, 1))
        self._add_tokens(policy, Part(index, "head"), shares.sum((0, 2)))
        self.note(policy, Part(index, "mean"), total - shares.sum(2))

    def _add_tokens(self, policy: str, part: Part, shares: Float[Tensor, "batch token"]) -> None:
        place = part.layer, KINDS.index(part.kind)
        table = self._tokens.setdefault(policy, {})
        table[place] = table[place] + shares if place in table else shares

    def mark(self, policy: str, index: int, stage: Stage, step: Step) -> None:
        """Remember the ratio at both ends of the stream, and at every step whether it exists."""
        first, last = step.before.ratio, step.after.ratio
        if stage.before == "pre":  # not always the stage that is known first: ALBERT shows its matrices late
            self._first.setdefault(policy, first)
        if stage.after == "post":
            self._last[policy] = last
        self._changes.setdefault(policy, []).append(last - first)
        if policy == next(iter(self.masks)):
            self._steps.append(f"blocks.{index}.{stage.after}")

    def values(self) -> dict[str, Float[Tensor, "part 3 batch"]]:
        """Shares through HFC, through LFC and from the negative side, of every part and input."""
        return {policy: torch.cat(found).cpu() for policy, found in self._values.items()}

    def ratios(self, policies: Sequence[str]) -> Float[Tensor, "policy 2 batch"]:
        """ln HFC/LFC of every input at the first and the last state; FeatureError where a step has no logarithm."""
        changes = torch.stack([torch.stack(self._changes[policy]) for policy in policies]).cpu()
        if not bool(torch.isfinite(changes).all()):
            policy, step, sample = (int(i) for i in (~torch.isfinite(changes)).nonzero()[0])
            raise FeatureError(
                f"ln HFC/LFC does not exist at {self._steps[step]} or just before it (input {sample}, "
                f"{policies[policy]} tokens): the features hold NaN or infinity, all tokens are equal, or their mean "
                "is 0"
            )
        return torch.stack([torch.stack([self._first[policy], self._last[policy]]) for policy in policies]).cpu()

    def by_token(self, policy: str, layers: int) -> Float[Tensor, "batch token layer kind"]:
        """What each token has of every layer's kinds of parts."""
        table = self._tokens[policy]
        empty = torch.zeros_like(next(iter(table.values())))
        rows = [torch.stack([table.get((i, k), empty) for k in range(len(KINDS))], -1) for i in range(layers)]
        return torch.stack(rows, -2)
