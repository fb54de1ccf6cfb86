"""Short cuts of the training step compute the same loss and gradients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from gradients import gradients
from torch import Tensor, nn

from unsmooth.control import Variant
from unsmooth.metrics.tolerance import tolerance
from unsmooth.training.fast.bf16_weights import BF16Weights, plain_linears
from unsmooth.training.fast.shortcuts import Shortcuts
from unsmooth.training.tasks.images import ImageRecipe, build_model

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")


def assert_same(found: tuple[Tensor, list[Tensor]], expected: tuple[Tensor, list[Tensor]], depth: int = 1) -> None:
    torch.testing.assert_close(found[0], expected[0])
    for ours, theirs in zip(found[1], expected[1], strict=True):
        if theirs is None:
            assert ours is None
            continue
        scale = float(theirs.abs().max()) + 1e-12
        assert float((ours - theirs).abs().max()) <= tolerance(theirs.dtype, 1000 * depth) * scale


@pytest.mark.parametrize("variant", ["plain", "sharpening", "smoothing-split", "sharpening-eigen", "sharpening@:1"])
def test_the_class_token_is_enough_for_the_same_gradients(variant: str, tiny_recipe: ImageRecipe) -> None:
    recipe = tiny_recipe.override(["drop_path=0.5", "qkv_bias=true"])
    model = Variant.parse(variant).apply(build_model(recipe, 0)).double().train()
    expected = gradients(model, model)
    short = Shortcuts(model, class_token=True)
    assert [type(module).__name__ for module, _ in short.swaps] == ["Block"]
    with short:
        assert_same(gradients(model, model), expected)
        assert model.forward_features(torch.zeros(2, 3, 32, 32).double()).shape[1] == 1  # the other tokens are gone
    assert_same(gradients(model, model), expected)


def test_dropped_paths_are_those_of_the_whole_block(tiny_recipe: ImageRecipe) -> None:
    model = build_model(tiny_recipe.override(["drop_path=0.9"]), 0).double().train()
    losses = set()
    for seed in range(6):
        expected = gradients(model, model, seed)
        with Shortcuts(model, class_token=True):
            assert_same(gradients(model, model, seed), expected)
        losses.add(float(expected[0].detach()))
    assert len(losses) > 1


@pytest.mark.parametrize("variant", ["contranorm", "featscale", "attnscale", "neutreno", "gfsa", "centered"])
def test_fixes_that_see_every_token_are_left_alone(variant: str, tiny_recipe: ImageRecipe) -> None:
    model = Variant.parse(variant).apply(build_model(tiny_recipe, 0)).train()
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
def test_where_the_kernels_do_not_run_attention_is_pytorchs(tiny_recipe: ImageRecipe) -> None:
    model = build_model(tiny_recipe.override(["width=48", "heads=3"]), 0)  # on the CPU, where Triton cannot
    with pytest.warns(UserWarning, match="PyTorch's kernels are used, since ours do not run on cpu: "):
        short = Shortcuts(model, class_token=True, tiled=True)
    assert (short.tiled, short.class_token, len(short.swaps)) == (False, True, 1)


def test_without_triton_attention_is_pytorchs(tiny_recipe: ImageRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_model(tiny_recipe.override(["width=48", "heads=3"]), 0)
    monkeypatch.setattr("unsmooth.training.fast.shortcuts._kernels_work", lambda *_: True)
    assert Shortcuts(model, class_token=True, tiled=True).tiled
    monkeypatch.undo()
    monkeypatch.setattr("unsmooth.training.fast.shortcuts.find_spec", lambda name: None)
    short = Shortcuts(model, class_token=True, tiled=True)
    assert (short.tiled, short.class_token, len(short.swaps)) == (False, True, 1)


@pytest.mark.parametrize(
    "options", [{}, {"init_values": 0.1}, {"proj_drop_rate": 0.1}, {"act_layer": nn.SiLU}, {"scale_mlp_norm": True}]
)
def test_only_blocks_of_the_plain_kind_are_fused(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.training.fast.shortcuts._kernels_work", lambda *_: True)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, embed_dim=48, **options)
    short = Shortcuts(model, class_token=True, tiled=True, fused=True)
    assert (short.class_token, short.tiled, short.fused) == (True, True, not options)
    assert [type(module).__name__ for module, _ in short.swaps] == (
        ["Block", "Attention"] if options else ["Block"] * 2
    )


@pytest.mark.parametrize("variant", ["contranorm", "featscale", "attnscale", "neutreno", "gfsa", "centered"])
def test_blocks_with_a_fix_are_not_fused(
    variant: str, tiny_recipe: ImageRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsmooth.training.fast.shortcuts._kernels_work", lambda *_: True)
    model = Variant.parse(variant).apply(build_model(tiny_recipe.override(["width=48", "heads=3"]), 0))
    assert not Shortcuts(model, class_token=True, tiled=True, fused=True).fused


def test_a_hook_on_attention_keeps_its_block_whole(tiny_recipe: ImageRecipe) -> None:
    model = build_model(tiny_recipe, 0)
    assert len(Shortcuts(model, class_token=True).swaps) == 1
    model.blocks[-1].attn.proj.register_forward_hook(lambda *_: None)  # type: ignore[union-attr, index]
    assert Shortcuts(model, class_token=True).swaps == []


def test_the_model_is_whole_again_after_an_error(tiny_recipe: ImageRecipe) -> None:
    model = build_model(tiny_recipe, 0)
    with pytest.raises(RuntimeError), Shortcuts(model, class_token=True):
        model(torch.zeros(1, 3, 32, 32).double())
    assert all("forward" not in vars(module) for module in model.modules())


def test_entering_again_compiles_nothing_again(tiny_recipe: ImageRecipe) -> None:
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
    if pytest.importorskip("triton").__version__.startswith("3.2."):  # torch 2.6's
        pytest.skip("triton 3.2 multiplies no tile narrower than 16, as half of a small rotary head is")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-W", "ignore", str(HERE / "kernels_twin.py")]
    run = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    works, *lines = [line.split() for line in run.stdout.splitlines()]
    assert works == ["works", "True"]
    text = {"rotary": 3, "gate": 3, "bare_add_norm": 3, "encoder": 2, "features": 2}
    assert Counter(line[0] for line in lines) == {"attention": 5, "gelu": 3, "add_norm": 3, "model": 6} | text
    for line in lines:
        assert float(line[-1]) < tolerance(torch.float32, 1000), line


def bf16_gradients(model: nn.Module, images: Tensor) -> list[Tensor | None]:
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        loss = model(images).float().logsumexp(-1).sum()
    loss.backward()
    return [p.grad for p in model.parameters()]


@needs_triton
def test_the_compilers_cache_sees_how_many_partial_sums_there_are() -> None:
    """An op whose results depended on a constant would be found in the cache after the constant has changed."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from unsmooth.training.fast.add_norm import Pending, add_norm
    from unsmooth.training.fast.gelu import gelu

    def passes(stream: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        out, normed = add_norm(Pending(stream, gelu(stream, bias), bias, torch.ones(2)), bias, bias, 1e-6)
        return torch.autograd.grad((out + normed).sum(), (stream, bias))

    inputs = [torch.randn(shape, requires_grad=True) for shape in ((2, 40, 16), (16,))]
    graph = make_fx(passes, tracing_mode="fake")(*inputs).graph
    found = {node.name: (node.args[-1], len(node.meta["val"][-1])) for node in graph.nodes if "backward" in node.name}
    assert set(found) == {"gelu_backward", "add_norm_backward"}
    assert all(said == there > 1 for said, there in found.values()), found


@pytest.mark.parametrize("variant", ["plain", "sharpening"])
def test_copies_of_the_weights_give_the_gradients_of_autocast_to_the_bit(
    variant: str, tiny_recipe: ImageRecipe
) -> None:
    model = Variant.parse(variant).apply(build_model(tiny_recipe.override(["drop_path=0"]), 0)).train()
    images = torch.randn(4, 3, 32, 32)
    expected = bf16_gradients(model, images)
    layers, halves = plain_linears(model), BF16Weights(plain_linears(model))
    assert len(layers) == (9 if variant == "plain" else 5)  # four a block, or two that control leaves alone; the head
    with torch.no_grad():
        for copy in halves.copies:
            copy.zero_()  # whatever happened to the weights meanwhile: entering rounds them anew
    for _ in range(2):
        with halves:
            assert layers[0].weight.dtype == torch.bfloat16
            bf16_gradients(model, images)
        halves.take_gradients()
        assert all(layer.weight is weight for layer, weight in zip(layers, halves.weights, strict=True))
        for (name, parameter), wanted in zip(model.named_parameters(), expected, strict=True):
            assert (wanted is None) == (parameter.grad is None), name
            assert wanted is None or (parameter.grad.dtype == torch.float32 and torch.equal(parameter.grad, wanted)), (
                name
            )


def test_shared_and_frozen_weights_have_no_copies() -> None:
    first, second, frozen, own = (nn.Linear(2, 2) for _ in range(4))
    second.weight = first.weight
    frozen.weight.requires_grad_(False)
    assert plain_linears(nn.Sequential(first, second, frozen, own)) == [own]
