"""A model with what is needed to feed it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unsmooth.errors import DataError
from unsmooth.models.taps import find

Modality = Literal["images", "text", "audio", "video"]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageInput:
    """How images are made ready: the short side (`squash`: each) is scaled to size / crop, then the centre is cut."""

    size: int
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bicubic"
    crop: float = 1.0
    squash: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class LoadedModel:
    """A model in eval mode, the reference it came from, and its tokenizer or image preprocessing."""

    model: nn.Module
    reference: str
    modality: Modality
    tokenizer: Any = None
    image_input: ImageInput | None = None

    def __repr__(self) -> str:
        held = [f".{name}" for name in ("model", "tokenizer", "image_input") if getattr(self, name) is not None]
        return f"LoadedModel {self.reference}: {type(self.model).__name__}, takes {self.modality}\n  {', '.join(held)}"

    @property
    def images(self) -> ImageInput:
        """How to make images ready; DataError for a model that takes none."""
        if self.image_input is None:
            raise DataError(f"{self.reference} takes {self.modality}, not images")
        return self.image_input

    @property
    def vocabulary(self) -> int:
        """How many token ids the model knows; DataError for a model that takes none."""
        told = ("config.vocab_size", "config.text_config.vocab_size", "embed_tokens.num_embeddings")  # FSMT's encoder
        size = find(self.model, told)
        if self.modality in ("audio", "video"):
            raise DataError(
                f"{self.reference} takes {self.modality}, for which there is no loader: in Python, give "
                "unsmooth.measure batches of the features that its own processor makes"
            )
        if self.modality != "text":
            raise DataError(f"{self.reference} takes {self.modality}, not token ids")
        if not isinstance(size, int):
            raise DataError(f"{self.reference} takes text, but no vocab_size in its config says how many token ids")
        return size

    @property
    def padding_id(self) -> int:
        """The id that fills up shorter texts (masked anyway): the tokenizer's, else the configuration's, else 0."""
        found = find(self, ("tokenizer.pad_token_id", "model.config.pad_token_id", "tokenizer.eos_token_id"))
        return found if isinstance(found, int) else 0

    @cached_property
    def weights_hash(self) -> str | None:
        """SHA-256 over names, dtypes, shapes and values of the weights as they are when first asked for.

        None where some are kept on disk, or elsewhere, until a forward pass needs them.
        """
        if any(p.is_meta for p in self.model.parameters()):
            return None
        digest = hashlib.sha256()
        for name, tensor in sorted(self.model.state_dict().items()):
            for path, part in _parts(name, tensor):
                digest.update(f"{path} {part.dtype} {tuple(part.shape)}".encode())
                digest.update(part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def _parts(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """The plain tensors behind an entry of a state dict: a quantised one (torchao) holds several."""
    if not isinstance(value, Tensor):
        return
    if not hasattr(value, "__tensor_flatten__"):
        yield name, value
        return
    for inner in value.__tensor_flatten__()[0]:
        yield from _parts(f"{name}.{inner}", getattr(value, inner))
