"""What measuring costs beside the forward pass of models that people run: a Llama of 8 B's shape, ViT-B in bfloat16.

    python -m benchmarks.measure_scale [--device cuda] [--tokens 512 2048 4096 8192] [--layers 32] [--width 4096]

Random weights, one sequence a batch (ViT-B: 64 images). Targets on an H200: HFC/LFC, cosine and norms at all points
≤ 1.3× the forward; the paper's metrics, spectra included, ≤ 2× over many samples by the default budget; the rank of
the whole data ≤ 1.5×. `exact` finds every sample's spectra.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import unsmooth
from benchmarks.clock import header, synchronize, take_turns
from unsmooth.analysis import Measurer
from unsmooth.metrics.determinants import root_sums
from unsmooth.metrics.second_moment import SecondMoment
from unsmooth.models import select_points, view

CHEAP = ("hfc_lfc", "cosine_similarity")


def main(arguments: list[str] | None = None) -> None:
    """Print each figure as soon as it is known; one that fails does not end the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, nargs="*", default=[512, 2048, 4096, 8192])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--explain", type=int, default=0, help="tokens of one input that is explained in all layers")
    parser.add_argument("--explain-images", type=int, default=0, help="images that ViT-B is explained on")
    parser.add_argument("--spectrum", action=argparse.BooleanOptionalAction, default=True, help="one alone, by route")
    parser.add_argument("--exact", action=argparse.BooleanOptionalAction, default=True, help="every sample's spectra")
    parser.add_argument(
        "--exact-images", action=argparse.BooleanOptionalAction, default=True, help="the same, of ViT-B"
    )
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    print(f"{asked.layers} layers of width {asked.width}, bfloat16; {header(device)}", flush=True)
    torch.manual_seed(0)
    if asked.spectrum:
        attempt("spectrum", lambda: spectrum(device, asked.width))
    with torch.no_grad():
        if asked.tokens or asked.explain:
            llama = make_llama(asked.layers, asked.width, device)
            for tokens in asked.tokens:
                ids = torch.randint(0, 1000, (1, tokens), device=device)
                row(f"{tokens} tokens", llama, {"input_ids": ids}, asked.rounds, device, asked.exact)
            if asked.explain:
                explained("8 B's shape", llama, {"input_ids": torch.randint(0, 1000, (1, asked.explain))}, device)
            del llama
        if asked.images or asked.explain_images:
            import timm

            vit = timm.create_model("vit_base_patch16_224", pretrained=False).eval().to(device, torch.bfloat16)
            images = torch.randn(max(asked.images, asked.explain_images), 3, 224, 224).to(device, torch.bfloat16)
            if asked.images:
                few = images[: asked.images]
                row(f"ViT-B, {asked.images} images", vit, few, asked.rounds, device, asked.exact_images)
            if asked.explain_images:
                explained("ViT-B", vit, images[: asked.explain_images], device)


def row(name: str, model: nn.Module, batch: Any, rounds: int, device: torch.device, exact: bool) -> None:
    """Time the variants one after the other, each with its hooks set once, as `measure` sets them."""

    def forward_pass() -> object:
        return model(**batch) if isinstance(batch, dict) else model(batch)

    forward = take_turns({"": forward_pass}, rounds, device)[""]
    points = len(select_points(view(model), "all"))
    print(f"{name}: forward {1e3 * forward:.1f} ms, {points} points", flush=True)

    def measured(label: str, metrics: Any, points: str, rounds: int, **more: Any) -> None:
        def timed() -> None:
            before = reset_peak(device)
            with Measurer(model, metrics, "all", points, **more) as measurer:
                seconds = take_turns({"": lambda: measurer.update(batch)}, rounds, device)[""]
            print(f"  {label}: {seconds / forward:.2f}×, {peak(device, before):.1f} GiB extra", flush=True)

        attempt(f"  {label}", timed)

    def budgeted() -> None:
        """The paper's metrics of so many samples within the default budget, against as many forward passes."""
        samples = 16
        start = time.perf_counter()
        with Measurer(model) as measurer:
            for _ in range(samples):
                measurer.update(batch)
        synchronize(device)
        ratio = (time.perf_counter() - start) / samples / forward
        cells = measurer.result().cells
        found = {cell.metric: moments.count for cell, moments in cells.items()}
        print(f"  default budget, {samples} batches: {ratio:.2f}×, n {found}", flush=True)

    measured("cheap, residual", CHEAP, "residual", rounds)
    measured("cheap, all", CHEAP, "all", rounds)
    measured("rank of the data, residual", ["dataset_rank"], "residual", rounds)
    if isinstance(batch, dict):
        attempt("  default budget", budgeted)
    if exact:
        measured("exact, all", "paper", "all", 1, rank_budget="exact")


def explained(name: str, model: nn.Module, batch: Any, device: torch.device) -> None:
    """One layer, then all; targets on an H200: the 8 B, 1,024 tokens, 60 s and 20 GiB; ViT-B 10 forward passes."""
    batch = {key: x.to(device) for key, x in batch.items()} if isinstance(batch, dict) else batch

    def forward_pass() -> object:
        return model(**batch) if isinstance(batch, dict) else model(batch)

    forward = take_turns({"": forward_pass}, 3, device)[""]
    for layers in ([0], None):

        def timed(layers: list[int] | None = layers) -> None:
            before, start = reset_peak(device), time.perf_counter()
            found = unsmooth.explain(model, [batch], layers=layers)
            seconds = time.perf_counter() - start
            frame = found.frame()
            which = "all layers" if layers is None else "layer 0"
            print(
                f"{name}, explained, {which}: {seconds:.2f} s, {seconds / forward:.1f}× the forward of "
                f"{1e3 * forward:.1f} ms, {peak(device, before):.1f} GiB extra, "
                f"{int(frame['converged'].sum())} of {len(frame)} searches converged",
                flush=True,
            )

        attempt(f"{name}, explained", timed)


def attempt(name: str, run: Callable[[], object]) -> None:
    """Run it; where it fails say how, and go on."""
    try:
        run()
    except Exception as error:  # the other figures are wanted all the same
        print(f"{name}: FAILED, {type(error).__name__}: {str(error)[:300]}", flush=True)
        traceback.print_exc(limit=-4)


def reset_peak(device: torch.device) -> int:
    """Bytes in use; the peak is counted from here."""
    if device.type != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak(device: torch.device, before: int) -> float:
    """GiB beyond those in use then, at the peak since."""
    return (torch.cuda.max_memory_allocated(device) - before) / 2**30 if device.type == "cuda" else 0.0


def make_llama(layers: int, width: int, device: torch.device) -> nn.Module:
    """Llama 3's 8 B in shape, made on the device."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=14336 * width // 4096,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 128),
        num_key_value_heads=max(1, width // 512),
        max_position_embeddings=1 << 17,
        use_cache=False,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return LlamaModel(config).eval()
    finally:
        torch.set_default_dtype(before)


def spectrum(device: torch.device, side: int = 4096) -> None:
    """One spectrum of 4,096 rows: all eigenvalues, and the two sums that the effective rank needs."""
    x = torch.randn(4, side, side, device=device, dtype=torch.float64)
    x *= torch.logspace(0, -3, side, device=device, dtype=torch.float64)
    gram, rank = x @ x.mT, torch.full((4,), float(side), device=device)
    seconds = take_turns(
        {
            "eigvalsh": lambda: torch.linalg.eigvalsh(gram[0]),
            "sums, one": lambda: root_sums(gram[:1], rank[:1]),
            "sums, each of four": lambda: root_sums(gram, rank),
        },
        2,
        device,
    )
    seconds["sums, each of four"] /= 4
    sigma = torch.linalg.eigvalsh(gram[0]).clamp_min(0).sqrt()
    total, logs = root_sums(gram[:1], rank[:1])
    exact = torch.special.entr(sigma / sigma.sum()).sum().exp()
    error = float((total.log() - logs / 2 / total).exp() / exact - 1)
    said = ", ".join(f"{name} {1e3 * value:.1f} ms" for name, value in seconds.items())
    print(f"spectrum of {side} rows: {said}; effective rank {float(exact):.1f}, off by {error:.1e}", flush=True)
    half = torch.randn(1, 2 * side, side, device=device).to(torch.bfloat16)
    both = [SecondMoment(), SecondMoment()]
    both[0].update(half)
    both[1].update(half.double())
    found = [moment.effective_rank() for moment in both]
    print(f"rank of the data from bfloat16: off by {found[0] / found[1] - 1:.1e}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
