"""Our attention kernels against PyTorch's, forward and backward, over tile sizes; CUDA only.

    python -m benchmarks.train_attention            # ViT-Ti, patch 2: 96 images, 257 tokens, 3 heads of 64, bfloat16
    python -m benchmarks.train_attention --sweep    # every tile size worth trying; most of a minute of compiling

Times are those of captured launches (20 in one CUDA graph, best of 6), as the training step replays them; PyTorch's
backward pass runs with the copies that bring its gradients into the packed layout.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.clock import header, microseconds
from unsmooth.training.fast import attention as ours


def both_passes(attend: Callable[[Tensor], Tensor], packed: Tensor, weight: Tensor) -> Callable[[], object]:
    """Forward and backward, compiled as in the training step; made anew each time, so that nothing is kept alive."""

    def work() -> object:
        x = packed.detach().requires_grad_()
        return torch.autograd.grad(compiled(x), x, weight)

    compiled = torch.compile(attend, dynamic=False, fullgraph=True)
    return work


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--tokens", type=int, default=257)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs a CUDA GPU", flush=True)
        return
    batch, tokens, heads, dim = 96, options.tokens, 3, 64
    torch.manual_seed(0)
    packed = torch.randn(batch, tokens, 3 * heads * dim, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(batch, tokens, heads * dim, device="cuda", dtype=torch.bfloat16)

    def theirs(x: Tensor) -> Tensor:
        q, k, v = x.reshape(batch, tokens, 3, heads, dim).permute(2, 0, 3, 1, 4).unbind(0)
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    def tiled(x: Tensor) -> Tensor:
        return ours.attention(x, heads)

    print(f"{batch} × {tokens} tokens, {heads} heads of {dim}; {header(torch.device('cuda'))}", flush=True)
    with torch.no_grad():
        forward = [microseconds(lambda f=f: f(packed)) for f in (theirs, tiled)]  # type: ignore[misc]
    print(f"forward: PyTorch {forward[0]:.1f} µs, ours {forward[1]:.1f} µs: {forward[0] / forward[1]:.2f}×", flush=True)
    both = [microseconds(both_passes(f, packed, weight)) for f in (theirs, tiled)]
    print(
        f"forward and backward: PyTorch {both[0]:.1f} µs, ours {both[1]:.1f} µs: {both[0] / both[1]:.2f}×", flush=True
    )
    if options.sweep:
        sweep(packed, weight, heads)


def sweep(packed: Tensor, weight: Tensor, heads: int) -> None:
    """Microseconds of each kernel by tile."""
    sizes = [(64, 64, 4, 1), (64, 64, 4, 1, 168), (64, 64, 4, 2), (64, 64, 4, 2, 128), (64, 64, 4, 3), (128, 64, 8, 3)]
    out, lse = ours._attention(packed, heads)
    product = (weight.float() * out.float()).unflatten(-1, (heads, -1)).sum(-1)
    d_packed = torch.empty_like(packed)
    gradients = (packed, weight, lse, product, d_packed, heads)
    for tiles in (ours.Tiles(*size) for size in sizes):
        forward = microseconds(partial(ours.launch_forward, packed, out, lse, heads, tiles))
        keys, queries = (
            microseconds(partial(ours.launch_backward, kernel, tiles, *gradients))
            for kernel in (ours.backward_keys_kernel, ours.backward_queries_kernel)
        )
        print(f"{tiles}: forward {forward:.1f}, keys {keys:.1f}, queries {queries:.1f} µs", flush=True)


if __name__ == "__main__":
    main()
