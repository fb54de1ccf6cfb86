"""Tokens that are zero everywhere: refused where they are met first, with which they are and what leaves them out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.analysis.policies import TokenKinds, mask_by_norms, norms_of
from unsmooth.errors import FeatureError
from unsmooth.metrics.degenerate import Flags, ZeroTokens, degeneracies
from unsmooth.metrics.registry import Metric
from unsmooth.metrics.staging import MaskOf

_NAMED = 4  # positions that are listed one by one


def refuse_zeros(
    point: str,
    x: Float[Tensor, "batch token dim"],
    masks: Mapping[str, MaskOf | None],
    kinds: TokenKinds,
    told: bool,
    metrics: Sequence[Metric],
) -> None:
    """FeatureError if a policy counts a token that is zero; nothing that takes long comes before it."""
    zero = ~x.detach().any(-1)
    if not bool(zero.any()):
        return
    norms, none = norms_of(x), torch.zeros_like(zero[:, 0])
    for policy, mask in masks.items():
        kept = torch.ones_like(zero) if mask is None else mask(norms)
        assert kept is not None
        flags = Flags(none, (zero & kept).any(-1), none, (zero | ~kept).all(-1))
        list(degeneracies(flags, metrics, "error", f"{point}, {policy} tokens", zero_tokens(norms, kinds, told)))


def zero_tokens(norms: Float[Tensor, "batch token"], kinds: TokenKinds, told: bool) -> ZeroTokens:
    """The first sample's tokens of length 0, and the policies that keep two tokens of each sample and none of these.

    `told` is whether it is known for sure which tokens are special.
    """
    zero = norms == 0
    sample = int(zero.any(-1).int().argmax())
    places = zero[sample].nonzero().flatten().tolist()
    words = bool(kinds.text) or (kinds.text is None and kinds.special is not None)
    known = kinds.marked or (told and kinds.special is not None)
    policies = [*(["patches"] if not words and kinds.prefix else []), *(["content"] if words and known else [])]
    instead = tuple(policy for policy in (*policies, "no-outliers") if _without(zero, policy, norms, kinds))
    return ZeroTokens(f"{_listed(places)} of sample {sample}{_kind(zero, kinds)}", instead)


def _without(zero: Bool[Tensor, "batch token"], policy: str, norms: Tensor, kinds: TokenKinds) -> bool:
    try:
        kept = mask_by_norms(policy, norms, kinds)
    except FeatureError:  # the inputs do not describe these tokens
        return False
    return not bool((zero & kept).any()) and int(kept.sum(-1).min()) > 1


def _listed(places: Sequence[int]) -> str:
    """Positions in words; none of them is no word.

    >>> _listed([3]), _listed([5, 6, 7, 8, 9]), _listed([0, 2]), _listed([0, 2, 4, 6, 8])
    ('token 3', 'tokens 5 to 9', 'tokens 0 and 2', 'tokens 0, 2, 4, 6 and 1 more')
    """
    if len(places) < 2:
        return "".join(f"token {place}" for place in places)
    if len(places) > 2 and places[-1] - places[0] == len(places) - 1:
        return f"tokens {places[0]} to {places[-1]}"
    if len(places) > _NAMED:
        return f"tokens {', '.join(map(str, places[:_NAMED]))} and {len(places) - _NAMED} more"
    return f"tokens {', '.join(map(str, places[:-1]))} and {places[-1]}"


def _kind(zero: Bool[Tensor, "batch token"], kinds: TokenKinds) -> str:
    padding = kinds.padding
    if padding is not None and padding.shape == zero.shape and not bool((zero & ~padding.to(zero.device)).any()):
        return ", padding"
    return ", before the patches" if kinds.prefix and not bool(zero[:, kinds.prefix :].any()) else ""
