"""Modules that call F.scaled_dot_product_attention show their matrices without knowing of us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import unsmooth
from unsmooth.errors import WeightsError
from unsmooth.models import (
    AttentionRow,
    Family,
    Slot,
    capture_attention,
    check_attention,
    into,
    out,
    register_family,
    sdpa_maps,
    unregister_family,
    view,
)
from unsmooth.models.sdpa import attention_matrix


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, calls: int = 1) -> None:
        super().__init__()
        self.heads, self.calls = heads, calls
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        for _ in range(self.calls):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, calls: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(dim), Attention(dim, heads, calls)
        self.ln_2, self.mlp = nn.LayerNorm(dim), nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    def __init__(self, dim: int = 12, heads: int = 3, depth: int = 2, calls: int = 1) -> None:
        super().__init__()
        self.dim = dim
        self.h = nn.ModuleList(Block(dim, heads, calls) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.h:
            x = block(x)
        return x


ROW = Family(
    name="sdpa-decoder",
    classes=(Decoder,),
    blocks="h",
    points={
        "norm1": out("ln_1"), "attn": out("attn"), "mid": into("ln_2"), "norm2": out("ln_2"), "mlp": out("mlp"),
    },
    width="dim",
    causal=True,
    attention=AttentionRow(
        module="attn", value=Slot("attn.qkv", part=2, of=3), proj=Slot("attn.out"), heads="attn.heads", norm="ln_1",
        maps=sdpa_maps(),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _row() -> Iterator[None]:
    register_family(ROW)
    yield
    unregister_family(ROW.name)


def test_the_matrices_are_those_of_the_fused_function() -> None:
    model, x = Decoder().eval(), torch.randn(2, 5, 12)
    seen: dict[int, Tensor] = {}
    with torch.no_grad():
        plain = model(x)
        with capture_attention(view(model), seen.__setitem__):
            shown = model(x)
    assert torch.equal(plain, shown)
    assert list(seen) == [0, 1]
    for a in seen.values():
        assert torch.allclose(a.sum(-1), torch.ones(2, 3, 5))
        assert torch.equal(a, a.tril())
    assert check_attention(view(model), x) < 1e-5  # A·V·W_O is the module's output


def test_such_a_model_is_explained_from_its_row_alone() -> None:
    explanation = unsmooth.explain(Decoder().eval(), [torch.randn(2, 5, 12)])
    assert len(explanation.by_layer()) == 2


def test_a_module_that_calls_it_twice_is_refused() -> None:
    model = Decoder(calls=2).eval()
    with pytest.raises(WeightsError, match=r"layer 0 of sdpa-decoder: expected .* once, it did 2 times"):
        check_attention(view(model), torch.randn(1, 5, 12))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"mask": "bool"}, {"mask": "float"}])
def test_the_definition_is_pytorchs(options: dict[str, object]) -> None:
    q, k, v = torch.randn(3, 2, 4, 6, 8, dtype=torch.float64)
    mask = options.pop("mask", None)
    if mask is not None:
        allowed = torch.rand(2, 1, 6, 6) < 0.7
        allowed |= torch.eye(6, dtype=torch.bool)
        options["attn_mask"] = allowed if mask == "bool" else torch.randn(2, 1, 6, 6, dtype=torch.float64)
    a = attention_matrix(q, k, v, **options)  # type: ignore[arg-type]
    assert torch.allclose(a @ v, F.scaled_dot_product_attention(q, k, v, **options))  # type: ignore[arg-type]


def test_shared_key_value_heads_are_repeated() -> None:
    q, (k, v) = torch.randn(1, 4, 5, 8), torch.randn(2, 1, 2, 5, 8)
    y = attention_matrix(q, k, v, enable_gqa=True) @ v.repeat_interleave(2, 1)
    assert torch.allclose(y, F.scaled_dot_product_attention(q, k, v, enable_gqa=True), atol=1e-6)
