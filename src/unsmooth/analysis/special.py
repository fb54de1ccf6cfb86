"""Which tokens are special: `content` leaves them out, and refuses where nothing tells which they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from unsmooth.analysis.about import module_of, tokenizer_of
from unsmooth.analysis.policies import TokenKinds
from unsmooth.errors import OptionError
from unsmooth.models import ModelView
from unsmooth.models.taps import find
from unsmooth.sources.loaded import LoadedModel

# How a configuration names what its tokenizer puts around a text; padding alone says nothing about that.
_AROUND = ("bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id")
_ALSO = ("pad_token_id", "mask_token_id", "decoder_start_token_id")
_WHAT_TO_DO = (
    "give tokenizer= (the model's own), special_ids= (an empty list if none is special), or batches with a "
    "special_tokens_mask (tokenizer(..., return_special_tokens_mask=True)); or choose other tokens"
)


@dataclass(frozen=True)
class SpecialTokens:
    """The ids of special tokens, None where nothing names them; `told` by the user or a tokenizer, not inferred."""

    ids: frozenset[int] | None
    told: bool = True

    @classmethod
    def find(cls, model: nn.Module | LoadedModel, ids: Iterable[int] | None = None, tokenizer: Any = None) -> Self:
        """Those given, else the tokenizer's, else the ones that the model's configuration names."""
        if ids is not None:
            return cls(frozenset(int(token) for token in ids))
        if (known := getattr(tokenizer_of(model, tokenizer), "all_special_ids", None)) is not None:
            return cls(frozenset(known))
        config = getattr(module_of(model), "config", None)
        around = _ids(config, _AROUND)
        return cls(around | _ids(config, _ALSO) if around else None, told=False)

    def kinds(self, inputs: Any, v: ModelView, policies: Iterable[str]) -> TokenKinds:
        """What is known about the tokens of a batch; OptionError where `content` asks for more than that."""
        found = TokenKinds.of_batch(inputs, v.prefix_tokens, self.ids, v.model, v.suffix_tokens, v.family.pictures)
        if "content" in policies and found.text:
            self.check(found, v.causal)
        return found

    def check(self, kinds: TokenKinds, causal: bool) -> None:
        """OptionError unless it is known which tokens of a batch are special.

        A configuration may name some of them only (ESM's its end, not its beginning). Encoders put one at either end
        of a text: where those that are named do not stand there, others would be taken for content.
        """
        special, padding = kinds.special, kinds.padding
        if special is None:
            raise OptionError(
                f"tokens='content' leaves out special tokens, but nothing says which they are: {_WHAT_TO_DO}"
            )
        if self.told or kinds.marked or causal:
            return
        kept = torch.ones_like(special) if padding is None or padding.shape != special.shape else ~padding
        first, last = kept.int().argmax(-1), kept.shape[1] - 1 - kept.flip(-1).int().argmax(-1)
        ends = torch.stack([first, last], -1)
        if not bool(special.gather(-1, ends).all()):
            raise OptionError(
                "tokens='content' leaves out special tokens, but those that the model's configuration names are not at "
                f"both ends of every text, so it may not name all of them: {_WHAT_TO_DO}"
            )


def _ids(config: Any, names: Iterable[str]) -> frozenset[int]:
    found = (find(config, (name, f"text_config.{name}")) for name in names)
    each = (token for ids in found for token in (ids if isinstance(ids, list | tuple) else [ids]))
    return frozenset(token for token in each if isinstance(token, int))
