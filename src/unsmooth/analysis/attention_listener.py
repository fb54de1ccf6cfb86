"""What explaining and attributing share: they listen to the stream and to every attention matrix of a few inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from unsmooth.analysis.about import About, DataFacts, Definitions, Origin, Settings, module_of
from unsmooth.analysis.layer_weights import check_finite
from unsmooth.analysis.policies import NO_PADDING, TokenKinds, resolve_policies
from unsmooth.analysis.special import SpecialTokens
from unsmooth.analysis.walk import Hooked
from unsmooth.errors import FeatureError, WeightsError
from unsmooth.models import HeadWeights, ModelView, capture_attention, check_attention, view
from unsmooth.models.forward import to_model
from unsmooth.models.inputs import lengthened, padding_of, pictures_follow, rows_of, sequence_shape
from unsmooth.models.reconstruction import check_around, check_norms
from unsmooth.models.sdpa import SdpaMatrices
from unsmooth.models.sums import is_proven
from unsmooth.models.taps import candidates
from unsmooth.sources.loaded import LoadedModel
from unsmooth.theory.divisia import Mask
from unsmooth.theory.matrices import HeadMatrices

HELD_BYTES = 2**30  # of attention matrices, up to which those of all heads are held


@dataclass(frozen=True)
class BatchTokens:
    """Which positions of a batch hold tokens (padding is left out under every policy), and of what kind they are."""

    kinds: TokenKinds
    mask: Mask = None  # None: no padding
    pictures: bool = False  # the tokens of a picture follow those of the text

    def kept(self, x: Float[Tensor, "batch token dim"], index: int) -> Mask:
        """The mask of a layer's features: of their length, on their device."""
        if self.mask is None:
            return None
        mask = self.mask.to(x.device)  # layers may be spread over devices
        mask = lengthened(mask, x.shape[1], True) if self.pictures else mask
        if mask.shape != x.shape[:2]:
            raise FeatureError(
                f"the inputs describe {tuple(mask.shape)} (batch, token) positions but blocks.{index}.pre has "
                f"{tuple(x.shape[:2])}: padding cannot be told apart; give inputs of one length, without a mask"
            )
        return mask


def counted_tokens(
    policy: str, masks: Iterable[Mask], x: Float[Tensor, "batch token dim"], index: int
) -> Bool[Tensor, "batch token"] | None:
    """The tokens that every mask keeps, two at least; None: all of them."""
    given = [mask.to(x.device) for mask in masks if mask is not None]
    found = torch.stack(given).all(0) if given else None
    if (x.shape[1] if found is None else int(found.sum(-1).min())) < 2:
        remedy = "give longer inputs" if policy == "all" else "use tokens='all', or longer inputs"
        raise FeatureError(
            f"token policy {policy!r} leaves fewer than two tokens of an input at blocks.{index}.pre: there is no "
            f"high-frequency part; {remedy}"
        )
    return found


def mean_token(x: Float[Tensor, "batch token dim"], mask: Mask) -> Float[Tensor, "batch dim"]:
    """The mean over kept tokens."""
    if mask is None:
        return x.mean(-2)
    return torch.where(mask[..., None], x, 0).sum(-2) / mask.sum(-1, keepdim=True)


def head_matrices(a: Tensor | SdpaMatrices, most: int | None = None) -> HeadMatrices:
    """The matrices that a layer showed, of the first inputs: held, or formed in parts."""
    if isinstance(a, Tensor):
        return HeadMatrices.of(a[:most])
    a = a.first(most)
    return HeadMatrices(a, a.shape, a.dtype, a.device)


class AttentionListener(Hooked):
    """Enter, `update` with each batch, leave, take the `result`.

    With `most`, only so many inputs count, whatever the batches hold beside them.
    """

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        tokens: str | Sequence[str],
        special_ids: Iterable[int] | None,
        tokenizer: Any,
        heads_in_turn: bool | None,
        most: int | None,
        origin: Origin | None,
    ) -> None:
        self.view = view(module_of(model))
        self.origin = origin or Origin.of(model)
        self.policies = resolve_policies(tokens)
        self.heads_in_turn, self.most = heads_in_turn, most
        self.chosen: tuple[int, ...] = tuple(range(len(self.view.layers)))  # layers
        self.inputs = self.batches = 0
        self.checked = False  # whether weights and matrices reproduce the attention's own output
        self._special = SpecialTokens.find(model, special_ids, tokenizer)
        self._rounding = 0.0  # the most by which what a layer gives differs from its inputs times the weights read
        self._shown = ExitStack()  # attention matrices, while a forward pass is listened to
        _check_rows_sum(self.view)

    def update(self, batch: Any) -> None:
        """One forward pass, all of whose inputs are taken in, or none.

        Before the first one, one input more: do weights and matrices reproduce the attention's own output?
        """
        self.check(batch)
        super().update(batch)

    def check(self, batch: Any) -> None:
        """Before the first batch: WeightsError unless weights and matrices reproduce the attention's own output."""
        if not self.checked:
            first = _first_input(to_model(batch, self.view.model), self.view)
            check_attention(self.view, first, in_parts=self.in_parts(first))
            if not is_proven(self.view):
                check_norms(self.view)
                check_around(self.view, first)
            self.checked = True

    def in_parts(self, inputs: Any) -> bool:
        """Whether no tensor holds all heads' matrices: as it was asked for, or where they would be large."""
        if self.heads_in_turn is not None:
            return self.heads_in_turn
        batch, tokens = sequence_shape(inputs)
        return 4 * batch * tokens**2 * max(self.view.layers[i].heads for i in self.chosen) > HELD_BYTES

    def read_weights(self, index: int) -> HeadWeights:
        """A layer's weights; WeightsError where they hold NaN or infinity."""
        layer = self.view.layers[index]
        found = layer.weights()
        check_finite(layer.name, found)
        self._rounding = max(self._rounding, found.rounding)
        return found

    def rounding_note(self) -> list[str]:
        """What to say of layers whose weights are known exactly and whose inputs are not used as they come."""
        if not self._rounding:
            return []
        return [
            "the model is quantised and its layers round their inputs too: the weights are those that they multiply "
            f"by, and what they give differs from inputs times weights by up to {self._rounding:.1%}"
        ]

    @abstractmethod
    def attended(self, index: int, a: HeadMatrices) -> None:
        """The matrices of a layer, of the inputs that are wanted."""

    def showing(self, inputs: Any) -> AbstractContextManager[None]:
        """Inside, a forward pass on these inputs shows its matrices."""

        def receive(index: int, a: Tensor | SdpaMatrices) -> None:
            self.attended(index, head_matrices(a, self.left()))

        return capture_attention(self.view, receive, self.chosen, in_parts=self.in_parts(inputs))

    def before(self, inputs: Any) -> None:
        """The forward pass that comes now is listened to."""
        self.require_hooks()
        self.abandon()
        self._shown.enter_context(self.showing(inputs))

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        self._shown.close()

    def left(self) -> int | None:
        """How many inputs are still wanted; None for all."""
        return None if self.most is None else self.most - self.inputs

    def tokens_of(self, inputs: Any) -> BatchTokens:
        """What is known about the positions of the inputs that are wanted."""
        v = self.view
        kinds = self._special.kinds(inputs, v, self.policies)
        padding = padding_of(inputs, v.prefix_tokens, v.model)
        mask = None if padding is None or not bool(padding.any()) else ~padding[: self.left()]
        return BatchTokens(kinds.first(self.left()), mask, v.family.pictures is not None and pictures_follow(inputs))

    def about(self, settings: Settings, columns: Mapping[str, str]) -> About[Settings]:
        """The stamp on a result that is made now."""
        definitions = Definitions(columns=dict(columns), tokens={p: NO_PADDING[p] for p in self.policies})
        counts = DataFacts(batches=self.batches, inputs=self.inputs)
        return About.of(self.view, settings, definitions, counts, self.origin)


def _check_rows_sum(v: ModelView) -> None:
    """Before any forward pass: no part of the attention goes to a sink, and no map across heads follows the softmax."""
    for layer in v.layers:
        if layer.sink:
            why = " or ".join(candidates(layer.attention_row.sink))
            raise WeightsError(
                f"{layer.name} of {v.family.name}: attention rows must sum to 1 (A·1 = 1), and here they do not "
                f"because of {why}: this model can be measured, not explained"
            )


def _first_input(batch: Any, v: ModelView) -> Any:
    """The first input of a batch, as a batch; all of it for torch's encoder, whose first axis may be another."""
    if v.family.batch_first:
        return batch
    return (_first_input(batch[0], v),) if isinstance(batch, tuple) else rows_of(batch, slice(1))
