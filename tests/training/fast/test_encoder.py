"""Attention of the text encoder on texts longer than a tile, beside softmax attention written out in float64."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from unsmooth.metrics.tolerance import tolerance
from unsmooth.training import Speed
from unsmooth.training.fast.encoder import FastEncoder
from unsmooth.training.tasks.text.model import build_model
from unsmooth.training.tasks.text.recipe import RECIPES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
HEADS = 2


def masked_attention(
    qkv: Float[Tensor, "row token packed"],
    cos: Float[Tensor, "token half"],
    sin: Float[Tensor, "token half"],
    ends: Int64[Tensor, " row"],
    dtype: torch.dtype,
) -> Float[Tensor, "row token dim"]:
    """Row by row and head by head: keys behind a row's end are not there.

    Queries and keys are rounded to `dtype` after they are turned, as between the two steps of a GPU.
    """
    found = []
    for row, end in zip(qkv, ends.tolist(), strict=True):
        for q, k, v in row.unflatten(-1, (3, HEADS, -1)).permute(2, 1, 0, 3).unbind(0):
            halves = (x.chunk(2, -1) for x in (q, k))
            q, k = (torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(dtype).double() for a, b in halves)
            scores = q @ k[:end].T / q.shape[-1] ** 0.5
            found.append(scores.softmax(-1) @ v[:end])
    return torch.stack(found).unflatten(0, (len(qkv), HEADS)).transpose(1, 2).flatten(2)


def fast_encoder(dim: int, dtype: torch.dtype) -> FastEncoder:
    shape = [f"width={HEADS * dim}", f"heads={HEADS}", "depth=1", "inner=8"]
    words = SimpleNamespace(pad_token_id=0, cls_token_id=1, sep_token_id=2)
    model = build_model(RECIPES["small-text"].override(shape), 10, words, 0)
    return FastEncoder(model, Speed(compile_mode=None), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dim", [32, 128])
@pytest.mark.parametrize("tokens", [129, 200, 255])
@pytest.mark.parametrize("size", [1.0, 8.0])  # of queries and keys: scores up to hundreds
def test_padding_of_long_texts_is_not_attended_to(tokens: int, dim: int, dtype: torch.dtype, size: float) -> None:
    torch.manual_seed(0)
    ends = torch.tensor([tokens, tokens - 1, 128, 1])
    scale = torch.tensor([size, size, 1.0]).repeat_interleave(HEADS * dim)
    qkv = (scale * torch.randn(len(ends), tokens, 3 * HEADS * dim)).to(dtype).requires_grad_()
    encoder, weight = fast_encoder(dim, dtype), torch.randn(len(ends), tokens, HEADS * dim, dtype=torch.float64)
    cos, sin = encoder._angles(tokens, torch.device("cpu"))
    found = encoder._attention(qkv, cos, sin, ends.int())
    gradient = torch.autograd.grad((found * weight).sum(), qkv)[0]

    exact = qkv.detach().double().requires_grad_()
    expected = masked_attention(exact, cos.double(), sin.double(), ends, dtype)
    wanted = torch.autograd.grad((expected * weight).sum(), exact)[0]
    allowed = max(tolerance(dtype, 1), tolerance(torch.float32, 100))  # scores reach hundreds
    for ours, theirs in ((found, expected), (gradient, wanted)):
        assert float(((ours - theirs).abs().max() / theirs.abs().max()).detach()) < allowed
    for row, end in enumerate(ends.tolist()):  # keys and values of padding learn nothing
        assert not gradient[row, end:, HEADS * dim :].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_nothing_but_padding_stays_finite(dtype: torch.dtype) -> None:
    qkv = torch.randn(2, 200, 3 * HEADS * 32).to(dtype).requires_grad_()
    encoder = fast_encoder(32, dtype)
    found = encoder._attention(qkv, *encoder._angles(200, torch.device("cpu")), torch.tensor([0, 200]).int())
    assert found.isfinite().all()
    assert torch.autograd.grad(found.sum(), qkv)[0].isfinite().all()
