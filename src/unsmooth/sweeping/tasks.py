"""Tasks without training: how good are a model's features, or its guesses of the next token, as they are?"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from unsmooth.errors import DataError, OptionError
from unsmooth.models import view
from unsmooth.models.forward import call, to_model
from unsmooth.sources import LoadedModel, open_data
from unsmooth.sources.batches import collate
from unsmooth.sources.images import to_tensor
from unsmooth.sources.text import token_records

SCALE = 20.0  # of cosines in the loss of sentence encoders
KINDS = {
    "knn": "knn:PATH of a labelled image set",
    "perplexity": "perplexity:PATH of texts",
    "retrieval": "retrieval:PATH of a jsonl file, and FIELD,FIELD",
}


@dataclass(frozen=True)
class Task:
    """A score of a model: `values(model)` gives it for each sample, in the same order every time."""

    name: str
    unit: str
    better: str  # higher or lower
    definition: str
    values: Callable[[nn.Module], Tensor | float]


def open_task(text: str, loaded: LoadedModel, *, samples: int, batch_size: int = 16, max_length: int = 128) -> Task:
    """The task that `KIND:PATH` names, as the command line gives it."""
    kind, _, rest = text.partition(":")
    path, _, fields = rest.partition(":")
    if kind not in KINDS or not path or (kind == "retrieval") != bool(fields):
        raise OptionError.unknown("task", text, list(KINDS.values()))
    if kind == "knn":
        return knn_task(loaded, path, samples=samples, batch_size=batch_size)
    if kind == "perplexity":
        return perplexity_task(loaded, path, samples=samples, batch_size=batch_size, max_length=max_length)
    first, _, second = fields.partition(",")
    return retrieval_task(loaded, path, (first, second), samples=samples, batch_size=batch_size, max_length=max_length)


def knn_task(
    loaded: LoadedModel, path: str | Path, *, samples: int = 500, bank: int | None = None, neighbours: int = 10,
    batch_size: int = 16,
) -> Task:  # fmt: skip
    """Accuracy of k nearest neighbours by cosine: `samples` test images among `bank` (4 × as many) training images."""
    from unsmooth.training.tasks.images.data import ImageSet, load_images

    bank = 4 * samples if bank is None else bank
    train, test = (_some(load_images(path, split), count) for split, count in (("train", bank), ("test", samples)))
    k = min(neighbours, len(train))

    def features(model: nn.Module, images: ImageSet) -> Float[Tensor, "image dim"]:
        return torch.cat([_pooled(model, batch) for batch in _pictures(images, loaded, batch_size)])

    def values(model: nn.Module) -> Float[Tensor, " image"]:
        known, asked = features(model, train), features(model, test)
        near = (asked @ known.mT).topk(k, dim=1)
        votes = torch.zeros(len(asked), int(train.labels.max()) + 1).scatter_add_(
            1, train.labels[near.indices], (near.values / 0.07).exp()
        )
        return (votes.argmax(1) == test.labels).double()

    said = (
        f"share of {len(test)} test images of {Path(path).name} whose class wins among the {k} nearest of {len(train)} "
        "training images (cosine of the model's pooled output, weights exp(cos/0.07))"
    )
    return Task("k-NN accuracy", "share", "higher", said, values)


def perplexity_task(
    loaded: LoadedModel, path: str | Path, *, samples: int = 32, batch_size: int = 8, max_length: int = 128
) -> Task:
    """Loss of a causal language model on windows of text, in nats a token (perplexity is its exponential)."""
    head = getattr(loaded.model, "get_output_embeddings", lambda: None)()
    if head is None or not view(loaded.model).causal:
        raise DataError(f"{loaded.reference} guesses no next token: perplexity needs a causal model and its head")
    windows = open_data(path, loaded, batch_size=batch_size, samples=samples, max_length=max_length)

    def values(model: nn.Module) -> Float[Tensor, " window"]:
        found = []
        for batch in windows:
            inputs: Any = to_model(batch, model)
            ids: Int64[Tensor, "window token"] = inputs["input_ids"]
            logits = call(model, inputs).logits[:, :-1].float()
            losses = cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
            found.append(losses.unflatten(0, (len(ids), -1)).mean(1).cpu())
        return torch.cat(found)

    said = f"cross-entropy of the next token on windows of {max_length} tokens of {Path(path).name}"
    return Task("loss", "nats a token", "lower", said, values)


def retrieval_task(
    loaded: LoadedModel, path: str | Path, fields: tuple[str, str], *, samples: int = 200, batch_size: int = 16,
    max_length: int = 128,
) -> Task:  # fmt: skip
    """How surely a text finds its partner: the first field of a record among the second fields of all.

    The score is the loss that sentence encoders are trained with (multiple negatives ranking, cosines times 20); how
    often the partner comes first would be 1 for a good model long before it gets worse.
    """
    known = {partner: text for text, partner in _records(Path(path), fields)}  # a partner of several texts once
    pairs = [(text, partner) for partner, text in itertools.islice(known.items(), samples)]
    if len(pairs) < 2:
        raise DataError(f"{path}: expected at least two records with the fields {fields[0]!r} and {fields[1]!r}")
    sides = [[pair[i] for pair in pairs] for i in (0, 1)]

    def encoded(model: nn.Module, texts: list[str]) -> Float[Tensor, "text dim"]:
        samples = token_records(texts, loaded, max_length)
        return torch.cat([_pooled(model, batch) for batch in collate(samples, batch_size, loaded)])

    def values(model: nn.Module) -> Float[Tensor, " query"]:
        asked, known = (encoded(model, texts) for texts in sides)
        return cross_entropy(SCALE * (asked @ known.mT).double(), torch.arange(len(asked)), reduction="none")

    said = (
        f"−ln of the share (softmax of {SCALE:g} times the cosine) that the own partner ({fields[1]}) of a text "
        f"({fields[0]}) has among those of all {len(pairs)} of {Path(path).name}; vectors are mean tokens of the "
        f"model's output, of at most {max_length} tokens; guessing has {math.log(len(pairs)):.2f}"
    )
    return Task("retrieval loss", "nats", "lower", said, values)


def _pooled(model: nn.Module, batch: Any) -> Float[Tensor, "sample dim"]:
    """Unit vectors: the pooled output (timm), the class token (Hugging Face, images) or the mean token (text)."""
    inputs = to_model(batch, model)
    out = call(getattr(model, "base_model", model), inputs)  # Hugging Face's, without its head
    hidden = out if isinstance(out, Tensor) else getattr(out, "last_hidden_state", None)
    if hidden is None:
        raise DataError(f"{type(model).__name__} gives no features (last_hidden_state) that this task could compare")
    if hidden.ndim == 3 and isinstance(inputs, dict):
        mask = inputs["attention_mask"][..., None].to(hidden.dtype)
        hidden = (hidden * mask).sum(1) / mask.sum(1)
    elif hidden.ndim == 3:
        hidden = hidden[:, 0]
    return normalize(hidden.float(), dim=-1).cpu()


def _some(images: Any, count: int) -> Any:
    """The first so many, in the canonical order of the set (which is that of a hash, so as good as random)."""
    return images.take(torch.arange(min(count, len(images))))


def _pictures(images: Any, loaded: LoadedModel, batch_size: int) -> Iterator[Tensor]:
    from PIL import Image

    for pixels in images.pixels.split(batch_size):
        pictures = (Image.fromarray(each.permute(1, 2, 0).numpy()) for each in pixels)
        yield torch.stack([to_tensor(picture, loaded.images) for picture in pictures])


def _records(path: Path, fields: tuple[str, str]) -> Iterator[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise DataError(f"{path} cannot be read ({error}): expected a jsonl file") from error
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            yield str(record[fields[0]]), str(record[fields[1]])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}, line {number}: expected the fields {fields[0]!r} and {fields[1]!r}") from error
