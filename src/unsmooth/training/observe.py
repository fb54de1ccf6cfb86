"""What is watched while a model trains: smoothing by depth, the spectrum of H, the control monitor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Complex, Float, UInt8
from torch import Tensor, nn

from unsmooth.metrics.definitions import cosine_similarity, effective_rank, hfc_lfc_ratio
from unsmooth.metrics.tolerance import is_zero
from unsmooth.models import view
from unsmooth.training.augment import Colours, normalise
from unsmooth.training.recipes import Recipe

CHUNK = 256  # images whose features are held at once
METRICS: dict[str, Callable[[Tensor], Tensor]] = {
    "hfc_lfc": hfc_lfc_ratio,
    "cosine_similarity": cosine_similarity,
    "effective_rank": effective_rank,
}


def observe(model: nn.Module, pixels: UInt8[Tensor, "image channel height width"], recipe: Recipe) -> dict[str, Any]:
    """Everything that is logged beside loss and accuracy; the model's mode is restored."""
    training = model.training
    model.eval()
    try:
        row: dict[str, Any] = {"spectrum": spectrum_shares(model)}
        if len(pixels):
            row["smoothing"] = smoothing_by_depth(model, pixels, recipe)
    finally:
        model.train(training)
    return row | monitor(model)


@torch.no_grad()
def smoothing_by_depth(
    model: nn.Module, pixels: UInt8[Tensor, "image channel height width"], recipe: Recipe
) -> dict[str, list[float]]:
    """The three metrics of Definitions 1–3 after every block (Frobenius norm, all tokens), mean over images."""
    device = next(model.parameters()).device
    colours, layers = Colours.of(recipe, device), view(model).layers
    values: dict[str, list[list[Float[Tensor, image]]]] = {name: [[] for _ in layers] for name in METRICS}

    def reduce(index: int, x: Float[Tensor, "image token dim"]) -> None:
        for name, metric in METRICS.items():
            values[name][index].append(metric(x.float()))

    hooks = [
        layer.block.register_forward_hook(lambda _module, _inputs, out, index=index: reduce(index, out))
        for index, layer in enumerate(layers)
    ]
    try:
        for chunk in pixels.split(CHUNK):
            model(normalise(chunk.to(device), colours))
    finally:
        for hook in hooks:
            hook.remove()
    return {name: [round(float(torch.cat(parts).mean()), 6) for parts in found] for name, found in values.items()}


@torch.no_grad()
def spectrum_shares(model: nn.Module) -> dict[str, list[float]]:
    """Per layer, the shares of eigenvalues of H = (Σ_h W_V^h W_proj^h)ᵀ by their real part; 0 counts in neither."""
    negative, positive = [], []
    for layer in view(model).layers:
        values = eigenvalues_of_h(layer.weights())
        real, side = values.real, ~is_zero(values)
        negative.append(round(float((side & (real >= -1) & (real < 0)).double().mean()), 4))
        positive.append(round(float((side & (real > 0)).double().mean()), 4))
    return {"in_minus_one_zero": negative, "positive": positive}


def eigenvalues_of_h(weights: Any) -> Complex[Tensor, dim]:
    """Of all heads together, on the CPU: small general eigenproblems are slow on a GPU."""
    h = torch.einsum("hdk,hke->de", weights.w_v.double().cpu(), weights.w_proj.double().cpu())
    return torch.linalg.eigvals(h)


def monitor(model: nn.Module) -> dict[str, Any]:
    """Conditioning of a reparametrised model, from the control monitor; nothing for a plain one."""
    if not hasattr(model, "spectral_control"):
        return {}
    from unsmooth.control import ControlMonitor

    found = ControlMonitor(model).read().as_dict("")
    return {"control": {key.strip("/"): value for key, value in found.items() if key.count("/") == 1}}
