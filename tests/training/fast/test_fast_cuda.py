"""The kernels of the training step on a GPU: as exact as PyTorch's, and a captured epoch is an epoch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gradients import gradients
from torch import Tensor

from unsmooth.control import Variant
from unsmooth.training import Speed, Trainer
from unsmooth.training.engine.step import attention_backend
from unsmooth.training.fast.shortcuts import Shortcuts
from unsmooth.training.tasks.images import RECIPES, ImageRecipe, ImageSet, ImageTask, build_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("tokens", [5, 64, 65, 197, 257])
def test_the_kernels_are_as_exact_as_pytorchs(tokens: int, low: bool) -> None:
    """Also where all scores of a query are far below zero (`low`): softmax is blind to that, exponentials are not."""
    from torch.nn.functional import scaled_dot_product_attention

    from unsmooth.training.fast.attention import attention

    torch.manual_seed(0)
    packed = torch.randn(4, tokens, 3 * 3 * 64, device="cuda", dtype=torch.bfloat16)
    if low:  # scores near −128, where 2^(0 − their log₂-sum) is infinite
        packed[..., : 3 * 64] += 4
        packed[..., 3 * 64 : 6 * 64] -= 4
    packed.requires_grad_()
    weight = torch.randn(4, tokens, 3 * 64, device="cuda", dtype=torch.bfloat16)

    def theirs(x: Tensor) -> Tensor:
        q, k, v = x.reshape(4, tokens, 3, 3, 64).permute(2, 0, 3, 1, 4).unbind(0)
        return scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

    exact = packed.detach().double().requires_grad_()
    wanted = theirs(exact)
    (wanted_gradient,) = torch.autograd.grad(wanted, exact, weight.double())

    def errors(out: Tensor) -> tuple[float, float]:
        (gradient,) = torch.autograd.grad(out, packed, weight)
        return distance(out.detach(), wanted.detach()), distance(gradient, wanted_gradient)

    reference = _rounded(packed.detach(), weight, wanted, wanted_gradient) if low else errors(theirs(packed))
    for ours, usual in zip(errors(attention(packed, 3)), reference, strict=True):
        assert ours < 1.2 * usual


def _rounded(packed: Tensor, weight: Tensor, wanted: Tensor, gradient: Tensor) -> tuple[float, float]:
    """The errors of exact arithmetic on operands rounded to bfloat16, as any flash attention rounds them.

    Where scores are low PyTorch's fused backward pass gives NaN, and its unfused one rounds nothing but its results.
    """

    def rounded(x: Tensor) -> Tensor:
        return x.bfloat16().double()

    batch, tokens, _ = packed.shape
    q, k, v = packed.double().reshape(batch, tokens, 3, 3, 64).permute(2, 0, 3, 1, 4).unbind(0)
    d_out = weight.double().reshape(batch, tokens, 3, 64).transpose(1, 2)
    weights = (q @ k.mT / 8).softmax(-1)
    out = rounded(rounded(weights) @ v)
    d_scores = rounded(weights * (d_out @ v.mT - (d_out * out).sum(-1, keepdim=True)))
    parts = [rounded(x) for x in (d_scores @ k / 8, d_scores.mT @ q / 8, rounded(weights).mT @ d_out)]
    found = torch.stack(parts).permute(1, 3, 0, 2, 4).reshape(gradient.shape)
    return distance(out.transpose(1, 2).flatten(2), wanted.detach()), distance(found, gradient)


def test_rows_are_as_exact_as_pytorchs() -> None:
    from torch.nn.functional import gelu as their_gelu
    from torch.nn.functional import layer_norm

    from unsmooth.training.fast.add_norm import Pending, add_norm
    from unsmooth.training.fast.gelu import gelu

    torch.manual_seed(0)
    stream, branch = (torch.randn(8, 257, 192, device="cuda") for _ in range(2))
    bias, gamma, beta, keep = (torch.rand(n, device="cuda") + 0.5 for n in (192, 192, 192, 8))
    leaves = [t.requires_grad_() for t in (stream, branch.bfloat16(), bias, gamma, beta)]
    ours = add_norm(Pending(*leaves[:3], keep), *leaves[3:], 1e-6)
    exact = [t.detach().double().requires_grad_() for t in leaves]
    out = exact[0] + keep.double()[:, None, None] * (exact[1] + exact[2])
    theirs = (out, layer_norm(out, (192,), *exact[3:], 1e-6))
    weights = [torch.randn_like(t) for t in ours]
    found = torch.autograd.grad(ours, leaves, weights)
    wanted = torch.autograd.grad(theirs, exact, [w.double() for w in weights])
    for a, b in zip((*ours, *found), (*theirs, *wanted), strict=True):
        assert distance(a.detach(), b.detach()) < (2e-6 if a.dtype == torch.float32 else 2.5e-3)
    hidden = (4 * torch.randn(8, 257, 768, device="cuda")).bfloat16().requires_grad_()
    wide = torch.randn(768, device="cuda", requires_grad=True)
    exact = [t.detach().double().requires_grad_() for t in (hidden, wide)]
    mine, reference = gelu(hidden, wide), their_gelu(exact[0] + exact[1])
    weight = torch.randn_like(mine)
    found = torch.autograd.grad(mine, (hidden, wide), weight)
    wanted = torch.autograd.grad(reference, exact, weight.double())
    for a, b in zip((mine, *found), (reference, *wanted), strict=True):
        assert distance(a.detach(), b.detach()) < (2e-6 if a.dtype == torch.float32 else 2.5e-3)


@pytest.mark.filterwarnings("ignore")  # the compiler's advice on a model this small
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_captured_epoch_sees_the_batches_of_an_eager_one(precision: str, tiny_recipe: ImageRecipe) -> None:
    """Augmenting ahead, on another stream, must neither skip nor repeat a batch."""
    recipe = tiny_recipe.override(["drop_path=0", "width=48", "heads=3", f"precision={precision}"])
    torch.manual_seed(0)
    pixels = torch.randint(256, (6 * recipe.batch_size, 3, 32, 32), dtype=torch.uint8, device="cuda")
    labels = torch.arange(len(pixels), device="cuda") % recipe.classes
    losses = []
    for speed in (Speed(compile_mode=None, graph=False, shortcuts=()), Speed()):
        task = ImageTask(recipe, build_model(recipe, 0).cuda(), ImageSet(pixels, labels))
        trainer, rates, stream = Trainer(task, speed), task.rates(task.total), task.stream(0)
        losses.append([float(trainer.run_chunk(next(stream), rates[6 * e : 6 * e + 6], seed=0)) for e in range(3)])
        assert trainer.done == 18
    assert losses[1] == pytest.approx(losses[0], rel=1e-5 if precision == "float32" else 1e-2)


@pytest.mark.filterwarnings("ignore")  # the compiler's advice on a model this small
@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_a_captured_step_serves_the_next_seed(variant: str, tiny_recipe: ImageRecipe) -> None:
    recipe = tiny_recipe.override(["width=48", "heads=3", "drop_path=0.3"])
    pixels = torch.randint(256, (6 * recipe.batch_size, 3, 32, 32), dtype=torch.uint8, device="cuda")
    labels = torch.arange(len(pixels), device="cuda") % recipe.classes

    def task(seed: int) -> ImageTask:
        model = Variant.parse(variant).apply(build_model(recipe, seed), None, seed).cuda()
        return ImageTask(recipe, model, ImageSet(pixels.roll(seed, 0), labels.roll(seed, 0)), seed=seed)

    def losses(trainer: Trainer) -> list[float]:
        found, rates, stream = trainer.task, trainer.task.rates(trainer.task.total), trainer.task.stream(0)
        chunks = rates[: 3 * found.chunk].split(found.chunk)
        return [float(trainer.run_chunk(next(stream), part, seed=number)) for number, part in enumerate(chunks)]

    trainer = Trainer(task(0))
    first = losses(trainer)
    other = losses(Trainer(task(1)))  # forgets what was compiled for the first
    assert trainer.takes_over(task(1))
    assert losses(trainer) == pytest.approx(other, rel=1e-4)
    assert trainer.takes_over(task(0))
    assert losses(trainer) == pytest.approx(first, rel=1e-4)
    assert first != pytest.approx(other, rel=1e-4)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_tiled_attention_gives_the_gradients_of_pytorchs(variant: str, fused: bool, tiny_recipe: ImageRecipe) -> None:
    recipe = tiny_recipe.override(["width=48", "heads=3", "patch_size=2"])  # 257 tokens, heads of 16
    model = Variant.parse(variant).apply(build_model(recipe, 0)).cuda().train()

    def forward(x: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            out: Tensor = model(x)
        return out.float()

    expected = gradients(model, forward)
    short = Shortcuts(model, class_token=True, tiled=True, fused=fused)
    assert short.fused is fused
    assert len(short.swaps) == len(model.blocks)  # type: ignore[arg-type]
    with short:
        found = gradients(model, forward)
    for ours, theirs in zip(found[1], expected[1], strict=True):
        if theirs is not None:
            assert float((ours - theirs).norm()) <= 0.05 * float(theirs.norm()) + 1e-6


@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_biases_of_keys_that_have_drifted_far_leave_gradients_as_they_are(variant: str) -> None:
    """Softmax does not see them, so nothing holds them: all scores may become very low. 65 tokens, no whole tiles."""
    recipe = RECIPES["tiny-imagenet"].override(["depth=2", "width=128", "heads=2", "batch_size=8", "drop_path=0"])
    model = Variant.parse(variant).apply(build_model(recipe, 0)).cuda().train()
    with torch.no_grad():
        for block in model.blocks:  # type: ignore[union-attr]
            block.attn.qkv.bias[:128] += 5
            block.attn.qkv.bias[128:256] -= 5
    images = torch.randn(8, 3, 64, 64, device="cuda")
    learned = [p for p in model.parameters() if p.requires_grad]

    def flat(half: bool) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = model(images).float().logsumexp(-1).sum()
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, learned)])

    with attention_backend("MATH"):
        exact, theirs = flat(half=False), flat(half=True)
    short = Shortcuts(model, class_token=True, tiled=True, fused=True)
    assert short.fused
    with short:
        ours = flat(half=True)
    assert distance(ours, exact) < 1.3 * distance(theirs, exact)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler looks at it
@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_a_text_step_by_short_cuts_learns_what_autocast_does(variant: str) -> None:
    """Loss and gradients beside those in float32: no further from them than those of PyTorch's autocast."""
    from unsmooth.training.engine.precision import autocast
    from unsmooth.training.fast.encoder import FastEncoder, fits
    from unsmooth.training.tasks.text.model import build_model as build_text_model
    from unsmooth.training.tasks.text.model import masked_logits
    from unsmooth.training.tasks.text.recipe import RECIPES

    class Words:
        pad_token_id, cls_token_id, sep_token_id = 0, 2, 3

    recipe = RECIPES["small-text"].override(["depth=3", "width=128", "heads=2", "inner=128"])
    model = Variant.parse(variant).apply(build_text_model(recipe, 500, Words, 0)).cuda().train()
    assert fits(model)
    inputs, targets = torch.randint(500, (16, 128), device="cuda"), torch.randint(500, (16, 32), device="cuda")
    positions = torch.rand(16, 128, device="cuda").argsort(1)[:, :32]
    learned = [p for p in model.parameters() if p.requires_grad]
    fast = FastEncoder(model, Speed())

    def theirs() -> Tensor:
        logits = masked_logits(model, inputs, positions).float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def flat(half: bool, loss: Callable[[], Tensor]) -> Tensor:
        with autocast(torch.device("cuda"), "bf16" if half else "float32"):
            value = loss()
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, learned)] + [value.detach().view(1)])

    exact = flat(False, theirs)
    ours = flat(True, lambda: fast.loss(inputs, positions, targets))
    assert distance(ours, exact) < 1.3 * distance(flat(True, theirs), exact)
    assert abs(float(ours[-1] - exact[-1])) < 0.02


def test_a_captured_step_adds_up_gradients_as_an_eager_one_does(tmp_path: Path) -> None:
    """Three steps share an update; random tokens."""
    from dataclasses import replace

    import numpy as np

    from unsmooth.sources.shards import write_shards
    from unsmooth.training.tasks.text.corpus import Corpus
    from unsmooth.training.tasks.text.model import build_model as build_text_model
    from unsmooth.training.tasks.text.recipe import RECIPES
    from unsmooth.training.tasks.text.task import TextTask

    class Words:
        pad_token_id, cls_token_id, sep_token_id, mask_token_id = 0, 2, 3, 4

    small = RECIPES["small-text"].override(
        ["depth=2", "width=64", "heads=2", "inner=64", "batch_size=8", "precision=float32"]
    )
    recipe = replace(small, grow=3, chunk=6, every=6, steps=12)
    ids = np.random.default_rng(0).integers(5, 300, 200 * recipe.length)
    shards = write_shards([ids], tmp_path / "tokens", length=recipe.length, vocabulary=300, key="random")
    losses = []
    for graph in (True, False):
        model = build_text_model(recipe, 300, Words, 0).cuda()
        trainer = Trainer(
            TextTask(recipe, model, Corpus(Words(), shards, shards)), Speed(compile_mode=None, graph=graph)
        )
        trainer.together, stream = 3, trainer.task.stream(0)
        losses.append([float(trainer.run_chunk(next(stream), torch.full((6,), 1e-2), seed=0)) for _ in range(3)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert losses[0][2] < losses[0][0]
