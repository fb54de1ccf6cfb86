"""Short cuts of the training step compute the same loss and gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from unsmooth.control import parameter_groups
from unsmooth.tolerance import tolerance
from unsmooth.train import Recipe, Speed, Trainer, build_model
from unsmooth.train.augment import draw_epoch
from unsmooth.train.fast.shortcuts import Shortcuts
from unsmooth.train.schedule import learning_rates
from unsmooth.train.variants import apply_variant

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def gradients(model: nn.Module, forward: Callable[[Tensor], Tensor], seed: int = 1) -> tuple[Tensor, list[Tensor]]:
    """Loss and gradients on a fixed batch; stochastic depth draws the same every time."""
    parameter = next(model.parameters())
    torch.manual_seed(0)
    images = torch.randn(4, 3, 32, 32, dtype=parameter.dtype).to(parameter.device)
    torch.manual_seed(seed)
    loss = forward(images).logsumexp(-1).sum()
    return loss, list(torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True))


def assert_same(found: tuple[Tensor, list[Tensor]], expected: tuple[Tensor, list[Tensor]], depth: int = 1) -> None:
    torch.testing.assert_close(found[0], expected[0])
    for ours, theirs in zip(found[1], expected[1], strict=True):
        if theirs is None:
            assert ours is None
            continue
        scale = float(theirs.abs().max()) + 1e-12
        assert float((ours - theirs).abs().max()) <= tolerance(theirs.dtype, 1000 * depth) * scale


@pytest.mark.parametrize("variant", ["plain", "sharpening", "smoothing-split", "sharpening-eigen", "sharpening@:1"])
def test_the_class_token_is_enough_for_the_same_gradients(variant: str, tiny_recipe: Recipe) -> None:
    recipe = tiny_recipe.override(["drop_path=0.5", "qkv_bias=true"])
    model = apply_variant(build_model(recipe, 0), variant).double().train()
    expected = gradients(model, model)
    short = Shortcuts(model, class_token=True)
    assert [type(module).__name__ for module, _ in short.swaps] == ["Block"]
    with short:
        assert_same(gradients(model, model), expected)
        assert model.forward_features(torch.zeros(2, 3, 32, 32).double()).shape[1] == 1  # the other tokens are gone
    assert_same(gradients(model, model), expected)


def test_dropped_paths_are_those_of_the_whole_block(tiny_recipe: Recipe) -> None:
    model = build_model(tiny_recipe.override(["drop_path=0.9"]), 0).double().train()
    losses = set()
    for seed in range(6):
        expected = gradients(model, model, seed)
        with Shortcuts(model, class_token=True):
            assert_same(gradients(model, model, seed), expected)
        losses.add(float(expected[0].detach()))
    assert len(losses) > 1


@pytest.mark.parametrize("variant", ["contranorm", "featscale", "attnscale", "neutreno", "gfsa", "centered"])
def test_fixes_that_see_every_token_are_left_alone(variant: str, tiny_recipe: Recipe) -> None:
    model = apply_variant(build_model(tiny_recipe, 0), variant).train()
    expected = gradients(model, model)
    with Shortcuts(model, class_token=True):
        assert_same(gradients(model, model), expected)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("options", [{"global_pool": "map"}, {"qk_norm": True}, {"attn_drop_rate": 0.1}])
def test_other_models_are_left_alone(options: dict[str, Any], tiled: bool) -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=48, **options)
    assert Shortcuts(model, class_token=True, tiled=tiled).swaps == []


def test_a_head_that_averages_tokens_needs_them_all() -> None:
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=48, global_pool="avg", class_token=False
    )
    assert Shortcuts(model, class_token=True).swaps == []


@needs_triton
def test_where_the_kernels_do_not_run_attention_is_pytorchs(tiny_recipe: Recipe) -> None:
    model = build_model(tiny_recipe.override(["width=48", "heads=3"]), 0)  # on the CPU, where Triton cannot
    with pytest.warns(UserWarning, match="PyTorch's kernels are used, since ours do not run on cpu: "):
        short = Shortcuts(model, class_token=True, tiled=True)
    assert (short.tiled, short.class_token, len(short.swaps)) == (False, True, 1)


def test_without_triton_attention_is_pytorchs(tiny_recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(tiny_recipe.override(["width=48", "heads=3"]), 0)
    monkeypatch.setattr("unsmooth.train.fast.shortcuts._kernels_work", lambda *_: True)
    assert Shortcuts(model, class_token=True, tiled=True).tiled
    monkeypatch.undo()
    monkeypatch.setattr("unsmooth.train.fast.shortcuts.find_spec", lambda name: None)
    short = Shortcuts(model, class_token=True, tiled=True)
    assert (short.tiled, short.class_token, len(short.swaps)) == (False, True, 1)


@pytest.mark.parametrize(
    "options", [{}, {"init_values": 0.1}, {"proj_drop_rate": 0.1}, {"act_layer": nn.SiLU}, {"scale_mlp_norm": True}]
)
def test_only_blocks_of_the_plain_kind_are_fused(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.train.fast.shortcuts._kernels_work", lambda *_: True)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=48, **options)
    short = Shortcuts(model, class_token=True, tiled=True, fused=True)
    assert (short.class_token, short.tiled, short.fused) == (True, True, not options)
    assert [type(module).__name__ for module, _ in short.swaps] == (
        ["Block", "Attention"] if options else ["Block"] * 2
    )


@pytest.mark.parametrize("variant", ["contranorm", "featscale", "attnscale", "neutreno", "gfsa", "centered"])
def test_blocks_with_a_fix_are_not_fused(variant: str, tiny_recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.train.fast.shortcuts._kernels_work", lambda *_: True)
    model = apply_variant(build_model(tiny_recipe.override(["width=48", "heads=3"]), 0), variant)
    assert not Shortcuts(model, class_token=True, tiled=True, fused=True).fused


def test_a_hook_on_attention_keeps_its_block_whole(tiny_recipe: Recipe) -> None:
    model = build_model(tiny_recipe, 0)
    assert len(Shortcuts(model, class_token=True).swaps) == 1
    model.blocks[-1].attn.proj.register_forward_hook(lambda *_: None)  # type: ignore[union-attr, index]
    assert Shortcuts(model, class_token=True).swaps == []


def test_the_model_is_whole_again_after_an_error(tiny_recipe: Recipe) -> None:
    model = build_model(tiny_recipe, 0)
    with pytest.raises(RuntimeError), Shortcuts(model, class_token=True):
        model(torch.zeros(1, 3, 32, 32).double())
    assert all("forward" not in vars(module) for module in model.modules())


def test_entering_again_compiles_nothing_again(tiny_recipe: Recipe) -> None:
    compiled: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compiled.append(graph)
        return graph.forward

    model = build_model(tiny_recipe.override(["drop_path=0"]), 0).train()
    forward = torch.compile(lambda x: model(x), backend=backend, fullgraph=True)
    short = Shortcuts(model, class_token=True)
    for _ in range(3):
        with short:
            assert_same(gradients(model, forward), gradients(model, model))
    assert len(compiled) == 1


@needs_triton
def test_the_interpreted_kernels_compute_what_pytorch_does() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-W", "ignore", str(HERE / "kernels_twin.py")]
    run = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    works, *lines = [line.split() for line in run.stdout.splitlines()]
    assert works == ["works", "True"]
    assert Counter(line[0] for line in lines) == {"attention": 5, "gelu": 3, "add_norm": 3, "model": 6}
    for line in lines:
        assert float(line[-1]) < tolerance(torch.float32, 1000), line


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@needs_cuda
@pytest.mark.parametrize("tokens", [5, 64, 65, 257])
def test_the_kernels_are_as_exact_as_pytorchs(tokens: int) -> None:
    from torch.nn.functional import scaled_dot_product_attention

    from unsmooth.train.fast.attention import attention

    torch.manual_seed(0)
    packed = torch.randn(4, tokens, 3 * 3 * 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
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

    for ours, reference in zip(errors(attention(packed, 3)), errors(theirs(packed)), strict=True):
        assert ours < 1.2 * reference


@needs_cuda
def test_rows_are_as_exact_as_pytorchs() -> None:
    from torch.nn.functional import gelu as their_gelu
    from torch.nn.functional import layer_norm

    from unsmooth.train.fast.rows import Pending, add_norm, gelu

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


@needs_cuda
@pytest.mark.filterwarnings("ignore")  # the compiler's advice on a model this small
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_captured_epoch_sees_the_batches_of_an_eager_one(precision: str, tiny_recipe: Recipe) -> None:
    """Augmenting ahead, on another stream, must neither skip nor repeat a batch."""
    recipe = tiny_recipe.override(["drop_path=0", "width=48", "heads=3", f"precision={precision}"])
    torch.manual_seed(0)
    pixels = torch.randint(256, (6 * recipe.batch_size, 3, 32, 32), dtype=torch.uint8, device="cuda")
    labels = torch.arange(len(pixels), device="cuda") % recipe.classes
    rates, losses = learning_rates(recipe, 6, recipe.epochs), []
    for speed in (Speed(compile_mode=None, graph=False, attention=None, class_token=False), Speed()):
        model = build_model(recipe, 0).cuda()
        trainer = Trainer(model, parameter_groups(model, 0.05), pixels, labels, recipe, rates, speed)
        plans = [draw_epoch(len(pixels), recipe, 0, e) for e in range(3)]
        losses.append([float(trainer.run_epoch(plan, seed=0)) for plan in plans])
        assert int(trainer.done) == 18
    assert losses[1] == pytest.approx(losses[0], rel=1e-5 if precision == "float32" else 1e-2)


@needs_cuda
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_tiled_attention_gives_the_gradients_of_pytorchs(variant: str, fused: bool, tiny_recipe: Recipe) -> None:
    recipe = tiny_recipe.override(["width=48", "heads=3", "patch_size=2"])  # 257 tokens, heads of 16
    model = apply_variant(build_model(recipe, 0), variant).cuda().train()

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
