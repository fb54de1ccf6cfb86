"""A training step of ViT-Ti under control against the plain one, and inference after `bake`; ratios in one run.

    python -m benchmarks.control_step                 # CPU: eager, batch 32, 65 tokens
    python -m benchmarks.control_step --device cuda   # torch.compile, the whole step in one CUDA graph, batch 96

Targets: a step with any form ≤ 1.25× the plain one on an H200 and ≤ 1.3× on a CPU; baked inference 1.00×.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.clock import captured, header, take_turns
from unsmooth.control import bake, control_of, parameter_groups, reparametrize
from unsmooth.control.forms import FORMS

Run = Callable[[], object]


def vit(patch: int, device: torch.device) -> nn.Module:
    """The paper's ViT-Ti: 12 layers, d = 192, 3 heads, no qkv bias, 32 px."""
    import timm

    torch.manual_seed(0)
    model: nn.Module = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=patch, num_classes=100, qkv_bias=False
    )
    return model.to(device)


def make_step(model: nn.Module, x: Tensor, y: Tensor) -> Run:
    """Forward, backward, gradient clipping and AdamW; on a GPU bf16, compiled, and captured as one graph."""
    cuda = x.is_cuda
    optimiser = torch.optim.AdamW(parameter_groups(model, 0.05), lr=1e-4, fused=True, capturable=cuda)
    forward = torch.compile(model, fullgraph=True) if cuda else model

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=cuda, cache_enabled=False):
            loss = nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0, foreach=True)
        optimiser.step()

    return captured(step) if cuda else step


def make_inference(model: nn.Module, x: Tensor) -> Run:
    """A forward pass without gradients; on a GPU captured as one graph."""
    model.eval()

    def run() -> None:
        with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda, cache_enabled=False):
            model(x)

    return captured(run) if x.is_cuda else run


def make_map(model: nn.Module) -> Run:
    """The batched weights alone, forward and backward, without the network."""
    control = control_of(model)

    def run() -> None:
        w_v, w_proj = control.weights()
        torch.autograd.grad((w_v.sum() + w_proj.sum()), [control.theta, control.psi])

    return captured(run) if control.theta.is_cuda else run


def measure(device: torch.device, batch: int, patch: int, forms: list[str], rounds: int) -> list[dict[str, object]]:
    """One row per form, printed as soon as it is known; the first row is the plain model against itself."""
    x = torch.randn(batch, 3, 32, 32, device=device)
    y = torch.randint(100, (batch,), device=device)
    plain, plain_inference = make_step(vit(patch, device), x, y), make_inference(vit(patch, device), x)
    rows: list[dict[str, object]] = []
    for form in ["plain", *forms]:
        model = vit(patch, device)
        runs: dict[str, Run] = {"plain": plain}
        if form != "plain":
            reparametrize(model, "sharpening", form=form, std=0.3)
            runs["map"] = make_map(model)
        runs["step"] = make_step(model, x, y)
        ms = {name: 1e3 * value for name, value in take_turns(runs, rounds, device).items()}
        row: dict[str, object] = {"form": form, "step_ratio": ms["step"] / ms["plain"], "ms": ms}
        if form != "plain":
            turns = take_turns({"plain": plain_inference, "baked": make_inference(bake(model), x)}, rounds, device)
            row["baked_inference_ratio"] = turns["baked"] / turns["plain"]
        rows.append(row)
        print(json.dumps(json.loads(json.dumps(row), parse_float=lambda text: round(float(text), 3))), flush=True)
    return rows


def main() -> None:
    """Measure and print; `--out` keeps the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--device", type=torch.device, default=torch.device("cuda" if torch.cuda.is_available() else "cpu")
    )
    parser.add_argument("--batch", type=int, help="32 on a CPU, 96 on a GPU")
    parser.add_argument("--patch", type=int, help="4 (65 tokens) on a CPU, 2 (257 tokens) on a GPU")
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--rounds", type=int, help="7 on a CPU, 100 on a GPU")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    cuda = args.device.type == "cuda"
    batch, patch, rounds = (
        args.batch or (96 if cuda else 32),
        args.patch or (2 if cuda else 4),
        args.rounds or (100 if cuda else 7),
    )
    print(f"ViT-Ti, batch {batch}, patch {patch}; {header(args.device)}", flush=True)
    rows = measure(args.device, batch, patch, args.forms, rounds)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
