"""A row that is found by numbers says what a row written by hand says; where none can be found, why."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from handwritten import (
    VOCAB,
    D,
    Grouped,
    HeadByHead,
    Layer,
    LayerNorm,
    Mixer,
    Pictures,
    RMSNorm,
    TorchMixer,
    Words,
    random_weights,
)
from model_cases import CASES
from torch import Tensor, nn

import unsmooth
from unsmooth.errors import ForwardError, UnknownModelError, WeightsError
from unsmooth.models import ModelView, find_family, hook_points, register_family, unregister_family, view
from unsmooth.models.forward import call
from unsmooth.models.view import view_as

BY_NAME = {case.name: case for case in CASES}
#: Of every kind of block that can be found: where norms stand, how weights are fused, what multiplies a branch.
FOUND = [
    "timm-vit", "timm-registers", "timm-respost", "torchvision-vit", "hf-vit", "hf-dinov2-registers", "hf-beit",
    "hf-clip-vision", "bert-padded", "distilbert", "mpnet", "modernbert", "gpt2", "llama-lm", "qwen3", "gemma2",
    "olmo2", "granite", "phi3", "persimmon", "gpt-neox-sequential", "bloom", "esm", "t5gemma",
]  # fmt: skip


def points(v: ModelView, batch: Any) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(v, v.points, lambda point, x: seen.update({point: x.clone()})):
        call(v.model, batch)
    return seen


@pytest.mark.parametrize("name", FOUND)
def test_a_found_row_says_what_the_familys_row_says(name: str) -> None:
    case = BY_NAME[name]
    ours, batch = case.seen(), case.inputs()
    found = view_as(ours.model, ours.model, find_family(ours.model, batch))
    expected, seen = points(ours, batch), points(found, batch)
    for point in seen.keys() & expected.keys():
        torch.testing.assert_close(seen[point], expected[point], rtol=0, atol=0, msg=point)
    assert {p for p in expected if p.startswith("blocks.2")} == {p for p in seen if p.startswith("blocks.2")}
    assert (found.causal, found.prefix_tokens, found.width) == (ours.causal, ours.prefix_tokens, ours.width)
    for a, b in zip(ours.layers, found.layers, strict=True):
        w, x = a.weights(), b.weights()
        torch.testing.assert_close(x.w_v @ x.w_proj, w.w_v @ w.w_proj, rtol=0, atol=0)
        for p, q in ((x.norm, w.norm), (x.out_norm, w.out_norm), (x.post_norm, w.post_norm)):
            assert (p and (p.kind, p.eps)) == (q and (q.kind, q.eps))
            assert p is None or q is None or p.weight is q.weight is None or torch.equal(p.weight, q.weight)
        assert (x.out_scale is None) == (w.out_scale is None)


@pytest.mark.parametrize(
    ("build", "placement", "causal"),
    [
        (lambda: Words(lambda: Mixer(True, True)), "pre", True),
        (lambda: Words(lambda: Mixer(False, True), scaled=True), "pre", True),
        (lambda: Words(lambda: Mixer(False, False), post=True), "post", False),
        (lambda: Words(Grouped, RMSNorm), "pre", True),
    ],
    ids=["nanogpt", "by-hand-scaled", "post", "llama"],
)
def test_a_model_written_by_hand_is_measured_explained_and_attributed(
    build: Callable[[], nn.Module], placement: str, causal: bool
) -> None:
    torch.manual_seed(0)
    model, ids = random_weights(build()), torch.randint(VOCAB, (2, 9))
    with pytest.raises(UnknownModelError, match=r"register_family\(unsmooth\.find_family\(model, batch\)\)"):
        unsmooth.measure(model, [ids])
    try:
        unsmooth.register_family(unsmooth.find_family(model, ids))
        v = view(model)
        assert (v.family.placement, v.causal, v.width, len(v.layers)) == (placement, causal, D, 3)
        assert v.points[0] == "embed"
        assert v.points[-1] == "final_norm"
        states = points(v, ids)
        measured = unsmooth.measure(model, [ids], metrics="hfc_lfc").frame().set_index("point")["mean"]
        for point, x in states.items():
            mean = x.double().mean(1, keepdim=True)
            ratio = (x - mean).norm(dim=(1, 2)) / mean.expand_as(x).norm(dim=(1, 2))
            assert measured[point] == pytest.approx(ratio.mean().item(), rel=1e-5)
        assert len(unsmooth.explain(model, [ids]).frame())
        assert len(unsmooth.attribute(model, [ids]).frame())
    finally:
        unregister_family("found")


def test_tokens_before_the_patches_are_found_by_running_another_picture() -> None:
    torch.manual_seed(0)
    row = find_family(random_weights(Pictures()), torch.randn(2, 3, 16, 16))
    assert (row.prefix, row.causal) == ((2,), False)
    assert row.attention is not None
    assert row.attention.scale == "gamma"


def test_heads_with_maps_of_their_own_are_measured_and_not_explained() -> None:
    torch.manual_seed(0)
    model, ids = random_weights(Words(HeadByHead)), torch.randint(VOCAB, (2, 9))
    try:
        assert register_family(find_family(model, ids)).attention is None
        assert len(unsmooth.measure(model, [ids]).frame())
        with pytest.raises(WeightsError, match="its row has no AttentionRow"):
            unsmooth.explain(model, [ids])
    finally:
        unregister_family("found")


def test_torchs_attention_inside_a_module_is_found_with_its_order_of_axes() -> None:
    torch.manual_seed(0)
    model, ids = random_weights(Words(TorchMixer, tokens_first=True)), torch.randint(VOCAB, (2, 9))
    v = view_as(model, model, find_family(model, ids))
    assert not v.batch_first
    assert points(v, ids)["embed"].shape == (2, 9, D)


def test_what_cannot_be_found_is_told_with_the_reason() -> None:
    class Inline(nn.Module):
        """Attention without a module of its own, whose sum no output of a module makes."""

        def __init__(self) -> None:
            super().__init__()
            self.n, self.mlp = nn.LayerNorm(D), nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            y = self.n(x)
            x = x + (y @ y.mT / D).softmax(-1) @ y
            return x + self.mlp(x)

    class Holder(nn.Module):
        def __init__(self, *stacks: nn.Module) -> None:
            super().__init__()
            self.stacks = nn.ModuleDict({f"s{i}": stack for i, stack in enumerate(stacks)})

        def forward(self, x: Tensor) -> Tensor:
            for stack in self.stacks.values():
                x = stack(x)
            return x

    def layers() -> nn.Module:
        return nn.Sequential(*(Layer(Mixer(True, True), LayerNorm, False, False) for _ in range(2)))

    class Trained(nn.Module): ...

    x, trained = torch.randn(2, 5, D), Trained()
    trained.add_module("net", Inline())
    with pytest.raises(UnknownModelError, match=r"no two outputs of modules add up so in stacks\.s0 \(Inline\)"):
        find_family(Holder(nn.Sequential(Inline(), Inline())), x)
    with pytest.raises(ForwardError, match=r"no forward of its own: give the part that has one \(model\.net\)"):
        find_family(trained, x)
    with pytest.raises(UnknownModelError, match=r"expected a torch module.*give its \.model"):
        find_family(SimpleNamespace(model=trained), x)  # type: ignore[arg-type]
    with pytest.raises(UnknownModelError, match="no list of modules runs so"):
        find_family(Holder(nn.LayerNorm(D)), x)
    with pytest.raises(UnknownModelError, match=r"2 stacks of blocks: stacks\.s0 \(Layer\), stacks\.s1"):
        find_family(random_weights(Holder(layers(), layers())), x)
    with pytest.raises(UnknownModelError, match="were given 1 token: give two or more"):
        find_family(random_weights(Words(Grouped)), torch.ones(2, 1, dtype=torch.long))
    with pytest.raises(UnknownModelError, match="Sequential is a class of torch.*a class of its own"):
        find_family(layers(), x)
