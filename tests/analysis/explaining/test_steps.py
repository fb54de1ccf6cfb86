"""Predicted steps beside measured ones: the frozen map, exponents, norms after the sum, constants, token policies."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from unsmooth.analysis import Explanation, explain, measure
from unsmooth.analysis.explaining.facts import layer_facts
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.errors import FeatureError, OptionError
from unsmooth.models import capture_attention, hook_points, view
from unsmooth.theory.exponent import layer_exponent


def tiny_bert(padding: bool = False) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=32
    )
    ids = torch.randint(5, 40, (2, 9))
    mask = torch.ones_like(ids)
    if padding:
        mask[1, 6:] = 0
    return transformers.BertModel(config).double(), {"input_ids": ids, "attention_mask": mask}


def test_the_frozen_linear_map_is_what_was_measured(found: Explanation) -> None:
    frame = found.frame()
    assert len(frame) == 6
    assert (frame["frozen_hfc"] - frame["measured_hfc"]).abs().max() < 1e-12
    assert (frame["frozen_ratio"] - frame["measured_ratio"]).abs().max() < 1e-12
    assert (frame["mean_step_hfc"] - frame["measured_hfc"]).abs().max() > 1e-3  # the approximation is visible


def test_exponents_are_those_of_the_folded_map_at_the_step_of_each_input(vit: nn.Module) -> None:
    batch, kept = torch.randn(2, 3, 48, 48, dtype=torch.float64), {}
    frame = explain(vit, [batch], spectra=0, layers=[1]).frame()
    with torch.no_grad(), capture_attention(view(vit), kept.__setitem__, [1]):
        vit(batch)
    pair, steps = layer_facts(view(vit).layers[1], True).folded.pair, torch.tensor(frame["step"])
    fast = layer_exponent(kept[1], pair, scale=steps)
    slow = layer_exponent(kept[1], pair, which="rightmost")
    assert (steps - 1).abs().min() > 0.01  # a step of one would hide its absence
    assert frame["exponent"].tolist() == pytest.approx(fast.exponent.tolist(), rel=0.05)
    assert frame["small_step"].tolist() == pytest.approx((slow.exponent * steps).tolist(), rel=0.05)
    measured = measure(vit, [batch]).per_sample
    assert measured is not None
    assert frame["hfc_lfc"].tolist() == pytest.approx(measured[Cell("blocks.1.pre", "hfc_lfc", "all")].tolist())


def post_norm_bert() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """With weights large enough for the norm after the sum to matter."""
    model, batch = tiny_bert()
    for layer in model.encoder.layer:  # type: ignore[union-attr]
        nn.init.normal_(layer.attention.self.value.weight, std=0.4)
        nn.init.normal_(layer.attention.output.dense.weight, std=0.4)
        nn.init.normal_(layer.attention.output.LayerNorm.weight)
        nn.init.normal_(layer.attention.output.LayerNorm.bias, std=0.1)
    return model.eval(), batch


def test_a_post_norm_sublayer_ends_after_its_norm_and_each_part_is_told() -> None:
    model, batch = post_norm_bert()
    found = explain(model, [batch], spectra=0)
    frame, seen = found.frame(), {}
    v = view(model)
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__):
        model(**batch)
    for row in frame.itertuples():
        pre, total, mid = (_log_ratio(seen[f"blocks.{row.layer}.{p}"][row.input]) for p in ("pre", "attn_sum", "mid"))
        assert row.attention_ratio == pytest.approx(total - pre, abs=1e-9)
        assert row.norm_ratio == pytest.approx(mid - total, abs=1e-9)
        assert row.measured_ratio == pytest.approx(mid - pre, abs=1e-9)
    assert (frame["frozen_ratio"] - frame["measured_ratio"]).abs().max() < 1e-12
    assert frame["norm_ratio"].abs().max() > 1e-2
    assert frame["step"].tolist() == [1.0] * 4
    assert any("the norm after the sum" in note for note in found.notes)


def _log_ratio(x: torch.Tensor) -> float:
    mean = x.mean(0)
    return float((x - mean).norm().log() - (mean.norm() * len(x) ** 0.5).log())


def test_the_exponent_of_a_post_norm_layer_is_that_of_the_dense_map_with_the_norms_weight() -> None:
    model, batch = post_norm_bert()
    frame, maps = explain(model, [batch], spectra=0).frame(), {}
    with torch.no_grad(), capture_attention(view(model), maps.__setitem__):
        model(**batch)
    for layer in view(model).layers:
        w = layer.weights()
        norm = layer.block.attention.output.LayerNorm
        after = (torch.eye(24, dtype=torch.float64) - 1 / 24) * norm.weight.detach()
        heads = (w.w_v @ w.w_proj).detach() @ after
        for i in range(2):
            low, high = dense_growth(maps[layer.index][i], heads, after)
            row = frame[(frame["layer"] == layer.index) & (frame["input"] == i)].iloc[0]
            assert row["exponent"] == pytest.approx(math.log(high / low), rel=0.05)


def dense_growth(a: torch.Tensor, w: torch.Tensor, residual: torch.Tensor) -> tuple[float, float]:
    """ρ_L and ρ_H of `X ↦ X M + Σ A_h X W_h` from Kronecker products."""
    n = a.shape[-1]
    p = torch.eye(n, dtype=torch.float64) - 1 / n
    whole = torch.kron(p, residual.mT.contiguous())
    for head, weight in zip(a, w, strict=True):
        whole = whole + torch.kron(p @ head @ p, weight.mT.contiguous())
    return tuple(float(torch.linalg.eigvals(m).abs().max()) for m in (residual + w.sum(0), whole))  # type: ignore[return-value]


def test_what_the_constant_does_is_shown_beside_the_step(vit: nn.Module, found: Explanation) -> None:
    frame = found.frame()
    assert any("γ leaves out what every token gets" in note for note in found.notes)
    assert (frame["constant"] > 0.05).all()
    assert (frame["without_constant"] - frame["measured_ratio"]).abs().max() > 0.05
    silent = copy.deepcopy(vit)
    for block in silent.blocks:  # type: ignore[union-attr]
        for bias in (block.norm1.bias, block.attn.qkv.bias, block.attn.proj.bias):
            nn.init.zeros_(bias)
    torch.manual_seed(1)
    none = explain(silent, [torch.randn(2, 3, 48, 48)], spectra=0)
    assert none.frame()["constant"].tolist() == none.frame()["fixed_point"].tolist() == [0.0] * 4
    assert none.frame()["without_constant"].tolist() == pytest.approx(none.frame()["measured_ratio"].tolist())
    assert none.frame()["exponent_constant"].tolist() == none.frame()["exponent"].tolist()
    assert not any("what every token gets" in note for note in none.notes)


def test_the_constant_and_its_fixed_point_are_those_of_the_dense_recurrence(vit: nn.Module, found: Explanation) -> None:
    row = found.frame().iloc[0]
    block, w = vit.blocks[0], view(vit).layers[0].weights()
    gamma, beta = block.norm1.weight, block.norm1.bias
    centring = torch.eye(24, dtype=torch.float64) - 1 / 24
    g = row["step"] * (centring * gamma) @ (w.w_v @ w.w_proj).sum(0) * block.ls1.gamma
    c = (sum((beta @ w.w_v[h] + w.b_v[h]) @ w.w_proj[h] for h in range(3)) + w.b_proj) * block.ls1.gamma
    g, c = g.detach(), c.detach()
    # 0 is a simple eigenvalue of g (centring): the fixed point is sought beside it
    values, vectors = torch.linalg.eig(g.mT)
    inside = torch.linalg.solve(vectors, c.to(vectors)) / -values
    inside[values.abs().argmin()] = 0
    point = (vectors @ inside).real
    torch.manual_seed(1)
    seen: dict[str, torch.Tensor] = {}
    with torch.no_grad(), hook_points(view(vit), ["blocks.0.pre"], seen.__setitem__):
        vit.eval()(torch.randn(2, 3, 48, 48).double())
    size = seen["blocks.0.pre"][0].mean(0).norm()
    assert row["constant"] == pytest.approx(float(c.norm() / size))
    assert row["fixed_point"] == pytest.approx(float(point.norm() / size), rel=1e-6)


def test_token_policies_choose_whose_steps_are_measured_and_leave_the_exponents(vit: nn.Module) -> None:
    batch = torch.randn(2, 3, 48, 48, dtype=torch.float64)
    found = explain(vit, [batch], "all,patches", spectra=0)
    assert found.policies == ("all", "patches")
    assert found.frame().equals(found.frame("all"))
    every, patches = found.frame("all"), found.frame("patches")
    assert set(patches["tokens"]) == {9}
    assert every["exponent"].tolist() == patches["exponent"].tolist()
    assert (patches["frozen_ratio"] - patches["measured_ratio"]).abs().max() < 1e-12
    per_sample = measure(vit, [batch], tokens="patches").per_sample
    assert per_sample is not None
    for layer in (0, 1):
        before, after = (np.log(per_sample[Cell(f"blocks.{layer}.{p}", "hfc_lfc", "patches")]) for p in ("pre", "mid"))
        rows = patches[patches["layer"] == layer]
        assert rows["measured_ratio"].tolist() == pytest.approx((after - before).tolist(), abs=1e-6)
    assert found.agreement(tokens="patches") != found.agreement()
    assert len(found.by_layer("patches")) == 2
    assert set(found.predictions("patches")["predictor"]) == set(found.predictions()["predictor"])
    with pytest.raises(OptionError, match="unknown token policy 'content'"):
        found.frame("content")


def test_a_token_of_enormous_norm_is_left_out_of_the_steps_on_request() -> None:
    """SmolLM2's token 0 carries HFC/LFC until it is left out."""
    model, batch = tiny_bert()
    with torch.no_grad():
        model.embeddings.LayerNorm = nn.Identity()
        model.embeddings.word_embeddings.weight[7] *= 1000
    ids = batch["input_ids"].clamp_min(8)
    ids[:, 0] = 7
    found = explain(model, [{"input_ids": ids}], ["all", "no-outliers"], layers=[0], spectra=0)
    every, rest = found.frame("all"), found.frame("no-outliers")
    assert set(every["tokens"]) == {9}
    assert set(rest["tokens"]) == {8}
    assert (every["hfc_lfc"] > 1.2 * rest["hfc_lfc"]).all()
    assert (rest["frozen_ratio"] - rest["measured_ratio"]).abs().max() < 1e-9


def test_a_policy_that_leaves_one_token_is_refused() -> None:
    model, _ = tiny_bert()
    ids = torch.tensor([[1, 2, 2, 2, 9]])
    with pytest.raises(FeatureError, match="'content' leaves fewer than two tokens of an input at blocks.0.pre"):
        explain(model, [{"input_ids": ids}], "content", special_ids=[1, 2])
    with pytest.raises(FeatureError, match="high-frequency part; give longer inputs"):  # not: use tokens='all'
        explain(model, [{"input_ids": ids[:, :1]}])


def test_an_attention_that_adds_nothing_changes_the_ratio_by_exactly_zero(vit: nn.Module) -> None:
    silent = copy.deepcopy(vit)
    for block in silent.blocks:  # type: ignore[union-attr]
        nn.init.zeros_(block.attn.proj.weight)
        nn.init.zeros_(block.attn.proj.bias)
    found = explain(silent, [torch.randn(8, 3, 48, 48)], spectra=0)
    for name in ("measured_hfc", "measured_ratio", "frozen_ratio"):
        assert found.frame()[name].tolist() == [0.0] * 16
    assert found.agreement().count == 0


def test_padding_changes_nothing() -> None:
    model, padded = tiny_bert(padding=True)
    alone = {name: value[1:, :6] for name, value in padded.items()}
    one = explain(model, [padded], spectra=2)
    other = explain(model, [alone], spectra=1)
    left = one.frame()[one.frame()["input"] == 1].drop(columns=["input", "converged", "policy", "attracts"])
    right = other.frame().drop(columns=["input", "converged", "policy", "attracts"])
    torch.testing.assert_close(torch.tensor(left.to_numpy()), torch.tensor(right.to_numpy()), atol=1e-4, rtol=0)
    heads = one.head_frame()
    ours = heads[heads["input"] == 1][["entropy", "gap", "exponent"]].to_numpy()
    torch.testing.assert_close(
        torch.tensor(ours), torch.tensor(other.head_frame()[["entropy", "gap", "exponent"]].to_numpy())
    )


@pytest.mark.real
def test_dinov2_is_reproduced_exactly_by_its_folded_map(real_models: Path) -> None:
    pytest.importorskip("timm")
    from unsmooth.sources import load_model

    loaded = load_model(
        "timm:vit_small_patch14_dinov2",
        weights=real_models / "dinov2-s14" / "model.safetensors",
        options={"img_size": 518, "dynamic_img_size": True, "num_classes": 0},
    )
    torch.manual_seed(0)
    frame = explain(loaded.model, [torch.randn(1, 3, 112, 112)], spectra=0, layers=[0, 11]).frame()
    assert (frame["frozen_hfc"] - frame["measured_hfc"]).abs().max() < 1e-5
    assert frame["converged"].all()
