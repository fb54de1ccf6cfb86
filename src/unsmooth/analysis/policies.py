"""Which tokens count: the policy is an argument, and part of every number's definition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from unsmooth.errors import FeatureError, OptionError
from unsmooth.models.inputs import lengthened, main_input, padding_of, pictures_follow
from unsmooth.models.sound import SOUND

POLICIES = {
    "all": "every position of the sequence, special tokens and padding included",
    "patches": "patch tokens only: no class, distillation, register or detection tokens",
    "content": "no padding and no special tokens (for images: patch tokens only)",
    "no-outliers": (
        "no padding, and no token whose log-norm is farther from the sample's median than 5 robust standard "
        "deviations (1.4826 MAD) and log 2"
    ),
}
COUNT_PADDING = ("all", "patches")
NO_PADDING: Mapping[str, str] = POLICIES | {  # as attention is explained and attributed, under every policy
    "all": "every token of the input, special tokens included; padding is left out",
}
PADDED = "the inputs hold padding"  # how a note on it begins
_ROBUST_DEVIATIONS = 5.0
_LEAST_FACTOR = 2.0
_PAIR = 2  # torch's median of two is one of them, so that the other would be far from it
NO_TEXT = SOUND | {"pixel_values", "pixel_values_videos", "patch_valid"}


def resolve_policies(tokens: str | Sequence[str]) -> tuple[str, ...]:
    """`"all"`, `"all,patches"` or a sequence of names, checked.

    >>> resolve_policies("all, patches")
    ('all', 'patches')
    """
    if not isinstance(tokens, str | Sequence):
        raise OptionError.unknown("token policy", tokens, POLICIES)
    names = [name.strip() for name in tokens.split(",")] if isinstance(tokens, str) else list(tokens)
    for name in names:
        if name not in POLICIES:
            raise OptionError.unknown("token policy", name, POLICIES)
    if not names:
        raise OptionError.unknown("token policy", tokens, POLICIES)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class TokenKinds:
    """What is known about the positions of one batch before the forward pass; None means nothing to leave out."""

    prefix: int = 0
    padding: Bool[Tensor, "batch token"] | None = None
    special: Bool[Tensor, "batch token"] | None = None
    text: bool | None = None  # token ids, or (False) images; None where the inputs do not tell
    suffix: int = 0
    pictures: int | None = None  # tokens of a picture may follow those of text, the first so many being no patches
    marked: bool = False  # the batch itself says which tokens are special

    def first(self, count: int | None) -> TokenKinds:
        """Of the first samples only."""
        padding, special = (None if mask is None else mask[:count] for mask in (self.padding, self.special))
        return replace(self, padding=padding, special=special)

    @classmethod
    def of_batch(
        cls,
        batch: Any,
        prefix: int,
        special_ids: frozenset[int] | None,
        model: nn.Module | None = None,
        suffix: int = 0,
        pictures: int | None = None,
    ) -> TokenKinds:
        """Read padding and special tokens from token ids, or from a dict of inputs with its masks."""
        batch = main_input(batch)
        if isinstance(batch, Tensor) and batch.dim() == 2 and not batch.is_floating_point():
            batch = {"input_ids": batch}
        if not isinstance(batch, Mapping):
            return cls(prefix, suffix=suffix)
        special = None
        ids = batch.get("input_ids")
        if marked := isinstance(batch.get("special_tokens_mask"), Tensor):
            special = batch["special_tokens_mask"] != 0
        elif isinstance(ids, Tensor) and special_ids is not None:
            special = torch.isin(ids, torch.tensor(sorted(special_ids), dtype=ids.dtype, device=ids.device))
        text = True if ids is not None else False if NO_TEXT & set(batch) else None
        pictures = pictures if pictures_follow(batch) else None
        return cls(prefix, padding_of(batch, prefix, model), special, text, suffix, pictures, marked)


def token_mask(
    policy: str, x: Float[Tensor, "batch token dim"], kinds: TokenKinds
) -> Bool[Tensor, "batch token"] | None:
    """The tokens of `x` that count under `policy`; None means all of them."""
    return None if policy == "all" else mask_by_norms(policy, norms_of(x), kinds)


def norms_of(x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch token"]:
    """The lengths of tokens, in float64."""
    return torch.linalg.vector_norm(x.detach(), dim=-1, dtype=torch.float64)


def mask_by_norms(
    policy: str, norms: Float[Tensor, "*point batch token"], kinds: TokenKinds
) -> Bool[Tensor, "*point batch token"]:
    """The same for tokens of these lengths, at any number of points."""
    n = norms.shape[-1]
    keep = torch.ones(norms.shape[-2:], dtype=torch.bool, device=norms.device)
    if policy in ("patches", "content"):
        told = kinds.padding is not None or kinds.special is not None
        if policy == "patches" and kinds.prefix == 0 and (told if kinds.text is None else kinds.text):
            raise FeatureError("token policy 'patches' is for images, but the inputs are token ids: use 'content'")
        keep[:, : kinds.prefix] = False
        keep[:, n - kinds.suffix :] = False
    if policy == "content":
        keep &= ~_fit(kinds.special, keep, kinds.pictures)
    if policy in ("content", "no-outliers"):
        picture_class = kinds.pictures if kinds.pictures is None or policy == "content" else 0
        keep &= ~_fit(kinds.padding, keep, picture_class)
    return keep & ~outlying(log_ratios(norms, keep)) if policy == "no-outliers" else keep.expand(norms.shape)


def log_ratios(
    norms: Float[Tensor, "*point batch token"], among: Bool[Tensor, "batch token"]
) -> Float[Tensor, "*point batch token"]:
    """log(norm / median norm) of the tokens `among` which it is asked; nan of the others."""
    size = norms.clamp_min(torch.finfo(torch.float64).tiny).log()
    known = size.masked_fill(~among, math.nan)
    return known - known.nanmedian(dim=-1, keepdim=True).values


def outlying(ratios: Float[Tensor, "*point batch token"]) -> Bool[Tensor, "*point batch token"]:
    """Where `log_ratios` are outside what `no-outliers` keeps; of two tokens neither is."""
    distance = ratios.abs()
    spread = 1.4826 * distance.nanmedian(dim=-1, keepdim=True).values
    several = (~distance.isnan()).sum(-1, keepdim=True) > _PAIR
    return several & (distance > torch.clamp(_ROBUST_DEVIATIONS * spread, min=math.log(_LEAST_FACTOR)))


def _fit(known: Bool[Tensor, "batch token"] | None, like: Bool[Tensor, "batch token"], pictures: int | None) -> Tensor:
    """A mask on the right device; inputs of another length than the features say nothing about them.

    Of a picture that follows text, the first `pictures` tokens are left out.
    """
    if known is None:
        return torch.zeros_like(like)
    if pictures is not None:
        words = known.shape[1]
        known = lengthened(known, like.shape[1], False)
        known[:, words : words + pictures] = True
    if known.shape != like.shape:
        raise FeatureError(
            f"the inputs describe {tuple(known.shape)} (batch, token) positions but the features have "
            f"{tuple(like.shape)}: token policies need one feature per input token; use tokens='all', or "
            "inputs of one length without a mask"
        )
    return known.to(like.device)
