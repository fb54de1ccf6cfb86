"""What a change of weights does: smoothness after the last block and a loss, before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import DataError
from unsmooth.metrics.definitions import PAPER
from unsmooth.models import view
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.hooks import hook_points
from unsmooth.models.inputs import each_batch, kept_tokens


def effect(
    model: nn.Module, batches: Iterable[Any] | None, loss: Callable[[nn.Module], Tensor | float] | None
) -> dict[str, float]:
    """Means over samples of the three metrics after the last block (all tokens but padding), and the loss."""
    found: dict[str, float] = {}
    with evaluating(model):
        if batches is not None:
            found |= _smoothness(model, batches)
        if loss is not None:
            found["loss"] = float(numbers(loss(model), "the loss").mean())
    return found


def numbers(given: Any, of: str) -> Float[Tensor, " sample"]:
    """What somebody's function of a model returned, one number or one for each sample; DataError for anything else."""
    try:
        return torch.as_tensor(given).detach().double().cpu().reshape(-1)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(
            f"{of} returned {type(given).__name__}: expected a number, or a tensor with one for each sample"
        ) from None


def _smoothness(model: nn.Module, batches: Iterable[Any]) -> dict[str, float]:
    v = view(model)
    values: dict[str, list[Tensor]] = {name: [] for name in PAPER}
    mask: list[Tensor | None] = [None]

    def see(point: str, x: Float[Tensor, "batch token dim"]) -> None:
        for name, metric in PAPER.items():
            values[name].append(metric(x.double(), mask=mask[0]).cpu())

    with hook_points(v, [f"blocks.{len(v.layers) - 1}.post"], see):
        for batch in each_batch(batches):
            inputs = to_model(batch, model)
            mask[0] = kept_tokens(inputs, model)
            call(model, inputs)
    if not values["hfc_lfc"]:
        raise DataError("no batch to look at: expected at least one")
    return {name: float(torch.cat(each).mean()) for name, each in values.items()}
