"""The tokens of one example along the residual stream, small enough to lie in a page."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from unsmooth.models import hook_points, view
from unsmooth.models.forward import call, evaluating, to_model

if TYPE_CHECKING:
    from unsmooth.sources import LoadedModel

_BUDGET = 700_000  # bytes of similarity matrices per model: a page stays below 8 MB with several models


@dataclass(frozen=True)
class TokenView:
    """Cosine similarities (one byte each, lower triangles) and relative distances from the mean token, by layer.

    The squares of the distances `‖x_i − x̄‖ / ‖x̄‖` average to (HFC/LFC)². Of long sequences, every k-th token is
    kept in `cosine`, which then is `size` tokens wide; `distance` keeps them all.
    """

    points: tuple[str, ...]
    size: int
    cosine: NDArray[np.uint8]
    distance: NDArray[np.float32]
    prefix: int = 0
    grid: tuple[int, int] | None = None
    labels: tuple[str, ...] | None = None
    picture: str | None = None

    def to_page(self) -> dict[str, Any]:
        """What the page's script reads."""
        return {
            "points": self.points,
            "size": self.size,
            "cosine": base64.b64encode(self.cosine.tobytes()).decode(),
            "distance": [[float(f"{v:.3g}") if math.isfinite(v) else None for v in row] for row in self.distance],
            "prefix": self.prefix,
            "grid": self.grid,
            "labels": self.labels,
            "picture": self.picture,
        }


def view_tokens(loaded: LoadedModel, batch: Any, example: int = 0) -> TokenView:
    """Run one example of a batch through the model and keep what the page shows of its tokens."""
    found = view(loaded.model)
    points = ["blocks.0.pre", *(f"blocks.{layer.index}.post" for layer in found.layers)]
    one = _take(batch, example)
    states: dict[str, Tensor] = {}
    with (
        evaluating(loaded.model),
        hook_points(found, points, lambda point, x: states.__setitem__(point, x[0].detach().double().cpu())),
    ):
        call(loaded.model, to_model(one, loaded.model))
    tokens = states[points[0]].shape[0]
    most = max(8, int(math.sqrt(2 * _BUDGET / len(points))))
    chosen = torch.arange(0, tokens, max(1, math.ceil(tokens / most)))
    lower = torch.tril_indices(len(chosen), len(chosen))
    cosine = [similarity(states[point][chosen])[lower[0], lower[1]] for point in points]
    distance = torch.stack([relative_distance(states[point]) for point in points])
    images = loaded.modality == "images"
    return TokenView(
        points=tuple(points),
        size=len(chosen),
        cosine=torch.stack([((c + 1) * 127.5).round() for c in cosine]).to(torch.uint8).numpy(),
        distance=distance.float().numpy(),
        prefix=found.prefix_tokens,
        grid=_grid(tokens - found.prefix_tokens - found.suffix_tokens) if images else None,
        labels=None if images else _labels(loaded, one),
        picture=_picture(loaded, one) if images else None,
    )


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


def _take(batch: Any, example: int) -> Any:
    """One sample as a batch of one, without its padding."""
    if isinstance(batch, Mapping):
        one = {name: value[example : example + 1] for name, value in batch.items()}
        if (mask := one.get("attention_mask")) is not None and mask.dim() == 2:
            kept = mask[0] != 0
            one = {name: value[:, kept] if value.shape[:2] == mask.shape else value for name, value in one.items()}
        return one
    return batch[example : example + 1]


def _grid(patches: int) -> tuple[int, int] | None:
    side = math.isqrt(patches)
    return (side, side) if side * side == patches and side > 1 else None


def _labels(loaded: LoadedModel, one: Any) -> tuple[str, ...] | None:
    ids = one.get("input_ids") if isinstance(one, Mapping) else None
    if ids is None or loaded.tokenizer is None:
        return None
    return tuple(loaded.tokenizer.decode([token]) for token in ids[0].tolist())


def _picture(loaded: LoadedModel, one: Tensor) -> str | None:
    """The example as the model saw it, as a data address; None where Pillow is absent."""
    try:
        from PIL import Image
    except ImportError:
        return None
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (loaded.images.mean, loaded.images.std))
    pixels = ((one[0].float().cpu() * std + mean).clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)
    image = Image.fromarray(pixels.numpy())
    image.thumbnail((160, 160))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=82)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
