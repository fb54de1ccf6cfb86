"""Run as a program with TRITON_INTERPRET=1: the kernels, interpreted on the CPU, beside PyTorch's attention."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from unsmooth.train.fast.attention import attention, works_on

# batch, tokens, heads, features: shorter than a tile, a whole number of tiles, one token over, nearly one more tile
SHAPES = ((2, 5, 1, 16), (1, 64, 2, 16), (1, 65, 1, 64), (2, 127, 2, 16), (1, 257, 1, 32))


def errors(batch: int, tokens: int, heads: int, dim: int) -> tuple[float, float]:
    """The largest differences of the output and of the gradient, relative to the largest value."""
    torch.manual_seed(0)
    packed = torch.randn(batch, tokens, 3 * heads * dim, requires_grad=True)
    q, k, v = packed.reshape(batch, tokens, 3, heads, dim).permute(2, 0, 3, 1, 4).unbind(0)
    expected = scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    weight = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad(expected, packed, weight)
    found = attention(packed, heads)
    (gradient,) = torch.autograd.grad(found, packed, weight)
    return distance(found, expected), distance(gradient, wanted)


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((found - expected).abs().max() / expected.abs().max()).detach())


if __name__ == "__main__":
    print(works_on(torch.device("cpu"), 17, 2, 16))
    for shape in SHAPES:
        print(*shape, *errors(*shape))
