"""Each published fix in a whole ViT, against its paper's formula in loops over images, heads and tokens.

This says where a fix acts as well as what it computes: before or after the projection, LayerScale and the residual sum.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from control.cases import images, vit
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from unsmooth.control import FIXES, apply_fix
from unsmooth.control.fixes.base import LayerShape
from unsmooth.control.fixes.contranorm import ContraNorm
from unsmooth.control.optimiser_groups import parameter_groups

OPTIONS: dict[str, dict[str, float]] = {
    "contranorm": {"scale": 0.3, "temperature": 0.7},
    "neutreno": {"strength": 0.4},
    "gfsa": {"order": 4, "identity": 0.1},
}


def pushed(x: Tensor, scale: float, temperature: float) -> Tensor:
    """ContraNorm of the tokens of one image, without its LayerNorm."""
    rows = []
    for i in range(len(x)):
        weights = torch.stack([(x[i] @ y / (x[i].norm() * y.norm()) / temperature).exp() for y in x])
        rows.append(x[i] - scale * sum(w * y for w, y in zip(weights / weights.sum(), x, strict=True)))
    return torch.stack(rows)


def matrix(name: str, fix: Any, head: int, a: Tensor) -> Tensor:
    """A' of one head."""
    n = len(a)
    rows = []
    for i in range(n):
        for j in range(n):
            if name == "attnscale":
                rows.append(1 / n + (1 + fix.omega[head]) * (a[i, j] - 1 / n))
            elif name == "centered":
                rows.append(a[i, j] - 1 / n)
            elif name == "gfsa":
                square = sum(a[i, k] * a[k, j] for k in range(n))
                power = a[i, j] + 3 * (square - a[i, j])
                rows.append(0.1 * (i == j) + a[i, j] + fix.wk[head] * power)
            else:
                rows.append(a[i, j])
    return torch.stack(rows).reshape(n, n)


def attended(name: str, attention: Any, x: Tensor, first: list[Tensor]) -> Tensor:
    """Multi-head attention over the tokens of one image; `first` holds the values of the first layer's heads."""
    heads = attention.num_heads
    q, k, v = (part.chunk(heads, -1) for part in attention.qkv(x).chunk(3, -1))
    mixed = []
    for h in range(heads):
        a = (q[h] @ k[h].T / q[h].shape[-1] ** 0.5).softmax(-1)
        out = matrix(name, getattr(attention, "fix", None), h, a) @ v[h]
        if name == "neutreno":
            if len(first) < heads:
                first.append(v[h])  # and nothing is added in the first layer
            else:
                out = out + 0.4 * (first[h] - v[h])
        mixed.append(out)
    y: Tensor = attention.proj(torch.cat(mixed, -1))
    if name == "featscale":
        low = sum(y) / len(y)
        y = torch.stack([row + low * attention.fix.s + (row - low) * attention.fix.t for row in y])
    return y


def slow(name: str, model: Any, image: Tensor) -> Tensor:
    """The whole model on one image: the last norm is not changed."""
    x = model._pos_embed(model.patch_embed(image[None]))[0]
    first: list[Tensor] = []
    for block in model.blocks:
        given = pushed(x, 0.3, 0.7) if name == "contranorm" else x  # `forward` alone runs no hook
        x = x + block.ls1.gamma * attended(name, block.attn, block.norm1.forward(given), first)
        given = pushed(x, 0.3, 0.7) if name == "contranorm" else x
        x = x + block.ls2.gamma * block.mlp(block.norm2.forward(given))
    y: Tensor = model.head(model.norm(x)[0])
    return y


@pytest.mark.parametrize("name", FIXES)
def test_a_fixed_vit_computes_the_formula_of_the_paper(name: str) -> None:
    """Gradients too: NeuTRENO's V⁰ and ContraNorm's similarities pass them on."""
    model: Any = apply_fix(vit(depth=3, init_values=0.5).double().eval(), name, **OPTIONS.get(name, {}))
    torch.manual_seed(0)
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    batch = images(dtype=torch.float64)
    fast, expected = model(batch), torch.stack([slow(name, model, image) for image in batch])
    torch.testing.assert_close(fast, expected, rtol=1e-6, atol=1e-8)
    weights = list(model.blocks.parameters())
    for found, right in zip(*(torch.autograd.grad(y[:, 0].sum(), weights) for y in (fast, expected)), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-7)


def test_contranorm_of_the_papers_bert_is_ours_with_another_scale() -> None:
    x, scale = torch.randn(2, 9, 24, dtype=torch.float64), 0.25
    ours = ContraNorm(LayerShape(0, 1, 24, 3), scale=scale / (1 + scale))(x)
    bert = torch.stack([y * scale + pushed(y, scale, 1.0) for y in x])
    torch.testing.assert_close(layer_norm(ours, (24,), eps=0.0), layer_norm(bert, (24,), eps=0.0))


@pytest.mark.parametrize("name", ["attnscale", "featscale", "gfsa"])
def test_what_a_fix_learns_does_not_decay(name: str) -> None:
    """As in the authors' runs: timm's groups leave vectors alone."""
    model = apply_fix(vit(), name)
    learned = [p for key, p in model.named_parameters() if ".fix." in key]
    assert len(learned) == 2 * (2 if name == "featscale" else 1)  # GFSA learns w_K alone
    assert all(p.ndim == 1 for p in learned)
    spared = {id(p) for p in parameter_groups(model, 0.1)[1]["params"]}
    assert {id(p) for p in learned} <= spared


@pytest.mark.parametrize("name", ["attnscale", "gfsa"])
def test_weights_that_version_0_1_saved_still_load(name: str) -> None:
    model, copy = (apply_fix(vit(), name) for _ in range(2))
    old = {k: torch.rand_like(v)[:, None, None] if ".fix." in k else v for k, v in model.state_dict().items()}
    copy.load_state_dict(old)
    for key, value in copy.state_dict().items():
        assert torch.equal(value, old[key].reshape(value.shape))
