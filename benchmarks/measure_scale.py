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
from typing import Any

import torch
from torch import nn

import unsmooth
from benchmarks.clock import header, take_turns
from unsmooth.analysis import Measurer
from unsmooth.metrics.determinants import root_sums
from unsmooth.metrics.second_moment import SecondMoment
from unsmooth.models import select_points, view

CHEAP = ("hfc_lfc", "cosine_similarity")


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each length, and one for ViT-B."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, nargs="*", default=[512, 2048, 4096, 8192])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--explain", type=int, default=0, help="tokens of one input that is explained in all layers")
    parser.add_argument("--exact", action=argparse.BooleanOptionalAction, default=True, help="every sample's spectra")
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    print(f"{asked.layers} layers of width {asked.width}, bfloat16; {header(device)}")
    torch.manual_seed(0)
    spectrum(device, asked.width)
    llama = make_llama(asked.layers, asked.width, device)
    with torch.no_grad():
        for tokens in asked.tokens:
            ids = torch.randint(0, 1000, (1, tokens), device=device)
            row(f"{tokens} tokens", llama, {"input_ids": ids}, asked.rounds, device, asked.exact)
        if asked.explain:
            explained(llama, asked.explain, device)
        del llama
        if asked.images:
            import timm

            vit = timm.create_model("vit_base_patch16_224", pretrained=False).eval().to(device, torch.bfloat16)
            images = torch.randn(asked.images, 3, 224, 224, device=device, dtype=torch.bfloat16)
            row(f"ViT-B, {asked.images} images", vit, images, asked.rounds, device, asked.exact)


def row(name: str, model: nn.Module, batch: Any, rounds: int, device: torch.device, exact: bool) -> None:
    """Time the variants one after the other, each with its hooks set once, as `measure` sets them."""

    def measured(metrics: Any, points: str, rounds: int, **more: Any) -> float:
        with Measurer(model, metrics, "all", points, **more) as measurer:
            return take_turns({"": lambda: measurer.update(batch)}, rounds, device)[""]

    forward = take_turns({"": lambda: model(**batch) if isinstance(batch, dict) else model(batch)}, rounds, device)[""]
    seconds = {
        "cheap, residual": measured(CHEAP, "residual", rounds),
        "cheap, all": measured(CHEAP, "all", rounds),
        "rank of the data, residual": measured(["dataset_rank"], "residual", rounds),
    }
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    if before:
        torch.cuda.reset_peak_memory_stats(device)
    if exact:
        seconds["exact, all"] = measured("paper", "all", 1, rank_budget="exact")
    extra = (torch.cuda.max_memory_allocated(device) - before) / 2**30 if before else 0.0
    said = ", ".join(f"{key} {value / forward:.2f}×" for key, value in seconds.items())
    points = len(select_points(view(model), "all"))
    print(f"{name}: forward {1e3 * forward:.1f} ms; {said} ({points} points, {extra:.1f} GiB extra)", flush=True)


def explained(model: nn.Module, tokens: int, device: torch.device) -> None:
    """One input, all layers; target on an H200: 1,024 tokens of the 8 B in 60 s and 20 GiB."""
    batch = {"input_ids": torch.randint(0, 1000, (1, tokens), device=device)}
    cuda = device.type == "cuda"
    before = torch.cuda.memory_allocated(device) if cuda else 0
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    found = unsmooth.explain(model, [batch])
    seconds = time.perf_counter() - start
    extra = (torch.cuda.max_memory_allocated(device) - before) / 2**30 if cuda else 0.0
    frame = found.frame()
    searched = f"{int(frame['converged'].sum())} of {len(frame)} searches converged"
    print(f"explained, {tokens} tokens: {seconds:.1f} s, {extra:.1f} GiB extra, {searched}", flush=True)


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
