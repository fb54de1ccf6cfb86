"""Where a step of the crammed BERT goes: its products, attention, norms, gate, loss, embedding and update, one by one.

    python -m benchmarks.text_parts                 # CPU: small, to see that it works
    python -m benchmarks.text_parts --device cuda   # 512 × 128 tokens, width 768, in bfloat16; about a minute
    python -m benchmarks.text_parts --sweep         # only this: our kernels with other strips and warps; CUDA

Each part is timed alone, both passes, compiled where the step compiles it. The sum over 16 layers is what a step would
take if nothing else ran; the products' own part of it is what no fusion can save.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.clock import header, synchronize

LAYERS = 16
BACKENDS = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)


def milliseconds(run: Callable[[], object], device: torch.device, times: int = 5, rounds: int = 3) -> float:
    """Of one run, the fastest of some rounds after a warm-up."""
    for _ in range(2):
        run()
    best = float("inf")
    for _ in range(rounds):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(times):
            run()
        synchronize(device)
        best = min(best, 1e3 * (time.perf_counter() - start) / times)
    return best


def both(function: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor]) -> Callable[[], object]:
    """Forward and backward of a function for random gradients of its outputs."""
    learned = [t for t in inputs if t.is_floating_point()]
    found = function(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    gradients = [torch.randn_like(t) for t in outputs]

    def run() -> object:
        out = function(*inputs)
        return torch.autograd.grad(out if isinstance(out, tuple) else (out,), learned, gradients)

    return run


def compiled(function: Callable[..., Tensor | tuple[Tensor, ...]], device: torch.device) -> Callable[..., Tensor]:
    """As in the step; a CPU only shows that the parts run."""
    return torch.compile(function, dynamic=False, fullgraph=True) if device.type == "cuda" else function


class Parts:
    """The tensors of one layer, and a line for each thing that is done with them."""

    def __init__(self, device: torch.device, rows: int, length: int, width: int, heads: int, words: int) -> None:
        self.device, self.rows, self.length, self.width, self.heads, self.words = (
            device, rows, length, width, heads, words
        )  # fmt: skip
        self.half = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.total = 0.0

    def random(self, *shape: int, half: bool = True) -> Tensor:
        """A leaf."""
        kind = self.half if half else torch.float32
        return torch.randn(*shape, device=self.device, dtype=kind).mul_(0.02).requires_grad_()

    def say(self, name: str, run: Callable[[], object], times: int = LAYERS, flop: float = 0.0) -> None:
        """One line; `times` a step (0: an alternative that is not counted)."""
        try:
            found = milliseconds(run, self.device)
        except RuntimeError as error:
            print(f"{name:42} {type(error).__name__}: {str(error).splitlines()[0][:90]}", flush=True)
            return
        self.total += times * found
        rate = f" {flop / found / 1e9:7.0f} TFLOP/s" if flop else ""
        print(f"{name:42} {found:8.3f} ms × {times:2} = {found * times:7.1f} ms{rate}", flush=True)

    def products(self) -> None:
        """Every linear layer, its two backward products included."""
        tokens, width = self.rows * self.length, self.width
        shapes = {"Wqkv": (width, 3 * width), "attn.Wo": (width, width), "Wi": (width, 4 * width)}
        shapes |= {"mlp.Wo": (2 * width, width)}
        for name, (inner, outer) in shapes.items():
            x, w = self.random(tokens, inner), self.random(outer, inner)
            d = torch.randn(tokens, outer, device=self.device, dtype=self.half)
            flop = 2.0 * tokens * inner * outer
            with torch.no_grad():
                self.say(f"{name} forward", lambda x=x, w=w: F.linear(x, w), flop=flop)
                self.say(f"{name} dX", lambda d=d, w=w: d @ w, flop=flop)
                self.say(f"{name} dW", lambda d=d, x=x: d.T @ x, flop=flop)

    def attention(self) -> None:
        """PyTorch's kernels with rotary positions, then ours on the packed layer's output."""
        rows, length, heads, dim = self.rows, self.length, self.heads, self.width // self.heads
        packed = self.random(rows, length, 3 * self.width)
        angle = torch.outer(torch.arange(length), 10_000 ** -(torch.arange(0, dim, 2) / dim)).to(self.device)
        cos, sin = (torch.cat([f, f], -1)[None, None] for f in (angle.cos(), angle.sin()))

        def turn(x: Tensor) -> Tensor:
            x1, x2 = x.float().chunk(2, -1)
            return (x.float() * cos + torch.cat([-x2, x1], -1) * sin).to(x.dtype)

        def attend(x: Tensor) -> Tensor:
            q, k, v = (t.transpose(1, 2) for t in x.view(rows, length, 3, heads, dim).unbind(2))
            return F.scaled_dot_product_attention(turn(q), turn(k), v).transpose(1, 2).flatten(2)

        chosen = compiled(attend, self.device)
        self.say("rotary + SDPA, PyTorch's choice", both(chosen, [packed]))
        for backend in BACKENDS if self.device.type == "cuda" else ():

            def forced(x: Tensor, backend: SDPBackend = backend) -> Tensor:
                q, k, v = (t.transpose(1, 2) for t in x.view(rows, length, 3, heads, dim).unbind(2))
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

            try:
                self.say(f"SDPA alone, {backend.name}", both(forced, [packed]), 0)
            except RuntimeError as error:
                print(f"SDPA alone, {backend.name}: {str(error).splitlines()[0][:90]}", flush=True)
        if self.device.type == "cuda":
            from unsmooth.training.fast.attention import attention
            from unsmooth.training.fast.rotary import rotary_attention

            half = (cos[0, 0, :, : dim // 2].contiguous(), sin[0, 0, :, : dim // 2].contiguous())
            self.say("ours of the ViT, without rotary", both(lambda x: attention(x, heads), [packed]), 0)
            self.say("ours with rotary", both(lambda x: rotary_attention(x, *half, heads), [packed]), 0)
            with torch.no_grad():
                self.say("ours with rotary, forward", lambda: rotary_attention(packed, *half, heads), 0)

    def norms(self) -> None:
        """The sum and the norm that follows it."""
        shape = (self.rows, self.length, self.width)
        inputs = [self.random(*shape, half=False), self.random(*shape), self.random(self.width, half=False)]

        def add_norm(a: Tensor, b: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
            out = a + b
            return out, F.layer_norm(out, (self.width,), g, None, 1e-12).to(b.dtype)

        self.say("sum + norm, compiled", both(compiled(add_norm, self.device), inputs), 2 * LAYERS)
        if self.device.type == "cuda":
            from unsmooth.training.fast.add_norm import Pending
            from unsmooth.training.fast.add_norm import add_norm as ours

            kernels = lambda a, b, g: ours(Pending(a, b), g, None, 1e-12)  # noqa: E731
            self.say("sum + norm, ours", both(kernels, inputs), 0)

    def gate(self) -> None:
        """GELU of one half times the other."""
        hidden = self.random(self.rows, self.length, 4 * self.width)

        def gate(x: Tensor) -> Tensor:
            a, b = x.chunk(2, -1)
            return F.gelu(a) * b

        self.say("gate, compiled", both(compiled(gate, self.device), [hidden]))
        if self.device.type == "cuda":
            from unsmooth.training.fast.gelu import gate as our_gate

            self.say("gate, ours", both(our_gate, [hidden]), 0)

    def ends(self) -> None:
        """Loss, decoder and embedding, once a step."""
        count = self.rows * self.length // 4
        logits, targets = self.random(count, self.words), torch.randint(self.words, (count,), device=self.device)
        loss = compiled(lambda x, y: F.cross_entropy(x.float(), y), self.device)
        self.say("cross entropy, compiled", both(loss, [logits, targets]), 1)
        features, decoder = self.random(count, self.width), self.random(self.words, self.width)
        flop = 6.0 * count * self.width * self.words
        self.say("decoder, all three products", both(F.linear, [features, decoder]), 1, flop)
        table = self.random(self.words, self.width, half=False)
        ids = torch.randint(self.words, (self.rows, self.length), device=self.device)
        ids[:, : self.length // 5] = 4  # a fifth of all tokens is [MASK]
        self.say("embedding, compiled", both(compiled(lambda w, i: F.embedding(i, w), self.device), [table, ids]), 1)
        self.say("embedding, eager", both(lambda w, i: F.embedding(i, w), [table, ids]), 0)

    def update(self) -> None:
        """Clip and AdamW on as many numbers as the model has."""
        width = self.width
        sizes = [(3 * width, width), (width, width), (4 * width, width), (width, 2 * width)] * LAYERS
        parameters = [nn.Parameter(self.random(*s, half=False).detach()) for s in [*sizes, (self.words, width)]]
        how = {"fused": True, "capturable": True} if self.device.type == "cuda" else {}
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, **how)
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        self.say("clip", lambda: nn.utils.clip_grad_norm_(parameters, 0.5), 1)
        self.say("AdamW", optimizer.step, 1)


SHAPE, HALF = (512, 128, 768), {"device": "cuda", "dtype": torch.bfloat16}


def sweep() -> None:
    """Our kernels, each alone, with every strip or number of warps worth trying."""
    sweep_norm()
    sweep_gate()
    sweep_rotary()


def sweep_norm() -> None:
    """The sum with the norm that follows it, forward and backward."""
    from unsmooth.training.fast import add_norm
    from unsmooth.training.fast.strip import Strip

    device = torch.device("cuda")
    stream, gamma = torch.randn(SHAPE, device=device), torch.randn(768, device=device)
    mean, rstd = torch.empty(2, *SHAPE[:2], device=device)
    branch, out = torch.randn(SHAPE, **HALF), torch.empty_like(stream)
    normed, d_branch = torch.empty(2, *SHAPE, **HALF)
    for rows, warps in ((1, 2), (1, 4), (2, 4), (4, 4), (4, 8)):
        strip = Strip(rows, 0, warps)
        run = partial(
            add_norm.launch_add_norm, stream, branch, None, None, gamma, None, 1e-12, out, normed, mean, rstd, strip
        )
        print(f"add_norm {strip}: {milliseconds(run, device):.3f} ms", flush=True)
    choices = ((1, 4, 8, 1), (1, 4, 8, 3), (2, 4, 4, 2), (2, 4, 8, 1), (4, 8, 4, 1), (4, 8, 2, 2), (1, 2, 16, 2))
    for rows, warps, programs, stages in choices:
        strip = Strip(rows, 0, warps, programs, stages)
        sums = torch.empty(add_norm.add_norm_programs(out, strip), 1, 768, device=device)
        run = partial(
            add_norm.launch_add_norm_backward, stream, branch, out, mean, rstd, None, gamma, stream, d_branch, sums,
            strip,
        )  # fmt: skip
        print(f"add_norm_backward {strip}: {milliseconds(run, device):.3f} ms", flush=True)


def sweep_gate() -> None:
    """GELU of one half times the other."""
    from unsmooth.training.fast import gelu
    from unsmooth.training.fast.strip import Strip

    hidden, d_gated = torch.randn(*SHAPE[:2], 3072, **HALF), torch.randn(*SHAPE[:2], 1536, **HALF)
    for rows, columns, warps in ((8, 256, 4), (1, 1024, 4), (4, 512, 4), (4, 256, 4), (16, 128, 4), (2, 512, 4)):
        gelu.GATE = Strip(rows, columns, warps)
        forward, backward = (
            milliseconds(run, hidden.device)
            for run in (partial(gelu._gate, hidden), partial(gelu._gate_backward, hidden, d_gated))
        )
        print(f"gate {gelu.GATE}: {forward:.3f} and {backward:.3f} ms", flush=True)


def sweep_rotary() -> None:
    """Attention with rotary positions."""
    from unsmooth.training.fast import rotary

    branch, packed = torch.randn(SHAPE, **HALF), torch.randn(*SHAPE[:2], 2304, **HALF)
    cos, sin = torch.rand(2, 128, 32, device=packed.device)
    for warps in (4, 8, 16):
        rotary.FORWARD_WARPS = rotary.BACKWARD_WARPS = warps
        forward, backward = (
            milliseconds(run, packed.device)
            for run in (
                partial(rotary._rotary_attention, packed, cos, sin, None, 12),
                partial(rotary._rotary_attention_backward, packed, cos, sin, None, branch, 12),
            )
        )
        print(f"rotary attention, {warps} warps: {forward:.3f} and {backward:.3f} ms", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sweep", action="store_true")
    options = parser.parse_args()
    if options.sweep:
        sweep()
        return
    device = torch.device(options.device)
    parts = Parts(device, 512, 128, 768, 12, 32_768) if device.type == "cuda" else Parts(device, 2, 16, 32, 2, 64)
    print(header(device), flush=True)
    parts.products()
    print(f"products of the layers: {parts.total:.1f} ms a step", flush=True)
    parts.attention()
    parts.norms()
    parts.gate()
    parts.ends()
    parts.update()
    print(f"together: {parts.total:.1f} ms a step", flush=True)


if __name__ == "__main__":
    main()
