"""One forward pass, attributed: states of the stream as they come, and the shares of what was added between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.analysis.attention_listener import BatchTokens, counted_tokens
from unsmooth.analysis.attributing.shares import KINDS, Part
from unsmooth.analysis.policies import token_mask
from unsmooth.analysis.walk import Seen
from unsmooth.errors import FeatureError
from unsmooth.models.family import Placement
from unsmooth.theory.divisia import Mask, State, Step, heads_on_deviations
from unsmooth.theory.folding import Folded
from unsmooth.theory.matrices import HeadMatrices


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


@dataclass(frozen=True)
class LayerWeights:
    """What a layer's heads multiply by, folded, and the projector on the negative side of each head's spectrum."""

    folded: Folded
    negative: Float[Tensor, "head key key"] | None


class SharePass:
    """Which tokens count, and the shares found so far, on the model's device."""

    def __init__(
        self,
        placement: Placement,
        policies: Sequence[str],
        tokens: BatchTokens,
        ordinary: Mask,
        ids: Tensor | None,
        weights: Callable[[int], LayerWeights],
    ) -> None:
        self.tokens, self.ids, self.policies = tokens, ids, policies
        self.mask: Mask = tokens.mask  # no padding
        self.masks: dict[str, Mask] = {}
        self.parts: dict[str, list[Part]] = {}
        self._stages, self._ordinary, self._weights = STAGES[placement], ordinary, weights
        self._seen: dict[str, Tensor] = {}
        self._attention: HeadMatrices | None = None
        self._states: dict[str, dict[str, State]] = {}  # by point and policy
        self._before: tuple[Seen, dict[str, State]] | None = None  # the end of the block before
        self._values: dict[str, list[Tensor]] = {}
        self._tokens: dict[str, dict[tuple[int, int], Tensor]] = {}
        self._first: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}
        self._changes: dict[str, list[Tensor]] = {}
        self._steps: list[str] = []

    def attended(self, index: int, a: HeadMatrices) -> None:
        """The matrices of a layer."""
        self._attention = a
        self._share_known(index, "attention")

    def receive(self, index: int, name: str, x: Tensor) -> None:
        """A state of the stream, or what a layer's MLP adds."""
        if name == "mlp":
            self._seen[name] = x
        elif name == "pre" and self._before is not None and self._before[0].is_still(x):
            self._states[name] = self._before[1]
        else:
            self._settle(x, index)
            self._states[name] = {policy: State.of(x, self.masks[policy]) for policy in self.policies}
        if name == "pre":
            self._seen[name] = x.clone()  # a block may add to its stream in place
        self._share_known(index, name)
        if name == "post":  # which the next block starts from
            self._before = (Seen.now(name, x), self._states[name])
            self._seen, self._states, self._attention = {}, {}, None

    def _share_known(self, index: int, name: str) -> None:
        """Share out the steps for which all is known, now that this is."""
        known = self._seen.keys() | self._states.keys() | ({"attention"} if self._attention is not None else set())
        for stage in self._stages:
            needed = {stage.before, stage.after, *({"attention"} if "attention" in stage.adds else ())}
            needed |= {"mlp"} if len(stage.adds) > 1 else set()
            if name in needed and needed <= known:
                self._share_out(index, stage)

    def _settle(self, x: Tensor, index: int) -> None:
        """The tokens that count under each policy, once the stream's length is known."""
        if self.masks:
            return
        self.mask = self.tokens.kept(x, index)
        for policy in self.policies:
            chosen = self._ordinary if policy == "no-outliers" else token_mask(policy, x, self.tokens.kinds)
            self.masks[policy] = counted_tokens(policy, [self.mask, chosen], x, index)

    def _share_out(self, index: int, stage: Stage) -> None:
        if "attention" in stage.adds:
            assert self._attention is not None
            w = self._weights(index)
            mixed = heads_on_deviations(w.folded, self._seen["pre"], self._attention, self.mask)
        for policy in self.policies:
            step = Step(self._states[stage.before][policy], self._states[stage.after][policy])
            total = step.total()
            if len(stage.adds) > 1:
                mlp = step.shares(self._seen["mlp"].double())
                self._note(policy, Part(index, "mlp"), mlp)
                total = total - mlp
            if "attention" in stage.adds:
                self._note_heads(policy, index, step, total, mixed, w)
            else:
                self._note(policy, Part(index, stage.adds[0]), total)
            self._mark(policy, index, stage, step)

    def _note(self, policy: str, part: Part, shares: Float[Tensor, "2 batch token"]) -> None:
        """Keep a part's shares: its sum, and what each token has of it, with all parts of its kind."""
        self.parts.setdefault(policy, []).append(part)
        none = torch.full_like(shares[0, :, 0], torch.nan)
        self._values.setdefault(policy, []).append(torch.stack([*shares.sum(-1), none])[None])
        self._add_tokens(policy, part, shares.sum(0))

    def _note_heads(self, policy: str, index: int, step: Step, total: Tensor, mixed: Tensor, w: LayerWeights) -> None:
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
        self._note(policy, Part(index, "mean"), total - shares.sum(2))

    def _add_tokens(self, policy: str, part: Part, shares: Float[Tensor, "batch token"]) -> None:
        place = part.layer, KINDS.index(part.kind)
        table = self._tokens.setdefault(policy, {})
        table[place] = table[place] + shares if place in table else shares

    def _mark(self, policy: str, index: int, stage: Stage, step: Step) -> None:
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

    def ratios(self) -> Float[Tensor, "policy 2 batch"]:
        """ln HFC/LFC of every input at the first and the last state; FeatureError where a step has no logarithm."""
        changes = torch.stack([torch.stack(self._changes[policy]) for policy in self.policies]).cpu()
        if not bool(torch.isfinite(changes).all()):
            policy, step, sample = (int(i) for i in (~torch.isfinite(changes)).nonzero()[0])
            raise FeatureError(
                f"ln HFC/LFC does not exist at {self._steps[step]} or just before it (input {sample}, "
                f"{self.policies[policy]} tokens): the features hold NaN or infinity, all tokens are equal, or their "
                "mean is 0"
            )
        return torch.stack([torch.stack([self._first[policy], self._last[policy]]) for policy in self.policies]).cpu()

    def by_token(self, policy: str, layers: int) -> Float[Tensor, "batch token layer kind"]:
        """What each token has of every layer's kinds of parts."""
        table = self._tokens[policy]
        empty = torch.zeros_like(next(iter(table.values())))
        rows = [torch.stack([table.get((i, k), empty) for k in range(len(KINDS))], -1) for i in range(layers)]
        return torch.stack(rows, -2)

    def positions(self, like: Tensor) -> Tensor:
        """Where each token stands in its sequence; padding does not count."""
        if self.mask is None:
            return torch.arange(like.shape[1]).expand(like.shape[:2])
        return self.mask.cpu().cumsum(-1) - 1
