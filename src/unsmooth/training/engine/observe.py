"""What is watched while a model trains: smoothing by depth, the spectrum of H, the control monitor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.metrics.definitions import PAPER
from unsmooth.metrics.tolerance import is_zero
from unsmooth.metrics.workers import spread
from unsmooth.models import view
from unsmooth.models.hooks import hook_points
from unsmooth.theory.spectrum import layer_spectrum


def observe(model: nn.Module, inputs: Iterable[Tensor]) -> dict[str, Any]:
    """Everything that is logged beside a task's scores; `inputs` are batches for the model, whose mode is restored."""
    training = model.training
    model.eval()
    try:
        row: dict[str, Any] = {"spectrum": spectrum_shares(model)}
        if smoothing := smoothing_by_depth(model, inputs):
            row["smoothing"] = smoothing
    finally:
        model.train(training)
    return row | monitor(model)


@torch.no_grad()
def smoothing_by_depth(model: nn.Module, inputs: Iterable[Tensor]) -> dict[str, list[float]]:
    """The three metrics of Definitions 1–3 after every block (Frobenius norm, all tokens), mean over samples."""
    v = view(model)
    points = [f"blocks.{index}.post" for index in range(len(v.layers))]
    values: dict[str, dict[str, list[Float[Tensor, sample]]]] = {m: {point: [] for point in points} for m in PAPER}

    def reduce(point: str, x: Float[Tensor, "sample token dim"]) -> None:
        for name, metric in PAPER.items():
            values[name][point].append(metric(x.float()))

    with hook_points(v, points, reduce):
        seen = [len(batch) for batch in inputs if model(batch) is not None]
    if not seen:
        return {}
    return {m: [round(float(torch.cat(p).mean()), 6) for p in found.values()] for m, found in values.items()}


@torch.no_grad()
def spectrum_shares(model: nn.Module) -> dict[str, list[float]]:
    """Per layer, the shares of eigenvalues of H = (Σ_h W_V^h W_proj^h)ᵀ by their real part; 0 counts in neither."""
    negative, positive = [], []
    weights = [layer.weights() for layer in view(model).layers]
    pairs = [(w.w_v.cpu(), w.w_proj.cpu()) for w in weights]
    for values in spread(lambda pair: layer_spectrum(*pair), pairs):  # seconds for each layer of a wide model
        real, side = values.real, ~is_zero(values)
        negative.append(round(float((side & (real >= -1) & (real < 0)).double().mean()), 4))
        positive.append(round(float((side & (real > 0)).double().mean()), 4))
    return {"in_minus_one_zero": negative, "positive": positive}


def monitor(model: nn.Module) -> dict[str, Any]:
    """Conditioning of a reparametrised model, from the control monitor; nothing for a plain one."""
    if not hasattr(model, "spectral_control"):
        return {}
    from unsmooth.control import ControlMonitor

    found = ControlMonitor(model).read().as_dict("")
    return {"control": {key.strip("/"): value for key, value in found.items() if key.count("/") == 1}}
