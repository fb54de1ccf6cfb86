"""A fine-tuning step with an adapter beside the plain one: forward, backward and AdamW; ratios in one run.

    python -m benchmarks.adapter_step                # CPU: small shapes, float32
    python -m benchmarks.adapter_step --device cuda  # DINOv2-S at 224 px (batch 64) and BERT-base (64 × 128), bf16

Plain fine-tuning trains everything. Beside it: everything and the adapter, and the adapter and the head alone.
Target: ≤ 1.2× the plain step on an H200. Weights are random: their values cost nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.clock import header, take_turns
from unsmooth import adapt, parameter_groups

Run = Callable[[], None]


def images(cuda: bool) -> tuple[nn.Module, Callable[[nn.Module], Tensor], str]:
    """DINOv2's ViT-S/14 with a classifier."""
    import timm

    size, count = (224, 64) if cuda else (112, 4)
    torch.manual_seed(0)
    model = timm.create_model("vit_small_patch14_dinov2", img_size=size, num_classes=100)
    where = "cuda" if cuda else "cpu"
    x, y = torch.randn(count, 3, size, size, device=where), torch.randint(100, (count,), device=where)
    return model, lambda m: nn.functional.cross_entropy(m(x), y), f"DINOv2-S, {count} images of {size} px"


def text(cuda: bool) -> tuple[nn.Module, Callable[[nn.Module], Tensor], str]:
    """BERT-base with a classifier."""
    from transformers import BertConfig, BertForSequenceClassification

    count, tokens = (64, 128) if cuda else (4, 64)
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=12 if cuda else 4))
    where = "cuda" if cuda else "cpu"
    batch = {"input_ids": torch.randint(100, 30000, (count, tokens), device=where),
             "labels": torch.randint(2, (count,), device=where)}  # fmt: skip
    return model, lambda m: m(**batch).loss, f"BERT, {len(model.bert.encoder.layer)} layers, {count} × {tokens} tokens"


def make_step(model: nn.Module, loss: Callable[[nn.Module], Tensor], cuda: bool) -> Run:
    """One step of fine-tuning what is not frozen."""
    optimiser = torch.optim.AdamW(parameter_groups(model, 0.05), lr=1e-5, fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda" if cuda else "cpu", torch.bfloat16, enabled=cuda):
            value = loss(model)
        value.backward()
        optimiser.step()

    return step


def main(arguments: list[str] | None = None) -> None:
    """Print the ratios, measured in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rounds", type=int, help="3 on a CPU, 30 on a GPU")
    asked = parser.parse_args(arguments or [])
    cuda, device = asked.device == "cuda", torch.device(asked.device)
    print(header(device), flush=True)
    for build in (images, text):
        runs: dict[str, Run] = {}
        for name in ("plain, all weights", "adapter, all weights", "adapter and head alone"):
            model, loss, what = build(cuda)
            model.to(device).train()
            if name.endswith("alone"):
                model.requires_grad_(False)
                head = model.head if hasattr(model, "head") else model.classifier
                head.requires_grad_(True)
            if name.startswith("adapter"):
                adapt(model, rank=asked.rank)
            runs[name] = make_step(model, loss, cuda)
        seconds = take_turns(runs, asked.rounds or (30 if cuda else 3), device)
        print(f"{what}, rank {asked.rank}")
        for name, median in seconds.items():
            print(f"  {name:24s} {median * 1e3:9.1f} ms  {median / seconds['plain, all weights']:5.2f}×", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
