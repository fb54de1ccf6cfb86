"""What explaining costs: the many-head exponent of all layers, and the spectra of every head's H.

    python -m benchmarks.explain_exponent [--device cuda] [--inputs 64] [--weights FILE --model NAME] [--gain 6]

Targets: the exponent of all layers ≤ 15× the forward pass on the same inputs; per-head spectra ≥ 50× faster than
through d×d matrices. Random weights are the hard case: their spectrum is a full disc, with no eigenvalue that stands
out. `--gain` multiplies value and projection weights, `--weights` takes real ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.clock import header, take_turns
from unsmooth.analysis.explaining.explainer import ACCURACY
from unsmooth.analysis.layer_weights import cast_weights, fold_weights
from unsmooth.models import ModelView, capture_attention, hook_points, view
from unsmooth.theory import layer_exponent, spectrum_of_h
from unsmooth.theory.folding import Folded, statistics, step_size
from unsmooth.theory.spectrum import forget_spectra


def main(arguments: list[str] | None = None) -> None:
    """Print both ratios, measured in one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="vit_base_patch16_224")
    parser.add_argument("--weights", default=None)
    parser.add_argument("--inputs", type=int, default=None, help="64 on CUDA, 4 on the CPU")
    parser.add_argument("--gain", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    count = asked.inputs or (64 if device.type == "cuda" else 4)
    model, size = build(asked.model, asked.weights, asked.gain, device)
    batch = torch.randn(count, 3, size, size, device=device)
    v = view(model)
    inputs = captured(v, batch)
    folded = [fold_weights(cast_weights(layer.weights())) for layer in v.layers]
    print(f"{asked.model}, {count} inputs of {size} px, gain {asked.gain:g}; {header(device)}")
    exponents(v, folded, inputs, model, batch, asked.rounds, device)
    spectra(folded, device)


def build(name: str, weights: str | None, gain: float, device: torch.device) -> tuple[nn.Module, int]:
    """A timm model with real weights, or with random ones whose value and projection weights are larger."""
    import timm

    torch.manual_seed(0)
    if weights is not None:
        model = timm.create_model(name, pretrained=False, img_size=518, dynamic_img_size=True, num_classes=0)
        import safetensors.torch

        model.load_state_dict(safetensors.torch.load_file(weights), strict=True)
        return model.eval().to(device), 224
    model = timm.create_model(name, pretrained=False).eval().to(device)
    for layer in view(model).layers:
        found = layer.weights()
        layer.write(found.w_v.detach() * gain**0.5, found.w_proj.detach() * gain**0.5)
    return model, int(model.pretrained_cfg["input_size"][-1])


def captured(v: ModelView, batch: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Attention and stream of every layer."""
    attention: dict[int, Tensor] = {}
    stream: dict[int, Tensor] = {}
    points = [f"blocks.{i}.pre" for i in range(len(v.layers))]
    with (
        torch.no_grad(),
        hook_points(v, points, lambda name, x: stream.__setitem__(int(name.split(".")[1]), x)),
        capture_attention(v, attention.__setitem__),
    ):
        v.model(batch)
    return [(attention[i], stream[i]) for i in range(len(v.layers))]


def exponents(
    v: ModelView,
    folded: list[Folded],
    inputs: list[Any],
    model: nn.Module,
    batch: Tensor,
    rounds: int,
    device: torch.device,
) -> None:
    """All layers' exponents beside the forward pass."""
    facts: dict[str, list[float]] = {"products": [], "converged": []}

    def every_layer() -> None:
        facts["products"].clear()
        facts["converged"].clear()
        for weights, (attention, x) in zip(folded, inputs, strict=True):
            step = step_size(statistics(weights.norm, x), None, None)
            found = layer_exponent(attention, weights.pair, scale=step.cpu(), accuracy=ACCURACY)
            facts["products"].append(found.products)
            facts["converged"].append(float(found.converged.double().mean()))

    def forward() -> None:
        with torch.no_grad():
            model(batch)

    variants: dict[str, Callable[[], None]] = {"plain forward": forward, "exponents, all layers": every_layer}
    seconds = take_turns(variants, rounds, device)
    for name, median in seconds.items():
        print(f"  {name:28s} {median * 1e3:10.1f} ms  {median / seconds['plain forward']:6.2f}×")
    products = sum(facts["products"]) / len(facts["products"])
    converged = sum(facts["converged"]) / len(facts["converged"])
    print(f"  {products:.0f} products a layer on average; {converged:.0%} of the searches converged")


def spectra(folded: list[Folded], device: torch.device) -> None:
    """Per-head spectra of all layers through k×k, one head through d×d, scaled up."""
    started = time.perf_counter()
    forget_spectra()
    for weights in folded:
        spectrum_of_h(*weights.pair, layer=False)
    fast = time.perf_counter() - started
    heads = sum(len(weights.w_v) for weights in folded)
    dense = [w.w_v[0].cpu().double() @ w.w_proj[0].cpu().double() for w in folded[:3]]
    started = time.perf_counter()
    for matrix in dense:
        torch.linalg.eigvals(matrix.mT)
    slow = (time.perf_counter() - started) / len(dense) * heads
    print(f"  spectra of {heads} heads: {fast * 1e3:.0f} ms through k×k; {slow * 1e3:.0f} ms through d×d "
          f"(from {len(dense)} heads): {slow / fast:.0f}×")  # fmt: skip


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
