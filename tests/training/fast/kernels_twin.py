"""Run as a program with TRITON_INTERPRET=1: the kernels, interpreted on the CPU, beside PyTorch's functions.

Each line: what, for which shape, the largest difference of outputs and gradients, relative to the largest value.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from unsmooth.control import Variant
from unsmooth.training.fast.attention import attention
from unsmooth.training.fast.rows import Pending, add_norm, gelu
from unsmooth.training.fast.shortcuts import Shortcuts
from unsmooth.training.fast.supports import supports
from unsmooth.training.tasks.images import RECIPES, build_model

# batch, tokens, heads, features: shorter than a tile, a whole number of tiles, one token over, nearly one more tile
ATTENTION = ((2, 5, 1, 16), (1, 64, 2, 16), (1, 65, 1, 64), (2, 127, 2, 16), (1, 257, 1, 32))
ROWS = ((1, 3, 16), (2, 5, 48), (3, 9, 192))  # batch, tokens, features: powers of 2 and not


def distance(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of any pair, relative to its largest value."""
    pairs = zip(found, expected, strict=True)
    return max(float(((a - b).abs().max() / b.abs().max()).detach()) for a, b in pairs)


def differences(ours: Sequence[Tensor], theirs: Sequence[Tensor], inputs: Sequence[Tensor]) -> float:
    """Of outputs, and of gradients for random weights of the outputs."""
    weights = [torch.randn_like(out) for out in theirs]
    gradients = [torch.autograd.grad(outputs, inputs, weights) for outputs in (ours, theirs)]
    return max(distance(ours, theirs), distance(*gradients))


def check_attention(batch: int, tokens: int, heads: int, dim: int) -> float:
    """Packed attention."""
    packed = torch.randn(batch, tokens, 3 * heads * dim, requires_grad=True)
    q, k, v = packed.reshape(batch, tokens, 3, heads, dim).permute(2, 0, 3, 1, 4).unbind(0)
    expected = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    return differences([attention(packed, heads)], [expected], [packed])


def check_gelu(batch: int, tokens: int, dim: int) -> float:
    """Bias and GELU, far into both tails."""
    hidden, bias = (4 * torch.randn(shape) for shape in ((batch, tokens, 4 * dim), (4 * dim,)))
    hidden.requires_grad_(), bias.requires_grad_()
    return differences([gelu(hidden, bias)], [F.gelu(hidden + bias)], [hidden, bias])


def check_add_norm(batch: int, tokens: int, dim: int) -> float:
    """Residual sum and LayerNorm; one image's path is dropped."""
    stream, branch = (3 + torch.randn(batch, tokens, dim) for _ in range(2))
    bias, gamma, beta = (torch.randn(dim) for _ in range(3))
    inputs = [t.requires_grad_() for t in (stream, branch, bias, gamma, beta)]
    keep = 1.25 * (torch.arange(batch) > 0)
    ours = add_norm(Pending(stream, branch, bias, keep), gamma, beta, 1e-6)
    out = stream + keep[:, None, None] * (branch + bias)
    return differences(ours, [out, F.layer_norm(out, (dim,), gamma, beta, 1e-6)], inputs)


def check_model(variant: str, class_token: bool) -> float:
    """The loss and all gradients of a model with stochastic depth."""
    changes = ["depth=3", "width=48", "patch_size=8", "drop_path=0.5"]
    model = Variant.parse(variant).apply(build_model(RECIPES["cifar100"].override(changes), 0)).train()
    images = torch.randn(4, 3, 32, 32)

    def gradients() -> list[Tensor]:
        torch.manual_seed(3)
        loss = model(images).logsumexp(-1).sum()
        found = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
        return [loss, *(g for g in found if g is not None and bool(g.any()))]

    expected = gradients()
    short = Shortcuts(model, class_token=class_token, tiled=True, fused=True)
    assert (short.class_token, short.tiled, short.fused) == (class_token, True, True)
    with short:
        return distance(gradients(), expected)


if __name__ == "__main__":
    torch.manual_seed(0)
    print("works", supports(torch.device("cpu"), 17, 2, 16))
    for shape in ATTENTION:
        print("attention", *shape, check_attention(*shape))
    for shape in ROWS:
        print("gelu", *shape, check_gelu(*shape))
        print("add_norm", *shape, check_add_norm(*shape))
    for variant in ("plain", "sharpening", "smoothing-split"):
        for class_token in (True, False):
            print("model", variant, class_token, check_model(variant, class_token))
