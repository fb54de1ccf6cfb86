"""Text as token ids, either in full windows (no padding) or one sample per record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unsmooth.errors import DataError

if TYPE_CHECKING:
    from unsmooth.sources.loaded import LoadedModel


def token_windows(texts: Iterable[str], loaded: LoadedModel, length: int) -> Iterator[dict[str, Tensor]]:
    """Windows of exactly `length` tokens, special tokens included; short texts follow one another in a window."""
    tokenizer = _tokenizer(loaded)
    before, after = special_frame(tokenizer)
    room = length - len(before) - len(after)
    if room < 1:
        raise DataError(
            f"windows of {length} tokens leave no room beside {len(before) + len(after)} special ones: take longer "
            "ones (--max-length)"
        )
    pending: list[int] = []
    for text in texts:
        for piece in pieces(text):
            pending += tokenizer(piece, add_special_tokens=False, verbose=False)["input_ids"]
            while len(pending) >= room:
                window, pending = pending[:room], pending[room:]
                yield _sample([*before, *window, *after], loaded)


def token_records(texts: Iterable[str], loaded: LoadedModel, length: int) -> Iterator[dict[str, Tensor]]:
    """One sample per record, cut to at most `length` tokens."""
    tokenizer = _tokenizer(loaded)
    for text in texts:
        yield _sample(tokenizer(text, truncation=True, max_length=length)["input_ids"], loaded)


def special_frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens that the tokenizer puts before and after a text, found by asking it.

    BERT: ([CLS], [SEP]); GPT-2: nothing.
    """
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    full = tokenizer("a")["input_ids"]
    for start in range(len(full) - len(bare) + 1):
        if full[start : start + len(bare)] == bare:
            return full[:start], full[start + len(bare) :]
    return [], []


def _sample(ids: list[int], loaded: LoadedModel) -> dict[str, Tensor]:
    if max(ids, default=0) >= loaded.vocabulary:
        raise DataError(
            f"the tokenizer of {loaded.reference} gives the id {max(ids)}, and the model knows ids up to "
            f"{loaded.vocabulary - 1}: its files are of another model, or not all there (a vocab.txt alone lacks the "
            "special tokens of some); put tokenizer.json and tokenizer_config.json beside the weights"
        )
    special = set(loaded.tokenizer.all_special_ids)
    return {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.ones(len(ids), dtype=torch.long),
        "special_tokens_mask": torch.tensor([int(i in special) for i in ids]),
    }


def pieces(text: str, size: int = 20_000) -> Iterator[str]:
    """A book is tokenised in pieces cut at line ends, so that the first window comes at once."""
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        if end < len(text):
            newline = text.rfind("\n", start, end)
            end = newline + 1 if newline > start else end
        yield text[start:end]
        start = end


def _tokenizer(loaded: LoadedModel) -> Any:
    if loaded.tokenizer is None:
        raise DataError(
            f"{loaded.reference} has no tokenizer beside its weights that can be used, so text cannot be read: "
            "put the tokenizer's files, whole, into its folder, or use --data random"
        )
    return loaded.tokenizer
