"""Attention matrices that are formed a few rows at a time explain the same as those that are held."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from unsmooth.analysis import Explainer, explain
from unsmooth.models import capture_attention, view
from unsmooth.models.sdpa import SdpaMatrices


def llama(padding: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        intermediate_size=32, attn_implementation="sdpa",
    )  # fmt: skip
    return transformers.LlamaModel(config).double().eval(), text(padding)


def bert(padding: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32,
        attn_implementation="sdpa",
    )  # fmt: skip
    return transformers.BertModel(config).double().eval(), text(padding)


def text(padding: bool) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 40, (3, 11))
    mask = torch.ones_like(ids)
    if padding:
        mask[1, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def vit(padding: bool) -> tuple[nn.Module, torch.Tensor]:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=48, embed_dim=24, depth=2, num_heads=3, num_classes=0, init_values=0.3
    )
    return model.double().eval(), torch.randn(2, 3, 48, 48, dtype=torch.float64)


def same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    assert len(ours) == len(theirs) > 0
    for row, other in zip(ours, theirs, strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            expected = other[name] if isinstance(value, str) else pytest.approx(other[name], 1e-6, 1e-9, nan_ok=True)
            assert value == expected, name


@pytest.mark.parametrize(
    ("make", "padding"), [(llama, False), (llama, True), (bert, False), (bert, True), (vit, False)]
)
def test_both_ways_explain_the_same(make: Any, padding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.theory.matrices.PART_BYTES", {"cpu": 1500})  # five queries of one head
    monkeypatch.setattr("unsmooth.models.attention.PART_ELEMENTS", 50)
    model, batch = make(padding)
    whole, turns = (explain(model, [batch], heads_in_turn=turn, spectra=2) for turn in (False, True))
    same(turns.layers, whole.layers)
    same(turns.heads, whole.heads)
    assert {bool(row["converged"]) for row in turns.layers} == {True}


def test_nothing_holds_all_heads_and_no_setting_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = llama(False)
    settings = copy.deepcopy(model.config.to_dict())  # type: ignore[union-attr, operator]
    formed: list[torch.Size] = []
    inside = SdpaMatrices.__call__

    def counted(self: SdpaMatrices, heads: slice, queries: slice) -> torch.Tensor:
        assert model.config._attn_implementation == "sdpa"  # type: ignore[union-attr]
        rows = inside(self, heads, queries)
        formed.append(rows.shape)
        return rows

    monkeypatch.setattr(SdpaMatrices, "__call__", counted)
    monkeypatch.setattr("unsmooth.theory.matrices.PART_BYTES", {"cpu": 3 * 11 * 11 * 8})  # one head
    explain(model, [batch], heads_in_turn=True)
    assert formed
    assert all(shape[1] == 1 for shape in formed)
    assert model.config.to_dict() == settings  # type: ignore[union-attr, operator]


def test_long_inputs_take_turns_by_themselves_unless_told_otherwise() -> None:
    model, _ = llama(False)
    short, long = ({"input_ids": torch.zeros(1, n, dtype=torch.int64)} for n in (512, 8192))
    for asked, expected in ((None, [False, True]), (True, [True, True]), (False, [False, False])):
        explainer = Explainer(model, heads_in_turn=asked)
        assert [explainer.in_parts(inputs) for inputs in (short, long)] == expected


def test_a_model_that_forms_its_matrices_itself_shows_them_whole() -> None:
    model, batch = llama(False)
    model.config._attn_implementation = "eager"  # type: ignore[union-attr]
    seen: dict[int, Any] = {}
    with torch.no_grad(), capture_attention(view(model), seen.__setitem__, in_parts=True):
        model(**batch)
    assert all(isinstance(a, torch.Tensor) for a in seen.values())
    assert not math.isnan(explain(model, [batch], heads_in_turn=True).layers[0]["exponent"])


def test_parts_are_rows_of_the_whole_matrix() -> None:
    model, batch = llama(True)
    parts: dict[int, Any] = {}
    whole: dict[int, Any] = {}
    for seen, in_parts in ((parts, True), (whole, False)):
        with torch.no_grad(), capture_attention(view(model), seen.__setitem__, in_parts=in_parts):
            model(**batch)
    for layer, a in whole.items():
        found = parts[layer].first(2)
        assert tuple(found.shape) == (2, *a.shape[1:])
        torch.testing.assert_close(found(slice(1, 4), slice(3, 9)), a[:2, 1:4, 3:9])
