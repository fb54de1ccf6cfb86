"""Families: adding one, finding the backbone inside a wrapper, and refusing what does not fit."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from model_cases import CASES, VISION, hf
from torch import Tensor, nn

import unsmooth
from unsmooth.errors import OptionError, UnknownModelError, UnsmoothError, WeightsError
from unsmooth.models import (
    AttentionRow,
    Family,
    Maps,
    Slot,
    capture_attention,
    check_attention,
    families,
    hook_points,
    into,
    out,
    register_family,
    unregister_family,
    view,
)

BY_NAME = {case.name: case for case in CASES}


class ToyBlock(nn.Module):
    """One head, one linear map: x + A x W, then x + GELU(x W)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.q, self.v, self.o = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim, bias=False)
        self.soft, self.ff, self.act = nn.Softmax(-1), nn.Linear(dim, dim), nn.GELU()
        self.heads = 1

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln(x)
        a = self.soft((self.q(y) @ y.mT)[:, None])
        x = x + self.o((a @ self.v(y)[:, None])[:, 0])
        return x + self.act(self.ff(x))


class Toy(nn.Module):
    """A universal transformer: the same block three times."""

    def __init__(self, dim: int = 6) -> None:
        super().__init__()
        self.embed_dim, self.depth = dim, 3
        self.block = nn.ModuleList([ToyBlock(dim)])

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = self.block[0](x)
        return x


TOY = Family(
    name="toy",
    classes=(Toy,),
    blocks="block",
    passes="depth",
    points={"norm1": out("ln"), "attn": out("o"), "mid": into("ff"), "mlp": out("act")},
    attention=AttentionRow(
        module="ln", value=Slot("v"), proj=Slot("o"), heads="heads", norm="ln", result=out("o"), maps=Maps(out("soft"))
    ),
)


@pytest.fixture
def toy() -> Iterator[Family]:
    yield register_family(TOY)
    unregister_family("toy")


def test_a_users_family_is_one_row(toy: Family) -> None:
    v = view(Toy())
    x: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(v, v.points, x.__setitem__):
        v.model(torch.randn(2, 5, 6))
    assert len(v.layers) == 3
    for i in range(3):
        assert torch.equal(x[f"blocks.{i}.pre"] + x[f"blocks.{i}.attn"], x[f"blocks.{i}.mid"])
        assert torch.equal(x[f"blocks.{i}.mid"] + x[f"blocks.{i}.mlp"], x[f"blocks.{i}.post"])
    seen: list[int] = []
    with capture_attention(v, lambda i, a: seen.append(i)):
        v.model(torch.randn(2, 5, 6))
    assert seen == [0, 1, 2]


def test_a_users_subclass_inside_a_wrapper_matches(toy: Family) -> None:
    class Special(Toy):
        pass

    assert view(nn.Sequential(nn.Identity(), Special())).family is toy


def test_registering_again_replaces_and_comes_first(toy: Family) -> None:
    again = register_family(Family(name="toy", classes=(Toy,), blocks="block", passes="depth"))
    assert families()[0] is again
    assert [f.name for f in families()].count("toy") == 1


def test_of_two_families_that_fit_the_last_registered_is_taken(toy: Family) -> None:
    other = register_family(replace(TOY, name="other-toy"))
    try:
        assert view(Toy()).family is other
    finally:
        unregister_family("other-toy")


def test_a_family_without_attention_says_so() -> None:
    register_family(Family(name="toy", classes=(Toy,), blocks="block", passes="depth"))
    try:
        v = view(Toy())
        assert v.points == tuple(f"blocks.{i}.{p}" for i in range(3) for p in ("pre", "post"))
        for use in (
            lambda: v.layers[0].weights(),
            lambda: check_attention(v, torch.randn(1, 3, 6)),
            lambda: capture_attention(v, print).__enter__(),
        ):
            with pytest.raises(WeightsError, match="family 'toy' gives no attention weights or matrices"):
                use()
    finally:
        unregister_family("toy")


def test_a_family_with_an_unknown_point_is_refused() -> None:
    with pytest.raises(OptionError, match=r"unknown point of a pre-norm block 'attention'.*'attn'"):
        Family(name="bad", classes=(Toy,), blocks="block", points={"attention": out("o")})


def test_an_unknown_model_names_the_nearest_families() -> None:
    class GPT2ModelNew(nn.Module):
        pass

    with pytest.raises(
        UnknownModelError,
        match=r"GPT2ModelNew\. Nearest families: hf-gpt2, .*\. Give .*find_family.*families\.md.*models\.md",
    ):
        view(GPT2ModelNew())


def test_what_is_no_transformer_has_no_nearest_family() -> None:
    import timm

    for model in (timm.create_model("resnet18"), nn.Linear(2, 2)):
        with pytest.raises(UnknownModelError, match="none of its modules is an attention or a Transformer") as error:
            view(model)
        assert "earest" not in str(error.value)


def test_an_attention_of_ones_own_is_told_where_all_families_are() -> None:
    class MyAttention(nn.Module):
        pass

    with pytest.raises(UnknownModelError, match=r"no family matches .*docs/models.md has all families"):
        view(nn.Sequential(MyAttention()))


@pytest.mark.parametrize(
    ("block", "options", "why"),
    [
        ("ParallelScalingBlock", {"fuse_out_proj": True}, "by one weight"),
        ("DiffParallelScalingBlock", {}, "by one weight"),
        ("ParallelThingsBlock", {}, "several attentions side by side"),
    ],
)
def test_blocks_without_an_attention_output_are_refused_by_name(block: str, options: dict[str, Any], why: str) -> None:
    from model_cases import _timm
    from timm.models import vision_transformer

    kind = getattr(vision_transformer, block, None)
    if kind is None or not set(options) <= set(inspect.signature(kind).parameters):
        pytest.skip(f"this timm has no {block} with {options}")
    with pytest.raises(
        UnknownModelError, match=rf"VisionTransformer is not supported: {block} \(at 'blocks\.0'\) .*{why}"
    ):
        view(_timm(block_fn=partial(kind, **options))())


@pytest.mark.parametrize("changes", [{"blocks": "nowhere"}, {"blocks": "embed_dim"}, {"passes": "nowhere"}])
def test_a_backbone_whose_blocks_are_elsewhere_is_refused(changes: dict[str, Any]) -> None:
    register_family(replace(TOY, **changes))
    try:
        with pytest.raises(UnknownModelError, match="Toy looks like toy, but its blocks do not: found no blocks"):
            view(Toy())
    finally:
        unregister_family("toy")


def test_of_nested_backbones_the_outermost_is_taken(toy: Family) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.toy = Toy()

    register_family(Family(name="outer", classes=(Outer,), blocks="toy.block", width="toy.embed_dim"))
    try:
        assert view(Outer()).family.name == "outer"
    finally:
        unregister_family("outer")


def test_prefix_tokens_are_summed_and_an_absent_count_is_none(toy: Family) -> None:
    register_family(replace(TOY, prefix=(2, "depth", "no_registers")))
    assert view(Toy()).prefix_tokens == 5


def test_a_family_that_says_no_width_and_has_no_weights_is_refused() -> None:
    register_family(Family(name="toy", classes=(Toy,), blocks="block", passes="depth", width="config.size"))
    try:
        with pytest.raises(UnknownModelError, match="family 'toy' gives no width: .*at 'config.size' of Toy"):
            view(Toy())
        register_family(replace(TOY, width="config.size"))
        assert view(Toy()).width == 6  # the weights tell
    finally:
        unregister_family("toy")


def test_a_variant_that_no_row_describes_is_refused_with_what_was_expected() -> None:
    falcon = hf("Falcon", alibi=True, parallel_attn=True, hidden_size=32, num_attention_heads=4, num_hidden_layers=1)
    with pytest.raises(
        UnknownModelError, match=r"expected config.parallel_attn = True and config.alibi = False and .* or "
    ):
        view(falcon())
    bloom = hf("Bloom", apply_residual_connection_post_layernorm=True, hidden_size=32, n_head=4, n_layer=1)
    with pytest.raises(UnknownModelError, match="expected apply_residual_connection_post_layernorm = False"):
        view(bloom())


def test_two_towers_are_refused_with_their_paths() -> None:
    both = nn.ModuleDict({"a": BY_NAME["bert"].model(), "b": BY_NAME["gpt2"].model()})
    with pytest.raises(UnknownModelError, match=r"holds 2 transformers: a \(hf-bert\), b \(hf-gpt2\)"):
        view(both)


def test_foreign_blocks_in_a_known_model_are_named() -> None:
    class MyBlock(nn.Module):
        pass

    model = BY_NAME["timm-vit"].model()
    model.blocks[1] = MyBlock()  # type: ignore[index]
    with pytest.raises(UnknownModelError, match=r"looks like timm-vit.*found Block, MyBlock\. .*register_family"):
        view(model)


def test_cross_attention_is_refused_with_what_was_expected() -> None:
    from model_cases import TEXT

    model = hf("Bert", is_decoder=True, add_cross_attention=True, **TEXT)()
    with pytest.raises(UnknownModelError, match="found BertLayer, expected crossattention = None"):
        view(model)


def test_of_a_clip_pair_one_tower_must_be_chosen() -> None:
    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    model = hf("CLIP", text_config={**text, "vocab_size": 50}, vision_config=VISION)()
    with pytest.raises(UnknownModelError, match=r"text_model \(hf-clip-text\), vision_model \(hf-clip-vision\)"):
        view(model)
    assert view(model.vision_model).family.name == "hf-clip-vision"
    assert view(model.text_model).family.name == "hf-clip-text"


def test_weights_alone_and_a_missing_input_get_the_hint_that_helps() -> None:
    with pytest.raises(UnknownModelError, match="got dict: weights alone do not say how they are used"):
        view({"weight": torch.zeros(2)})  # type: ignore[arg-type]

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.encoder(x + y)

    x = torch.randn(2, 3, 8)
    with pytest.raises(UnsmoothError, match=r"missing 1 required .*a dict gives a model several inputs by their names"):
        unsmooth.measure(Pair(), [x])
    assert unsmooth.measure(Pair(), [{"x": x, "y": x}], points="residual").samples == 2
