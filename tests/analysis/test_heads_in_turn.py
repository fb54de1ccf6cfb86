"""Attention matrices that are formed a few rows at a time explain and attribute the same as those that are held."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from unsmooth.analysis import Attributor, Explainer, attribute, explain
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


def same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], absolute: float = 1e-9) -> None:
    assert len(ours) == len(theirs) > 0
    for row, other in zip(ours, theirs, strict=True):
        assert row.keys() == other.keys()
        for name, value in row.items():
            told = value is None or isinstance(value, str)
            assert value == (other[name] if told else pytest.approx(other[name], 1e-6, absolute, nan_ok=True)), name


@pytest.mark.parametrize(
    ("make", "padding"), [(llama, False), (llama, True), (bert, False), (bert, True), (vit, False)]
)
def test_both_ways_explain_the_same(make: Any, padding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.theory.matrices.PART_BYTES", {"cpu": 1500})  # five queries of one head
    monkeypatch.setattr("unsmooth.models.reconstruction.PART_ELEMENTS", 50)
    model, batch = make(padding)
    whole, turns = (explain(model, [batch], heads_in_turn=turn, spectra=2) for turn in (False, True))
    same(turns.layers, whole.layers)
    same(turns.heads, whole.heads)
    assert {bool(row["converged"]) for row in turns.layers} == {True}


@pytest.mark.parametrize(("make", "padding"), [(llama, True), (bert, True), (vit, False)])
def test_both_ways_attribute_the_same(make: Any, padding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.theory.matrices.PART_BYTES", {"cpu": 1500})
    model, batch = make(padding)
    if make is vit:  # an MLP that writes an outlier, so that the model runs again without it
        nn.init.normal_(model.cls_token)
        far = 40 * torch.eye(10, 24)[:, :1]
        model.blocks[0].mlp.register_forward_hook(lambda _, args, added: added + far)
    whole, turns = (
        attribute(model, [batch], "all,no-outliers", spectrum=True, carriers=True, total=4, heads_in_turn=turn)
        for turn in (False, True)
    )
    rounding = 1e-7  # Hugging Face's eager softmax is float32 whatever the model is
    for policy in whole.policies:
        same(turns.under(policy).rows(), whole.under(policy).rows(), rounding)
    same(turns.totals, whole.totals, rounding)
    assert turns.carriers is not None
    assert whole.carriers is not None
    same(turns.carriers.layers, whole.carriers.layers, rounding)
    assert np.array(turns.carriers.heads) == pytest.approx(np.array(whole.carriers.heads), 1e-6, rounding)
    ours, theirs = turns.carriers.account, whole.carriers.account
    assert (ours is None) == (theirs is None)
    if ours is not None and theirs is not None:
        same([ours.curves, ours.sink], [theirs.curves, theirs.sink], rounding)
    assert make is not vit or ours is not None


@pytest.mark.parametrize("analyse", [explain, attribute])
def test_nothing_holds_all_heads_and_no_setting_is_touched(analyse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
    analyse(model, [batch], heads_in_turn=True)
    assert formed
    assert all(shape[1] == 1 for shape in formed)
    assert model.config.to_dict() == settings  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("listener", [Explainer, Attributor])
def test_long_inputs_take_turns_by_themselves_unless_told_otherwise(listener: Any) -> None:
    model, _ = llama(False)
    short, long = ({"input_ids": torch.zeros(1, n, dtype=torch.int64)} for n in (512, 8192))
    for asked, expected in ((None, [False, True]), (True, [True, True]), (False, [False, False])):
        entered = listener(model, heads_in_turn=asked)
        assert [entered.in_parts(inputs) for inputs in (short, long)] == expected


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


def test_spectra_of_long_matrices_are_left_out_and_said_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for make, tokens, asked, expected in (
        (bert, 11, None, 3), (bert, 9, None, 1), (bert, 5, None, 0), (bert, 5, 2, 2), (llama, 5, None, 3)
    ):  # fmt: skip
        monkeypatch.setattr("unsmooth.analysis.explaining.explainer.SPECTRA_TOKENS", tokens)
        monkeypatch.setattr("unsmooth.analysis.explaining.explainer.SPECTRA", 3)
        model, batch = make(False)
        found = explain(model, [batch], layers=[0], spectra=asked)
        known = found.head_frame().groupby("input")["gap"].count() if expected else []
        assert sum(count > 0 for count in known) == expected
        assert any("spectra=3 finds them" in note for note in found.notes) == (asked is None and expected < 3)
