"""A WordPiece tokenizer of the corpus itself, or one that exists."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from unsmooth.errors import DataError, MissingExtraError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """Lower-case WordPiece, accents stripped, as BERT's: a Hugging Face fast tokenizer.

    The same texts give the same pieces with the same ids, on any machine: see `_train`.
    """
    try:
        from tokenizers import decoders, processors
        from transformers import PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError.needed("tokenizers and transformers", "text", "training a tokenizer") from error
    texts = list(texts)
    single = [piece for piece in _train(texts, 1, ()) if piece.startswith("##")]
    pieces = _train(texts, vocabulary, sorted(single))
    model = _wordpiece(pieces)
    model.add_special_tokens(list(SPECIAL))
    model.decoder = decoders.WordPiece()
    if model.get_vocab_size() <= len(SPECIAL):
        raise DataError("the texts hold no words: expected files with text in them")
    if (found := model.get_vocab_size()) < vocabulary:
        raise DataError(
            f"the text gives only {found} different pieces of words, fewer than the vocabulary of {vocabulary}: "
            "expected more text, or a smaller vocabulary (--set vocabulary=…)"
        )
    if found > vocabulary:
        raise DataError(
            f"the text has so many different letters that they alone are {found} pieces, more than the vocabulary of "
            f"{vocabulary}: give a larger one (--set vocabulary=…)"
        )
    ends = [(name, SPECIAL.index(name)) for name in ("[CLS]", "[SEP]")]
    model.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=model, mask_token="[MASK]", **names)


def _train(texts: Sequence[str], vocabulary: int, first: Sequence[str]) -> dict[str, int]:
    """Pieces and their ids: the special ones, those named, all letters, then merged ones.

    The trainer numbers letters inside words in an order that differs from call to call, and decides between equally
    frequent pairs by these numbers. Named before, in an order, they have the same ones always.
    """
    from tokenizers import trainers

    model, names = _wordpiece(), [*SPECIAL, *first]
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=names, show_progress=False)
    model.train_from_iterator(texts, trainer)
    found: dict[str, int] = model.get_vocab()
    return found


def _wordpiece(pieces: dict[str, int] | None = None) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    model = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    model.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=True)
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return model


def open_tokenizer(reference: str | Path) -> Any:
    """A tokenizer from a folder or the hub; it must be able to mask and to separate."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise MissingExtraError.needed("transformers", "text", "reading a tokenizer") from error
    try:
        found = AutoTokenizer.from_pretrained(str(reference))
    except (OSError, ValueError) as error:
        first = next(iter(str(error).strip().splitlines()), "")
        raise DataError(f"no tokenizer at {reference} ({first}): expected a folder with tokenizer.json") from error
    if not found.is_fast or found.mask_token_id is None or found.sep_token_id is None:
        raise DataError(f"the tokenizer at {reference} has no [MASK] or [SEP], or no fast form: it cannot be used here")
    whole(found)
    return found


def whole(tokenizer: Any) -> Any:
    """Its fast form, which then neither cuts nor pads a text, as files of sentence encoders (and earlier calls) ask."""
    fast = tokenizer.backend_tokenizer
    fast.no_truncation()
    fast.no_padding()
    return fast


def count_ids(tokenizer: Any) -> int:
    """One more than its largest id: some leave ids out, so that it has fewer pieces than a model needs embeddings."""
    return max(tokenizer.get_vocab().values()) + 1


def tokenizer_hash(tokenizer: Any) -> str:
    """What a checkpoint must agree with: other pieces of words would give ids another meaning."""
    return hashlib.blake2b(tokenizer.backend_tokenizer.to_str().encode(), digest_size=8).hexdigest()
