"""The tokens of one example along the residual stream, small enough to lie in a page."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from unsmooth.analysis.about import About, DataFacts, Definitions, Origin, module_of, tokenizer_of
from unsmooth.analysis.walk import Hooked
from unsmooth.errors import FeatureError, OptionError
from unsmooth.models import hook_points, view
from unsmooth.models.inputs import main_input, padding_of
from unsmooth.sources.files import write_result
from unsmooth.sources.loaded import LoadedModel
from unsmooth.sources.packed import pack, unpack
from unsmooth.sources.typed_json import from_plain, to_plain

SCHEMA = "unsmooth.tokens/1"
DEFINITIONS = {
    "cosine": "cosine of every pair of tokens, rounded to one of 256 steps; of long sequences every k-th token",
    "distance": "‖x_i − x̄‖ / ‖x̄‖ of every token, whose root mean square is HFC/LFC",
}
_BUDGET = 700_000  # bytes of similarity matrices per model: a page stays below 8 MB with several models


@dataclass(frozen=True)
class TokenSettings:
    """Which sample of the first batch is shown."""

    example: int


@dataclass(frozen=True, repr=False)
class TokenView:
    """Cosine similarities (one byte each, lower triangles) and relative distances from the mean token, by layer.

    The squares of the distances `‖x_i − x̄‖ / ‖x̄‖` average to (HFC/LFC)². Of long sequences, every k-th token is
    kept in `cosine`, which then is `size` tokens wide; `distance` keeps them all.
    """

    points: tuple[str, ...]
    size: int
    cosine: NDArray[np.uint8]
    distance: NDArray[np.float32]
    about: About[TokenSettings]
    prefix: int = 0
    grid: tuple[int, ...] | None = None  # rows and columns of patches
    labels: tuple[str, ...] | None = None
    picture: str | None = None  # a data address

    def __repr__(self) -> str:
        return f"TokenView of {self.about.model.name}: {self.distance.shape[1]} tokens at {len(self.points)} points"

    def save(self, path: str | Path) -> Path:
        """Write one JSON file, atomically."""
        return write_result(path, json.dumps(self.to_json()) + "\n")

    def to_json(self) -> dict[str, Any]:
        """Plain data; the two arrays compressed, in base64."""
        return {
            "schema": SCHEMA,
            **self.about.to_json(),
            **to_plain(
                _File(
                    self.points,
                    self.size,
                    self.distance.shape[1],
                    pack(self.cosine, "u1"),
                    pack(self.distance, "<f4"),
                    self.prefix,
                    self.grid,
                    self.labels,
                    self.picture,
                )
            ),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> TokenView:
        """What `save` wrote, as plain data."""
        file = from_plain(_File, found)
        pairs, points = file.size * (file.size + 1) // 2, len(file.points)
        return cls(
            points=file.points,
            size=file.size,
            cosine=unpack(file.cosine, "u1", points * pairs).reshape(points, pairs),
            distance=unpack(file.distance, "<f4", points * file.tokens).reshape(points, file.tokens),
            about=About.from_json(found, TokenSettings),
            prefix=file.prefix,
            grid=file.grid,
            labels=file.labels,
            picture=file.picture,
        )


@dataclass(frozen=True)
class _File:
    """What a file holds beside `about`."""

    points: tuple[str, ...]
    size: int
    tokens: int
    cosine: str
    distance: str
    prefix: int
    grid: tuple[int, ...] | None = None
    labels: tuple[str, ...] | None = None
    picture: str | None = None


class TokenViewer(Hooked):
    """Listens to one forward pass: enter, `update` with a batch, leave, take the `result`."""

    def __init__(
        self, model: nn.Module | LoadedModel, example: int = 0, *, tokenizer: Any = None, origin: Origin | None = None
    ) -> None:
        self.model = model
        self.view = view(module_of(model))
        self.points = ("blocks.0.pre", *(f"blocks.{layer.index}.post" for layer in self.view.layers))
        self.example = example
        self.origin = origin or Origin.of(model)
        self._tokenizer = tokenizer_of(model, tokenizer)
        self._states: dict[str, Tensor] = {}
        self._kept: Tensor | None = None
        self._listening = False
        self._found: TokenView | None = None

    def hooks(self) -> Iterable[AbstractContextManager[Any]]:
        """On the stream between blocks."""
        yield hook_points(self.view, self.points, self._on_point)

    def before(self, inputs: Any) -> None:
        """Which tokens of the example are no padding."""
        self.require_hooks()
        self._listening = True
        padding = padding_of(inputs, self.view.prefix_tokens, self.view.model)
        self._kept = None if padding is None else ~padding[self._checked(len(padding))]

    def abandon(self) -> None:
        """Forget what a forward pass left that did not come to its end."""
        self._listening = False
        self._states.clear()

    def after(self, batch: Any, inputs: Any) -> None:
        """Keep what is shown of the tokens."""
        states = [self._states[point] for point in self.points]
        self.abandon()
        tokens = len(states[0])
        most = max(8, int(math.sqrt(2 * _BUDGET / len(states))))
        chosen = torch.arange(0, tokens, max(1, math.ceil(tokens / most)))
        lower = torch.tril_indices(len(chosen), len(chosen))
        cosine = [similarity(x[chosen])[lower[0], lower[1]] for x in states]
        self._found = TokenView(
            points=self.points,
            size=len(chosen),
            cosine=torch.stack([((c + 1) * 127.5).round() for c in cosine]).to(torch.uint8).numpy(),
            distance=torch.stack([relative_distance(x) for x in states]).float().numpy(),
            prefix=self.view.prefix_tokens,
            **self._describe(batch, tokens),
            about=About.of(
                self.view,
                TokenSettings(self.example),
                Definitions(columns=dict(DEFINITIONS)),
                DataFacts(batches=1, inputs=1),
                self.origin,
            ),
        )

    def result(self) -> TokenView:
        """What was seen."""
        if self._found is None:
            raise FeatureError("no token was seen: there was no batch; give one")
        return self._found

    def _on_point(self, point: str, x: Float[Tensor, "batch token dim"]) -> None:
        if not self._listening:
            return
        one = x[self._checked(len(x))].detach().double().cpu()
        # of text with pictures behind it, the mask is shorter: those tokens stay
        self._states[point] = one if self._kept is None or len(self._kept) != len(one) else one[self._kept.cpu()]

    def _checked(self, samples: int) -> int:
        if not 0 <= self.example < samples:
            raise OptionError(
                f"example {self.example}: the first batch has samples 0 to {samples - 1}; choose one of them, or take "
                "larger batches"
            )
        return self.example

    def _describe(self, batch: Any, tokens: int) -> dict[str, Any]:
        """Where the tokens lie in a picture, or what they say."""
        batch = main_input(batch)
        if isinstance(batch, Mapping) or not (batch.dim() == 4 and batch.is_floating_point()):
            ids = batch.get("input_ids") if isinstance(batch, Mapping) else batch
            return {"labels": self._labels(ids) if isinstance(ids, Tensor) else None}
        one = batch[self.example]
        grid = _grid(tokens - self.view.prefix_tokens - self.view.suffix_tokens)
        return {"grid": grid, "picture": _picture(self.model, one)}

    def _labels(self, ids: Tensor) -> tuple[str, ...] | None:
        if self._tokenizer is None or ids.dim() != 2 or ids.is_floating_point():
            return None
        row = ids[self.example].cpu()
        row = row if self._kept is None or len(self._kept) != len(row) else row[self._kept.cpu()]
        return tuple(self._tokenizer.decode([token]) for token in row.tolist())


def similarity(x: Float[Tensor, "token dim"]) -> Float[Tensor, "token token"]:
    """Cosine of every pair of tokens; a zero token has cosine 0 with all others."""
    unit = torch.nn.functional.normalize(x, dim=-1)
    return (unit @ unit.mT).clamp(-1, 1)


def relative_distance(x: Float[Tensor, "token dim"]) -> Float[Tensor, " token"]:
    """`‖x_i − x̄‖ / ‖x̄‖`, whose root mean square is HFC/LFC.

    >>> [round(d, 6) for d in relative_distance(torch.tensor([[1.0, 1.0], [1.0, -1.0]])).tolist()]
    [1.0, 1.0]
    """
    mean = x.mean(0, keepdim=True)
    return (x - mean).norm(dim=-1) / mean.norm()


def _grid(patches: int) -> tuple[int, int] | None:
    side = math.isqrt(patches)
    return (side, side) if side * side == patches and side > 1 else None


def _picture(model: nn.Module | LoadedModel, one: Float[Tensor, "channel height width"]) -> str | None:
    """The example as the model saw it, as a data address; None where Pillow is absent or it is no picture."""
    try:
        from PIL import Image
    except ImportError:
        return None
    pixels = one.float().cpu()
    if pixels.shape[0] not in (1, 3):
        return None
    if isinstance(model, LoadedModel) and model.image_input is not None:
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (model.images.mean, model.images.std))
        pixels = pixels * std + mean
    else:  # how it was normalised is not known: its own range fills that of a picture
        pixels = (pixels - pixels.min()) / (pixels.max() - pixels.min()).clamp_min(1e-12)
    shown = (pixels.clamp(0, 1) * 255).round().to(torch.uint8).expand(3, -1, -1).permute(1, 2, 0)
    image = Image.fromarray(shown.contiguous().numpy())
    image.thumbnail((160, 160))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
