"""Run as a program with TRITON_INTERPRET=1: the kernels, interpreted on the CPU, beside PyTorch's functions.

Each line: what, for which shape, the largest difference of outputs and gradients, relative to the largest value.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from unsmooth.control import Variant
from unsmooth.training import Speed
from unsmooth.training.fast.add_norm import Pending, add_norm
from unsmooth.training.fast.attention import attention
from unsmooth.training.fast.encoder import FastEncoder, fits
from unsmooth.training.fast.gelu import gate, gelu
from unsmooth.training.fast.rotary import rotary_attention
from unsmooth.training.fast.shortcuts import Shortcuts
from unsmooth.training.fast.supports import supports
from unsmooth.training.tasks.images import RECIPES, build_model
from unsmooth.training.tasks.text.model import build_model as build_text_model
from unsmooth.training.tasks.text.model import masked_logits
from unsmooth.training.tasks.text.recipe import RECIPES as TEXT_RECIPES

# batch, tokens, heads, features: shorter than a tile, a whole number of tiles, one token over, nearly one more tile
ATTENTION = ((2, 5, 1, 16), (1, 64, 2, 16), (1, 65, 1, 64), (2, 127, 2, 16), (1, 257, 1, 32))
ROTARY = ((2, 5, 1, 16), (1, 16, 2, 32), (1, 100, 2, 16))  # shorter than a tile, a whole tile, most of one
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
    """Packed attention; of the last image all scores are far below zero, to which softmax is blind."""
    packed = torch.randn(batch, tokens, 3 * heads * dim)
    packed[-1, :, : heads * dim] += 36 * dim**-0.5
    packed[-1, :, heads * dim : 2 * heads * dim] -= 36 * dim**-0.5
    packed.requires_grad_()
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


def check_rotary(batch: int, tokens: int, heads: int, dim: int) -> float:
    """Packed attention with turned queries and keys."""
    packed = torch.randn(batch, tokens, 3 * heads * dim, requires_grad=True)
    angles = torch.outer(torch.arange(tokens).float(), 100.0 ** -(torch.arange(0, dim, 2) / dim))
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()

    def turned(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    q, k, v = packed.reshape(batch, tokens, 3, heads, dim).permute(2, 0, 3, 1, 4).unbind(0)
    expected = F.scaled_dot_product_attention(turned(q), turned(k), v).transpose(1, 2).flatten(2)
    whole = differences([rotary_attention(packed, angles.cos(), angles.sin(), heads)], [expected], [packed])
    ends = torch.tensor([tokens, 1 + tokens // 2][:batch], dtype=torch.int32)
    mask = (torch.arange(tokens) < ends[:, None])[:, None, None]
    padded = F.scaled_dot_product_attention(turned(q), turned(k), v, mask).transpose(1, 2).flatten(2)
    found = rotary_attention(packed, angles.cos(), angles.sin(), heads, ends)
    return max(whole, differences([found], [padded], [packed]))


def check_gate(batch: int, tokens: int, dim: int) -> float:
    """GELU of one half times the other."""
    hidden = (4 * torch.randn(batch, tokens, 2 * dim)).requires_grad_()
    first, second = hidden.chunk(2, -1)
    return differences([gate(hidden)], [F.gelu(first) * second], [hidden])


def check_bare_add_norm(batch: int, tokens: int, dim: int) -> float:
    """Without biases, and every path kept."""
    stream, branch, gamma = (torch.randn(shape) for shape in ((batch, tokens, dim), (batch, tokens, dim), (dim,)))
    inputs = [t.requires_grad_() for t in (stream, branch, gamma)]
    out = stream + branch
    expected = [out, F.layer_norm(out, (dim,), gamma, None, 1e-6)]
    return differences(add_norm(Pending(stream, branch), gamma, None, 1e-6), expected, inputs)


class Words:
    """As much of a tokenizer as a model needs."""

    pad_token_id, cls_token_id, sep_token_id = 0, 2, 3


def check_encoder(variant: str) -> float:
    """The loss and all gradients of a masked language model."""
    shape = "depth=3 width=64 heads=2 inner=48 length=20".split()  # noqa: SIM905
    model = Variant.parse(variant).apply(build_text_model(TEXT_RECIPES["small-text"].override(shape), 90, Words, 0))
    assert fits(model.train())
    inputs, targets = torch.randint(90, (3, 20)), torch.randint(90, (3, 5))
    positions = torch.rand(3, 20).argsort(1)[:, :5]

    def gradients(loss: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
        return [loss, *(g for g in found if bool(g.any()))]

    fast = FastEncoder(model, Speed(compile_mode=None), torch.float32)
    logits = masked_logits(model, inputs, positions)
    return distance(
        gradients(fast.loss(inputs, positions, targets)),
        gradients(F.cross_entropy(logits.flatten(0, 1), targets.flatten())),
    )


def check_features(tokens: int) -> float:
    """What an encoder makes of padded texts, shorter and longer than a tile."""
    recipe = TEXT_RECIPES["small-text"].override("depth=2 width=64 heads=2 inner=48".split())  # noqa: SIM905
    model = build_text_model(recipe, 90, Words, 0).model.train()
    inputs, mask = torch.randint(90, (2, tokens)), torch.arange(tokens) < torch.tensor([[tokens], [tokens // 3]])
    ours = FastEncoder(model, Speed(compile_mode=None), torch.float32).features(inputs, mask)
    expected = model(input_ids=inputs, attention_mask=mask.long()).last_hidden_state
    weight = torch.randn_like(expected) * mask[..., None]  # what stands at padding is nobody's business
    learned = list(model.parameters())
    gradients = [torch.autograd.grad((found * weight).sum(), learned) for found in (ours, expected)]
    return max(distance([ours[mask]], [expected[mask]]), distance(*gradients))


def check_model(variant: str, class_token: bool) -> float:
    """The loss and all gradients of a model with stochastic depth."""
    changes = ["depth=3", "width=48", "patch_size=16", "drop_path=0.5"]  # 5 tokens: each takes long when interpreted
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
    for shape in ROTARY:
        print("rotary", *shape, check_rotary(*shape))
    for shape in ROWS:
        print("gate", *shape, check_gate(*shape))
        print("bare_add_norm", *shape, check_bare_add_norm(*shape))
        print("gelu", *shape, check_gelu(*shape))
        print("add_norm", *shape, check_add_norm(*shape))
    for variant in ("plain", "sharpening"):
        print("encoder", variant, check_encoder(variant))
    for tokens in (20, 130):
        print("features", tokens, check_features(tokens))
    for variant in ("plain", "sharpening", "smoothing-split"):
        for class_token in (True, False):
            print("model", variant, class_token, check_model(variant, class_token))
