"""Models as people write them by hand, with names that no row knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

D, HEADS, VOCAB = 32, 4, 50


class Normed(nn.Module):
    """nanoGPT's LayerNorm, which says its epsilon nowhere, or an RMSNorm."""

    def __init__(self, rms: bool = False) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(D)), None if rms else nn.Parameter(torch.zeros(D))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (D,), self.weight, self.bias, 1e-5)


class ScaleNorm(nn.Module):
    """Llama's RMSNorm as it is written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.eps, self.weight = 1e-6, nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class RMSNorm(ScaleNorm):
    """By a name that says what it is."""


class LayerNorm(Normed):
    """By a name that says what it is."""


class Mixer(nn.Module):
    """Fused queries, keys and values, and the softmax by torch's function or by hand."""

    def __init__(self, fused: bool, causal: bool) -> None:
        super().__init__()
        self.n_head, self.fused, self.causal = HEADS, fused, causal
        self.qkv, self.leave, self.drop = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            if self.causal:
                scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
            y = self.drop(scores.softmax(-1)) @ v
        return self.leave(y.transpose(1, 2).flatten(2))


class Grouped(nn.Module):
    """Llama's attention by hand: maps of their own, two value heads for four queries."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.n_kv = HEADS, 2
        self.wq, self.wk, self.wv = (nn.Linear(D, n, bias=False) for n in (D, D // 2, D // 2))
        self.wo = nn.Linear(D, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (-1, D // HEADS)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        k, v = (y.repeat_interleave(self.n_heads // self.n_kv, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class OneHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(D, D // HEADS) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.query(x) @ self.key(x).mT).softmax(-1) @ self.value(x)


class HeadByHead(nn.Module):
    """A list of heads with maps of their own, as in a well-known lecture: no weight holds all values."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.proj = nn.ModuleList(OneHead() for _ in range(HEADS)), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


class TorchMixer(nn.Module):
    """torch's attention inside a module, tokens first."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(D, HEADS)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class Layer(nn.Module):
    """x + γ·mix(n1(x)), x + γ·think(n2(x)), or with the norms behind the sums."""

    def __init__(self, mix: nn.Module, norm: Callable[[], nn.Module], post: bool, scaled: bool) -> None:
        super().__init__()
        self.mix, self.n1, self.n2, self.post = mix, norm(), norm(), post
        self.think = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.gamma = nn.Parameter(torch.full((D,), 0.3)) if scaled else 1.0

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            x = self.n1(x + self.gamma * self.mix(x))
            return self.n2(x + self.gamma * self.think(x))
        x = x + self.gamma * self.mix(self.n1(x))
        return x + self.gamma * self.think(self.n2(x))


class Beside(nn.Module):
    """x + mix(n1(x)) + think(n2(x)), or with one norm; the MLP comes first if it is asked to."""

    def __init__(self, shared: bool = False, think_first: bool = False) -> None:
        super().__init__()
        self.mix, self.n1, self.n2 = Mixer(True, True), nn.LayerNorm(D), nn.Identity() if shared else nn.LayerNorm(D)
        self.think = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))
        self.shared, self.think_first = shared, think_first

    def forward(self, x: Tensor) -> Tensor:
        n1 = self.n1(x)
        if self.think_first:
            added = self.think(self.n2(x))
            return x + self.mix(n1) + added
        added = self.mix(n1)
        return x + added + self.think(n1 if self.shared else self.n2(x))


class OnTokens(Layer):
    """OPT's block: its MLP works on a list of tokens."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.n1(x))
        y = x.flatten(0, 1)
        return (y + self.think(self.n2(y))).view(x.shape)


class Normalising(nn.Module):
    """vit_pytorch's attention, which normalises its own input; `behind` has the norm on its output instead."""

    def __init__(self, mix: nn.Module, behind: bool = False) -> None:
        super().__init__()
        self.norm, self.fn, self.behind = nn.LayerNorm(D), mix, behind

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.fn(x)) if self.behind else self.fn(self.norm(x))


class OwnNorm(Mixer):
    def __init__(self) -> None:
        super().__init__(True, False)
        self.norm = nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


class Pairs(nn.Module):
    """vit_pytorch's Transformer: lists of parts, whose sums stand in the forward of what holds them."""

    def __init__(self, parts: Callable[[], list[nn.Module]]) -> None:
        super().__init__()
        self.layers, self.norm = nn.ModuleList(nn.ModuleList(parts()) for _ in range(3)), nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        for parts in self.layers:
            if len(parts) == 2:
                attn, ff = parts
                x = attn(x) + x
                x = ff(x) + x
            else:
                norm1, attn, norm2, ff = parts
                x = attn(norm1(x)) + x
                x = ff(norm2(x)) + x
        return self.norm(x)


def thinking(*first: nn.Module) -> nn.Module:
    """An MLP, behind what is given."""
    return nn.Sequential(*first, nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))


class Words(nn.Module):
    """A language model with a head, whose layers stand in a dictionary of modules."""

    def __init__(
        self, mix: Callable[[], nn.Module], norm: Callable[[], nn.Module] = LayerNorm, *, post: bool = False,
        scaled: bool = False, tokens_first: bool = False, layers: Iterable[nn.Module] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens_first = tokens_first
        self.parts = nn.ModuleDict({
            "words": nn.Embedding(VOCAB, D),
            "drop": nn.Dropout(0.1),
            "stack": nn.ModuleList((Layer(mix(), norm, post, scaled) for _ in range(3)) if layers is None else layers),
            "end": nn.LayerNorm(D),
        })  # fmt: skip
        self.head = nn.Linear(D, VOCAB)

    def forward(self, ids: Tensor) -> tuple[Tensor, None]:
        x = self.parts["drop"](self.parts["words"](ids.t() if self.tokens_first else ids))
        for layer in self.parts["stack"]:
            x = layer(x)
        return self.head(self.parts["end"](x)), None


class Pictures(nn.Module):
    """A ViT with a class token and a register."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.extra = nn.Conv2d(3, D, 4, 4), nn.Parameter(torch.randn(1, 2, D))
        self.blocks = nn.Sequential(*(Layer(Mixer(True, False), LayerNorm, False, True) for _ in range(3)))

    def forward(self, images: Tensor) -> Tensor:
        patches = self.cut(images).flatten(2).mT
        return self.blocks(torch.cat([self.extra.expand(len(images), -1, -1), patches], 1))[:, 0]


def random_weights(model: nn.Module) -> nn.Module:
    """Every parameter random, also those that start at 0 or 1."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.eval()
