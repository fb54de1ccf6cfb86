"""Residual sum with LayerNorm, and bias with GELU: our kernels against compiled PyTorch, over tile sizes; CUDA only.

    python -m benchmarks.train_rows            # ViT-Ti, patch 2: 96 images, 257 tokens, 192 features, bfloat16
    python -m benchmarks.train_rows --sweep    # only our kernels, every tile size worth trying

Times are those of captured launches (20 in one CUDA graph, best of 6), as the training step replays them. What memory
traffic alone would take is printed beside them, at 4.3 TB/s (measured on an H200 by a large copy).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.clock import header, microseconds
from unsmooth.training.fast import add_norm, gelu
from unsmooth.training.fast.add_norm import Pending
from unsmooth.training.fast.strip import Strip

BANDWIDTH = 4.3e6  # bytes a microsecond
BATCH, TOKENS, WIDTH = 96, 257, 192


def both_passes(forward: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor]) -> Callable[[], object]:
    """Forward and backward, compiled as in the training step; made anew each time, so that nothing is kept alive."""
    compiled = torch.compile(forward, dynamic=False, fullgraph=True)
    with torch.no_grad():
        weights = [torch.randn_like(t) for t in forward(*inputs)]

    def work() -> object:
        fresh = [t.detach().requires_grad_() for t in inputs]
        return torch.autograd.grad(compiled(*fresh), fresh, weights)

    return work


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("needs a CUDA GPU", flush=True)
        return
    torch.manual_seed(0)
    stream = torch.randn(BATCH, TOKENS, WIDTH, device="cuda")
    branch = torch.randn(BATCH, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
    hidden = torch.randn(BATCH, TOKENS, 4 * WIDTH, device="cuda", dtype=torch.bfloat16)
    bias, gamma, beta, wide = (torch.randn(n, device="cuda") for n in (WIDTH, WIDTH, WIDTH, 4 * WIDTH))
    keep = torch.ones(BATCH, device="cuda")

    print(f"{BATCH} × {TOKENS} tokens of {WIDTH} features; {header(torch.device('cuda'))}", flush=True)
    if options.sweep:
        sweep_norm(stream, branch, bias, keep, gamma, beta)
        sweep_gelu(hidden, wide)
        return

    def their_norm(s: Tensor, b: Tensor, c: Tensor, g: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        out = Pending(s, b + c.to(b.dtype), torch.zeros_like(c), keep).add()
        return out, F.layer_norm(out, (WIDTH,), g, e, 1e-6).to(b.dtype)

    def our_norm(s: Tensor, b: Tensor, c: Tensor, g: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        return add_norm.add_norm(Pending(s, b, c, keep), g, e, 1e-6)

    norm_inputs, gelu_inputs = (stream, branch, bias, gamma, beta), (hidden, wide)
    compare("residual sum and LayerNorm", their_norm, our_norm, norm_inputs, 3 * stream.nbytes + 4 * stream.nbytes)
    compare(
        "bias and GELU",
        lambda h, b: (F.gelu(h + b.to(h.dtype)),),
        lambda h, b: (gelu.gelu(h, b),),
        gelu_inputs,
        5 * hidden.nbytes,
    )


def compare(
    name: str, theirs: Callable[..., Sequence[Tensor]], ours: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Tensor], moved: float,
) -> None:  # fmt: skip
    """Print both passes of both."""
    slow, fast = (microseconds(both_passes(forward, inputs)) for forward in (theirs, ours))
    print(
        f"{name}, forward and backward: PyTorch {slow:.1f} µs, ours {fast:.1f} µs: {slow / fast:.2f}×; "
        f"memory alone {moved / BANDWIDTH:.1f} µs",
        flush=True,
    )


def sweep_norm(stream: Tensor, branch: Tensor, bias: Tensor, keep: Tensor, gamma: Tensor, beta: Tensor) -> None:
    """Microseconds of each kernel by tile."""
    out, normed, mean, rstd = add_norm._add_norm(stream, branch, bias, keep, gamma, beta, 1e-6)
    d_stream, d_branch = torch.empty_like(stream), torch.empty_like(branch)
    for shape in ((2, 1), (4, 2), (8, 4)):
        strip = Strip(shape[0], 0, shape[1])
        work = partial(add_norm.launch_add_norm, stream, branch, bias, keep, gamma, beta, 1e-6, out, normed, mean, rstd)
        print(f"add_norm {strip}: {microseconds(partial(work, strip)):.1f} µs", flush=True)
    for shape, programs, stages in product(((2, 2), (4, 2), (4, 4)), (4, 8), (1, 3)):
        strip = Strip(shape[0], 0, shape[1], programs, stages)
        sums = torch.empty(add_norm.add_norm_programs(out, strip), 3, WIDTH, device="cuda")
        inputs = (stream, branch, out, mean, rstd, keep, gamma, d_stream, d_branch, sums, strip)
        work = partial(add_norm.launch_add_norm_backward, *inputs)
        print(f"add_norm_backward {strip}: {microseconds(work):.1f} µs", flush=True)


def sweep_gelu(hidden: Tensor, bias: Tensor) -> None:
    """Microseconds of each kernel by tile."""
    out = torch.empty_like(hidden)
    for shape in ((8, 256, 4), (8, 256, 8), (16, 256, 8)):
        work = partial(gelu.launch_gelu, hidden, bias, out, Strip(*shape))
        print(f"gelu {Strip(*shape)}: {microseconds(work):.1f} µs", flush=True)
    for shape, programs, stages in product(((8, 256, 4), (8, 256, 8), (16, 128, 4)), (4, 8), (1, 3)):
        strip = Strip(*shape, programs, stages)
        sums = torch.empty(gelu.gelu_programs(hidden, strip), hidden.shape[-1], device="cuda")
        launch = partial(gelu.launch_gelu_backward, hidden, bias, hidden, out, sums, strip)
        print(f"gelu_backward {strip}: {microseconds(launch):.1f} µs", flush=True)


if __name__ == "__main__":
    main()
