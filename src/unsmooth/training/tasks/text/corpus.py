"""From texts to tokens on disk, once: whoever trains on the same texts with the same tokenizer finds them there."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsmooth.errors import CheckpointError, DataError, MissingExtraError
from unsmooth.sources.files import alone, check_writable
from unsmooth.sources.paths import PLAIN, Source, find_source
from unsmooth.sources.records import texts
from unsmooth.sources.shards import ABOUT, TokenShards, open_shards, write_shards
from unsmooth.sources.text import pieces
from unsmooth.training.tasks.text.tokenizer import (
    count_ids,
    open_tokenizer,
    tokenizer_hash,
    train_tokenizer,
    whole,
)

HELD_OUT = 200  # of how many documents one is held out where no file says which are
PASSAGE = 20_000  # characters at most, where documents are held out by counting; what a tokenizer sees of each
VALIDATION = re.compile(r"val(id(ation)?)?(?![a-z])", re.IGNORECASE)  # validation-00000.parquet, not values.txt
TOKENIZER_CHARACTERS = 100_000_000  # a vocabulary of 32,768 does not change with more
FEW_CHARACTERS = 10_000_000  # with which a tokenizer is not content where there are more
AT_ONCE = 100_000  # characters of a document that are tokenised in one piece, which takes a hundred bytes for each
SPLITS = ("train", "validation")
ANOTHER_CACHE = "set UNSMOOTH_CACHE to a folder where tokens may be kept"


@dataclass(frozen=True)
class Texts:
    """What is read: files, or a data set of the hub that streams (its first `documents`)."""

    sources: tuple[Source, ...] = ()
    hub: str | None = None
    documents: int | None = None

    @classmethod
    def at(cls, data: Sequence[str | Path], documents: int | None = None) -> Texts:
        """Of paths, or of one `hub:NAME`."""
        if not data:
            raise DataError("no data was named: expected paths of text, jsonl or parquet, or hub:NAME")
        if any(str(path).startswith("hub:") for path in data):
            if len(data) > 1 or str(data[0]) == "hub:":
                raise DataError(f"expected one hub:NAME or paths, got {', '.join(map(str, data))}")
            return cls(hub=str(data[0]).removeprefix("hub:"), documents=documents)
        sources = tuple(find_source(path) for path in data)
        for source, path in zip(sources, data, strict=True):
            if source.kind != "text":
                raise DataError(f"{path} holds {source.kind}: expected text")
            if empty := next((file for file in source.files if not file.stat().st_size), None):
                raise DataError(f"{empty} is empty: expected text in it, or that it is not there")
        return cls(sources, documents=documents)

    def key(self) -> str:
        """A hash of the content of all files and of how they are read; of the hub, its name and how much is taken."""
        digest = hashlib.blake2b(digest_size=8)
        digest.update(f"{self.hub} {self.documents}".encode())
        for path in (path for source in self.sources for path in source.files):
            read = "plain" if path.suffix.lower() in PLAIN else ""  # records keep the keys that they had
            digest.update(f"{_is_validation(path)}{read}".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        return digest.hexdigest()

    def read(self, split: str) -> Iterator[str]:
        """The documents of a split, in a fixed order.

        Files called `validation…` are held out; where there are none, every 200th document is, and each passage of a
        long one, such as a book in one file, counts as a document.
        """
        named = any(_is_validation(path) for source in self.sources for path in source.files)
        if named:
            kept = [_only(source, split == "validation") for source in self.sources]
            yield from itertools.islice((text for source in kept for text in texts(source)), self.documents)
            return
        everything = itertools.islice(self._everything(), self.documents)
        passages = (passage for text in everything for passage in pieces(text, PASSAGE))
        for number, passage in enumerate(passages):
            if (number % HELD_OUT == HELD_OUT - 1) == (split == "validation"):
                yield passage

    def _everything(self) -> Iterator[str]:
        return _hub_texts(self.hub) if self.hub else (text for source in self.sources for text in texts(source))


@dataclass(frozen=True)
class Corpus:
    """Tokenizer and sequences."""

    tokenizer: Any
    train: TokenShards
    validation: TokenShards


def open_corpus(
    data: Sequence[str | Path],
    cache: Path,
    *,
    length: int,
    vocabulary: int,
    tokenizer: str | Path | None = None,
    documents: int | None = None,
) -> Corpus:
    """Tokens from the cache, or made now: a tokenizer trained on the texts (or the one given), then both splits.

    The folder's name is a hash of the texts, the tokenizer and the settings, so nothing else is ever taken for them.
    Such a folder may also be the data itself, so that tokens travel to a machine where the texts are not.
    """
    if len(data) == 1 and (Path(data[0]) / "train" / ABOUT).is_file():
        return _prepared(Path(data[0]), length, tokenizer)
    found = Texts.at(data, documents)
    if not found.hub and all(_is_validation(path) for source in found.sources for path in source.files):
        raise DataError(
            f"every file at {', '.join(map(str, data))} is held out, for its name begins with val…: expected other "
            "files too, to train on"
        )
    text_key = found.key()
    with alone(cache / f"{text_key}.lock"):  # runs side by side that start with the same texts
        words = open_tokenizer(tokenizer) if tokenizer else _own_tokenizer(found, cache, text_key, vocabulary)
        key = f"{text_key}-{tokenizer_hash(words)}-{length}"
        if tokenizer and not (cache / key).exists():
            _check_knows(words, found, tokenizer)
        splits = [_split(found, split, cache / key, words, length, key) for split in SPLITS]
        if not (cache / key / "tokenizer.json").exists():
            words.save_pretrained(cache / key)
    return Corpus(words, *splits)


def _prepared(folder: Path, length: int, tokenizer: str | Path | None) -> Corpus:
    """A folder of the cache: its tokens, and the tokenizer that made them."""
    words = open_tokenizer(tokenizer or folder)
    train, validation = (open_shards(folder / split) for split in SPLITS)
    if train.key != validation.key or train.key.split("-")[1:2] != [tokenizer_hash(words)]:
        what = "leave --set tokenizer=… out" if tokenizer else "take the folder as it was written"
        raise CheckpointError(f"{folder} holds tokens that another tokenizer made: {what}")
    if train.length != length:
        raise DataError(
            f"{folder} holds sequences of {train.length} tokens, not of {length}: give --set length={train.length}"
        )
    return Corpus(words, train, validation)


def _own_tokenizer(found: Texts, cache: Path, text_key: str, vocabulary: int) -> Any:
    folder = cache / f"{text_key}-wordpiece-{vocabulary}"
    if not (folder / "tokenizer.json").exists():
        check_writable(folder / "tokenizer.json", ANOTHER_CACHE)
        tokenizer = train_tokenizer(_sample(found), vocabulary)
        draft = folder.with_name(folder.name + ".part")
        tokenizer.save_pretrained(draft)
        draft.rename(folder)
    return open_tokenizer(folder)


def _check_knows(tokenizer: Any, found: Texts, name: str | Path) -> None:
    """DataError where most of the text's beginning is unknown: a model learns nothing from it, with a low loss."""
    (ids,) = encoded([next(found.read("train"), "")[:PASSAGE]], tokenizer)
    unknown = float((ids == tokenizer.unk_token_id).mean())
    if unknown > 0.5:
        raise DataError(
            f"to the tokenizer at {name}, {100 * unknown:.0f} % of the text is unknown ({tokenizer.unk_token}): "
            "expected one made for text of this kind"
        )


def _split(found: Texts, split: str, folder: Path, tokenizer: Any, length: int, key: str) -> TokenShards:
    place = folder / split
    if (place / ABOUT).exists():
        shards = open_shards(place)
        if (shards.key, shards.length) != (key, length):
            raise CheckpointError(f"{place} holds tokens of something else: delete it, and they are made anew")
        return shards
    check_writable(place / ABOUT, ANOTHER_CACHE)
    ids = encoded(found.read(split), tokenizer)
    try:
        return write_shards(ids, place, length=length, vocabulary=count_ids(tokenizer), key=key)
    except DataError as error:
        if split != "validation":
            raise
        raise DataError(
            f"too little is held out ({error}): expected a file called validation… that is long enough beside the "
            f"texts, or more than {HELD_OUT} documents or passages, of which every {HELD_OUT}th is"
        ) from error


def encoded(documents: Iterable[str], tokenizer: Any) -> Iterator[NDArray[np.int64]]:
    """Ids of the documents, a separator behind each; where a tokenizer has none (EuroBERT's), the end of a text."""
    fast = whole(tokenizer)
    ends = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
    if ends is None:
        raise DataError("the tokenizer has neither a separator nor an end of text, to stand between two documents")
    parts = ((part, end) for text in documents for part, end in _marked(pieces(text, AT_ONCE)))
    while chunk := list(itertools.islice(parts, 64)):
        found = fast.encode_batch_fast([part for part, _ in chunk], add_special_tokens=False)
        for part, (_, end) in zip(found, chunk, strict=True):
            yield np.asarray([*part.ids, ends] if end else part.ids, np.int64)


def _marked(parts: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Each part of a document, and whether it is the last."""
    parts = iter(parts)
    part = next(parts, "")
    for following in parts:
        yield part, False
        part = following
    yield part, True


def _sample(found: Texts) -> list[str]:
    """What a tokenizer is trained on: of every document its beginning, for the first ones alone would be of one kind.

    Of few long documents, such as a corpus in one file, that is little, and more of each is taken.
    """
    texts = list(_beginnings(found.read("train"), PASSAGE))
    if sum(map(len, texts)) < FEW_CHARACTERS and PASSAGE in map(len, texts):
        longer = _beginnings(found.read("train"), max(PASSAGE, TOKENIZER_CHARACTERS // len(texts)))
        texts = [piece for text in longer for piece in pieces(text, PASSAGE)]
    return texts


def _beginnings(documents: Iterable[str], share: int) -> Iterator[str]:
    left = TOKENIZER_CHARACTERS
    for text in documents:
        if left <= 0:
            return
        yield text[:share]
        left -= min(len(text), share)


def _is_validation(path: Path) -> bool:
    return VALIDATION.match(path.name) is not None


def _only(source: Source, validation: bool) -> Source:
    return Source("text", tuple(p for p in source.files if _is_validation(p) == validation), source.column)


def _hub_texts(name: str) -> Iterator[str]:
    rows = _hub_rows(name)
    first = next(rows, {})
    column = next((c for c in ("text", "content", "document") if isinstance(first.get(c), str)), None)
    if column is None:
        raise DataError(f"hub:{name} has no text column: its columns are {sorted(first)}")
    for number, row in enumerate(itertools.chain([first], rows)):
        text = row.get(column)
        if not isinstance(text, str | None):
            raise DataError(f"hub:{name}, row {number}: expected text in {column!r}, got {type(text).__name__}")
        if text and text.strip():
            yield text


def _hub_rows(name: str) -> Iterator[dict[str, Any]]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise MissingExtraError.needed("datasets", "data", "streaming from the hub") from error
    try:
        yield from load_dataset(name, split="train", streaming=True)
    except Exception as error:  # of the hub's client, of the network, of the data set's own files; also on the way
        raise DataError(
            f"hub:{name} cannot be read ({type(error).__name__}: {error}): expected a data set with a split `train`; "
            "if its name is right, check the network and run the same command again"
        ) from error
