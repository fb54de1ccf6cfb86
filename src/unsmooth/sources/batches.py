"""Records become the batches that a model takes: tensors of images, or dicts of token ids."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unsmooth.errors import DataError
from unsmooth.sources import records
from unsmooth.sources.images import to_tensor
from unsmooth.sources.passages import PASSAGES
from unsmooth.sources.paths import find_source
from unsmooth.sources.pictures import PICTURES
from unsmooth.sources.text import token_records, token_windows

if TYPE_CHECKING:
    from unsmooth.sources.loaded import LoadedModel

Batch = Tensor | dict[str, Tensor]
_NO_LOADER = "no loader for it; in Python, give unsmooth.measure batches that the model's own processor makes"


@dataclass(frozen=True)
class Data:
    """An iterable of batches that can be walked again; `reference` says where they come from."""

    reference: str
    kind: str
    make: Callable[[], Iterator[Batch]]
    samples: int | None = None  # how many there will be, where that is known beforehand

    def __iter__(self) -> Iterator[Batch]:
        return self.make()


def open_data(
    path: str | Path,
    loaded: LoadedModel,
    *,
    batch_size: int = 8,
    samples: int | None = None,
    column: str | None = None,
    max_length: int = 128,
    whole_records: bool = False,
) -> Data:
    """Batches for `loaded` from a path, from the `bundled` pictures or passages, or `random` inputs of the right shape.

    Text is cut into windows of exactly `max_length` tokens, so that no sample holds padding;
    `whole_records` keeps one sample per record instead, truncated and padded.
    """
    total: int | None = None
    name = Path(path).name
    if str(path) == "random":
        made, kind = _random_inputs(loaded, max_length), loaded.modality
        samples = samples or batch_size
    else:
        if str(path) == "bundled":
            path, name = (PASSAGES, "bundled passages") if loaded.modality == "text" else (PICTURES, "bundled")
        source = find_source(path, column)
        kind, total = source.kind, source.count()
        if kind != loaded.modality:
            raise DataError(
                f"{path} holds {kind}, but {loaded.reference} takes {loaded.modality}: "
                + (_NO_LOADER if loaded.modality in ("audio", "video") else "give data of that kind")
            )
        if kind == "images":
            made = lambda: (to_tensor(image, loaded.images) for image in records.images(source))  # noqa: E731
        else:
            cut = token_records if whole_records else token_windows
            made = lambda: cut(records.texts(source), loaded, max_length)  # noqa: E731

    def make() -> Iterator[Batch]:
        stream = itertools.islice(made(), None if samples is None else min(samples, sys.maxsize))
        first = next(stream, None)
        if first is None:
            why = _why_none(kind, samples, max_length, whole_records)
            raise DataError(f"no sample could be made from {path}: {why}")
        yield from collate(itertools.chain([first], stream), batch_size, loaded)

    if kind == "text" and not whole_records:
        total = None  # windows, not records
    known = min((n for n in (total, samples) if n is not None), default=None)
    return Data(reference=name, kind=kind, make=make, samples=known)


def _why_none(kind: str, samples: int | None, max_length: int, whole_records: bool) -> str:
    if samples is not None and samples < 1:
        return f"samples must be above 0, got {samples}"
    if kind != "text" or whole_records:
        return f"it holds no {kind}"
    return (
        f"its text is shorter than one window of {max_length} tokens; give more text or a smaller max_length "
        "(--max-length), or keep every record as a sample of its own with whole_records (--whole-records)"
    )


def _random_inputs(loaded: LoadedModel, max_length: int) -> Callable[[], Iterator[Any]]:
    """Endless seeded noise images or token ids; only good for trying things, and named `random` in results.

    Padding's id is not among them where its embedding is zero, as in a fresh model: such a token has no direction.
    """
    padding = _zero_padding(loaded.model) if loaded.modality == "text" else None

    def make() -> Iterator[Any]:
        generator = torch.Generator().manual_seed(0)
        while True:
            if loaded.modality == "images":
                yield torch.randn(3, loaded.images.size, loaded.images.size, generator=generator)
            else:
                ids = torch.randint(loaded.vocabulary, (max_length,), generator=generator)
                if padding is not None:
                    ids = torch.where(ids == padding, (ids + 1) % loaded.vocabulary, ids)
                yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return make


def _zero_padding(model: nn.Module) -> int | None:
    for part in model.modules():
        if isinstance(part, nn.Embedding) and part.padding_idx is not None and not part.weight.is_meta:
            rows: Tensor = part.weight
            if not rows[part.padding_idx].any():
                return part.padding_idx
    return None


def collate(samples: Iterable[Any], batch_size: int, loaded: LoadedModel) -> Iterator[Batch]:
    """Samples as batches, texts padded to the longest of theirs."""
    samples = iter(samples)
    while chunk := list(itertools.islice(samples, min(batch_size, sys.maxsize))):
        if isinstance(chunk[0], Tensor):
            yield torch.stack(chunk)
        else:
            yield _pad(chunk, loaded.padding_id)


def _pad(chunk: list[dict[str, Tensor]], padding_id: int) -> dict[str, Tensor]:
    fill = {"input_ids": padding_id, "special_tokens_mask": 1}
    return {
        name: torch.nn.utils.rnn.pad_sequence(
            [sample[name] for sample in chunk], batch_first=True, padding_value=fill.get(name, 0)
        )
        for name in chunk[0]
    }
