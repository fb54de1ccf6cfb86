"""What the three metrics cost: beside a forward pass, against the obvious way, and on long sequences.

python -m benchmarks.measure_metrics [--device cuda] [--batch 8]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.clock import header, take_turns
from unsmooth.measure.engine import Evaluator
from unsmooth.measure.registry import resolve

PAPER = resolve("paper")


def obvious(points: list[Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Stored activations, a full SVD, a token × token cosine matrix."""
    out = []
    for x in points:
        low = x.mean(-2, keepdim=True).expand_as(x)
        ratio = (x - low).norm(dim=(-2, -1)) / low.norm(dim=(-2, -1))
        cosine = nn.functional.cosine_similarity(x[:, :, None], x[:, None], dim=-1) if x.shape[-2] < 64 else _pairs(x)
        upper = torch.triu_indices(x.shape[-2], x.shape[-2], 1)
        _, sigma, _ = torch.linalg.svd(x)
        p = sigma / sigma.sum(-1, keepdim=True)
        out.append((ratio, cosine[:, upper[0], upper[1]].mean(-1), torch.special.entr(p).sum(-1).exp()))
    return out


def _pairs(x: Tensor) -> Tensor:
    unit = nn.functional.normalize(x, dim=-1)
    return unit @ unit.mT


def fast(points: list[Tensor]) -> dict[object, dict[str, Tensor]]:
    """The same values by the evaluator."""
    evaluator: Evaluator[int] = Evaluator(PAPER)
    for index, x in enumerate(points):
        evaluator.add(index, x)
    return dict(evaluator.flush())


@contextmanager
def hooked(model: nn.Module, everywhere: bool, see: Callable[[Tensor], None]) -> Iterator[None]:
    """Show `see` the residual stream of a timm ViT (embed, mid, post), or the branches and norms as well."""

    def after(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        see(output)

    def before(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        see(args[0])

    blocks = list(model.blocks)
    handles = [blocks[0].register_forward_pre_hook(before)]
    for block in blocks:
        handles += [block.norm2.register_forward_pre_hook(before), block.register_forward_hook(after)]
        if everywhere:
            handles += [m.register_forward_hook(after) for m in (block.norm1, block.attn, block.norm2, block.mlp)]
    if everywhere:
        handles.append(model.norm.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def beside_a_forward(device: torch.device, batch: int, precision: str, rounds: int) -> list[Tensor]:
    """Time ViT-B/16's forward with and without the metrics; returns the features of all points."""
    import timm

    model = timm.create_model("vit_base_patch16_224").eval().to(device)
    images = torch.randn(batch, 3, 224, 224, device=device)
    cast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else nullcontext()

    def forward(everywhere: bool | None) -> None:
        evaluator: Evaluator[int] = Evaluator(PAPER)
        seen = iter(range(1000))
        with (
            hooked(model, bool(everywhere), lambda x: evaluator.add(next(seen), x))
            if everywhere is not None
            else (nullcontext())
        ):
            model(images)
        evaluator.flush()

    points: list[Tensor] = []
    with torch.inference_mode(), cast:
        runs = {"plain": partial(forward, None), "residual": partial(forward, False), "all": partial(forward, True)}
        seconds = take_turns(runs, rounds, device)
        with hooked(model, True, points.append):
            model(images)
    plain = seconds["plain"]
    print(f"ViT-B/16, batch {batch}, {precision}: plain forward {1e3 * plain:.1f} ms")
    for name, count in (("residual", 2 * len(model.blocks) + 1), ("all", len(points))):
        each = (seconds[name] - plain) / count
        ratio = seconds[name] / plain
        print(f"  {name:8} points ({count} tensors): {ratio:.2f}x the forward, {1e3 * each:.2f} ms per point")
    return points


def against_the_obvious(points: list[Tensor], device: torch.device, rounds: int) -> None:
    """Time the metrics alone, both ways, on the same stored features."""
    with torch.inference_mode():
        runs = {"fast": partial(fast, points), "obvious": partial(obvious, points)}
        seconds = take_turns(runs, rounds, device)
    ratio = seconds["obvious"] / seconds["fast"]
    quick, slow = 1e3 * seconds["fast"], 1e3 * seconds["obvious"]
    print(f"{len(points)} tensors of {tuple(points[0].shape)}: {quick:.1f} ms; the obvious way takes {slow:.1f} ms")
    print(f"  metric time {ratio:.1f}x shorter")


def long_sequence(device: torch.device, rounds: int, tokens: int = 2048, dim: int = 2048) -> None:
    """Time one point against one Transformer block's forward at that size."""
    block = nn.TransformerEncoderLayer(dim, 16, 4 * dim, batch_first=True, norm_first=True).eval().to(device)
    x = torch.randn(1, tokens, dim, device=device)
    with torch.inference_mode():
        seconds = take_turns({"block": partial(block, x), "fast": partial(fast, [x])}, rounds, device)
    ratio = seconds["fast"] / seconds["block"]
    print(
        f"n = {tokens}, d = {dim}: metrics {1e3 * seconds['fast']:.0f} ms per point, one block's forward "
        f"{1e3 * seconds['block']:.0f} ms, ratio {ratio:.2f}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=0, help="default 8 on the CPU, 64 on a GPU")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args([] if arguments is None else arguments)
    device = torch.device(options.device)
    print(header(device))
    on_gpu = device.type == "cuda"
    batch = options.batch or (64 if on_gpu else 8)
    for precision in ("fp32", "bf16") if on_gpu else ("fp32",):
        points = beside_a_forward(device, batch, precision, options.rounds)
    against_the_obvious([x.float() for x in points[:6]], device, 1 if on_gpu else options.rounds)
    long_sequence(device, options.rounds)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
