"""Attention matrices: masks, restoration, layer choice, and the check that catches a wrong row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from model_cases import CASES, Case, every_case
from torch import Tensor, nn

from unsmooth.errors import WeightsError
from unsmooth.models import ModelView, Slot, capture_attention, check_attention, register_family, view
from unsmooth.models.family import Family
from unsmooth.models.forward import call
from unsmooth.models.registry import _FAMILIES

BY_NAME = {case.name: case for case in CASES}


def maps_of(v: ModelView, batch: Any) -> dict[int, Tensor]:
    maps: dict[int, Tensor] = {}
    with torch.no_grad(), capture_attention(v, maps.__setitem__):
        call(v.model, batch)
    return maps


def state_of(model: nn.Module) -> list[object]:
    """Everything that capturing touches."""
    return [
        (m.training, getattr(m, "fused_attn", None), len(m._forward_hooks), len(m._forward_pre_hooks))
        + ((m.config._attn_implementation,) if hasattr(m, "config") else ())
        for m in model.modules()
    ] + [torch.backends.mha.get_fastpath_enabled()]


@every_case()
def test_everything_is_restored(case: Case) -> None:
    v = view(case.model().train())
    before = state_of(v.model)

    def fail(i: int, a: Tensor) -> None:
        raise RuntimeError("stop")

    with torch.no_grad(), pytest.raises(RuntimeError, match="stop"), capture_attention(v, fail):
        call(v.model, case.inputs())
    assert state_of(v.model) == before
    check_attention(v, case.inputs())  # captures, and restores when nothing fails
    assert state_of(v.model) == before


MASKED = [case for case in CASES if isinstance(case.batch(), dict) and "attention_mask" in case.batch()]
MASKED_TEXT = [case for case in MASKED if set(case.batch()) & {"input_ids"} and "pixel_values" not in case.batch()]


@every_case(MASKED_TEXT)
def test_padded_keys_get_no_attention(case: Case) -> None:
    v = case.seen()
    inputs = case.inputs()
    kept = inputs["attention_mask"].bool()
    for a in maps_of(v, inputs).values():
        rows = a.transpose(1, 2)[kept]  # queries that are content
        batch = torch.arange(2)[:, None].expand_as(kept)[kept]
        assert (rows.masked_fill(kept[batch][:, None, :], 0) == 0).all()


@every_case([case for case in MASKED if case not in MASKED_TEXT and "pixel_values" not in case.batch()])
def test_padded_sound_gets_no_attention(case: Case) -> None:
    """Frames are fewer than samples: of the padded sound, the last ones are seen by nobody, the others by all."""
    v = view(case.model())
    for whole, padded in maps_of(v, case.inputs()).values():
        assert (whole > 0).all()
        seen = (padded > 0).all(0).all(0)
        assert 0 < int(seen.sum()) < len(seen)
        assert (seen.int().diff() <= 0).all()
        assert (padded[..., ~seen] == 0).all()


@pytest.mark.parametrize("name", ["vilt", "layoutlmv3-picture"])
def test_padded_text_before_patches_gets_no_attention(name: str) -> None:
    case = BY_NAME[name]
    kept = case.inputs()["attention_mask"].bool()
    for a in maps_of(view(case.model()), case.inputs()).values():
        text = a[..., : kept.shape[1]]
        assert ((text > 0).all(1).all(1) == kept).all()
        assert (a[..., kept.shape[1] :] > 0).all()


def test_a_sliding_window_hides_what_is_behind_it() -> None:
    case = BY_NAME["gemma3"]
    maps = maps_of(view(case.model()), case.inputs())
    for layer, sliding in enumerate([True, False, True]):
        assert bool((maps[layer].tril(-4) == 0).all()) == sliding


def test_the_relative_position_bias_is_in_the_matrices() -> None:
    case = BY_NAME["mpnet"]
    model: Any = case.model()
    before = maps_of(view(model), case.inputs())
    with torch.no_grad():
        model.encoder.relative_attention_bias.weight.mul_(3)
    after = maps_of(view(model), case.inputs())
    assert not torch.allclose(before[0], after[0], atol=1e-3)


def test_only_the_layers_asked_for_come() -> None:
    case = BY_NAME["timm-vit"]
    v = view(case.model())
    seen: list[int] = []
    with capture_attention(v, lambda i, a: seen.append(i), layers=[2, 0]):
        assert not v.layers[0].attention.fused_attn
        assert v.layers[1].attention.fused_attn
        call(v.model, case.inputs())
    assert seen == [0, 2]


def test_a_layer_that_does_not_exist_is_refused() -> None:
    v = view(BY_NAME["timm-vit"].model())
    with pytest.raises(WeightsError, match="expected layers 0 to 2 of timm-vit, got 3"):
        capture_attention(v, print, layers=[3]).__enter__()


@pytest.mark.parametrize("layers", [None, [1, 3]])
def test_shared_layers_show_a_matrix_per_pass(layers: list[int] | None) -> None:
    case = BY_NAME["albert-groups"]
    v = view(case.model())
    maps: dict[int, Tensor] = {}
    with torch.no_grad(), capture_attention(v, maps.__setitem__, layers=layers):
        call(v.model, case.inputs())
    assert sorted(maps) == (layers or list(range(10)))
    assert v.layers[1].block is v.layers[3].block
    assert not torch.equal(maps[1], maps[3])


def _with_row(name: str, **changes: Any) -> tuple[ModelView, Case]:
    """A view through a family whose attention row is wrong."""
    case = BY_NAME[name]
    family = view(case.model()).family
    assert family.attention is not None
    register_family(replace(family, attention=replace(family.attention, **changes)))
    return view(case.model()), case


@pytest.fixture
def families() -> Any:
    kept: list[Family] = list(_FAMILIES)
    yield
    _FAMILIES[:] = kept


@pytest.mark.usefixtures("families")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"value": Slot("attn.qkv", part=1, of=3)},
            r"layer 0 of timm-vit: .* misses .* by [0-9.e+-]+ of the summed.* adapters",
        ),
        ({"value": Slot("attn.qkv", part=2, of=3, bias="none")}, "misses"),
        ({"proj": Slot("attn.proj", bias="none")}, "misses"),
        ({"proj": Slot("attn.proj", transposed=True)}, "misses"),
        ({"value": Slot("attn.values")}, r"keeps no plain weight at attn\.values\.weight .*: merge adapters"),
        ({"heads": "attn.head_dim"}, r"expected attention matrices of shape \(batch, 8 heads"),
        ({"heads": "attn.proj"}, "expected a number of heads at 'attn.proj'"),
        ({"maps": None}, "gives no attention matrices: its row has no Maps"),
        ({"module": "attn.num_heads"}, "has no attention module at 'attn.num_heads'"),
    ],
)
def test_a_wrong_row_is_caught(changes: dict[str, Any], message: str) -> None:
    v, case = _with_row("timm-vit", **changes)
    with pytest.raises(WeightsError, match=message):
        check_attention(v, case.inputs())


@pytest.mark.usefixtures("families")
def test_a_matrix_that_is_never_shown_is_an_error() -> None:
    attention = view(BY_NAME["bert"].model()).family.attention
    assert attention is not None
    assert attention.maps is not None
    v, case = _with_row("bert", maps=replace(attention.maps, settings={}, backbone_settings={}))
    with pytest.raises(WeightsError, match="got none: its attention module does not show the matrix"):
        check_attention(v, case.inputs())


def test_left_padding_under_a_causal_mask_still_checks() -> None:
    case = BY_NAME["llama"]
    mask = torch.ones(2, 7, dtype=torch.long)
    mask[0, :3] = 0
    batch = {**case.inputs(), "attention_mask": mask}
    assert check_attention(view(case.model()), batch) < 1e-5


def test_attention_is_exact_in_a_model_that_was_eager_already() -> None:
    case = BY_NAME["bert"]
    model: Any = case.model()
    model.set_attn_implementation("eager")
    check_attention(view(model), case.inputs())
    assert model.config._attn_implementation == "eager"
