"""What each kind of layer changes, in both readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from small_models import bert, images, vit, words

import unsmooth
from unsmooth.errors import OptionError, PointError

METRICS = ("hfc_lfc", "cosine_similarity", "effective_rank")


@pytest.mark.parametrize("make", [vit, bert])
def test_change_by_kind_is_the_difference_of_the_means(make: Any) -> None:
    model = make()
    measurement = unsmooth.measure(model, images() if make is vit else words(), tokens="content", special_ids=[])
    mean = measurement.frame().set_index(["point", "metric"])["mean"]
    chain = measurement.change_by_kind("chain").set_index(["kind", "metric"])["mean"]
    residual = measurement.change_by_kind("residual").set_index(["kind", "metric"])["mean"]
    layers = measurement.about.model.layers
    before = "norm1" if make is vit else "pre"
    after = "mid" if make is vit else "attn_sum"
    for metric in METRICS:
        steps = [mean[f"blocks.{i}.{after}", metric] - mean[f"blocks.{i}.{before}", metric] for i in range(layers)]
        assert chain["Attention", metric] == pytest.approx(sum(steps) / layers, abs=1e-9)
        end = "post" if make is vit else "mlp_sum"
        steps = [mean[f"blocks.{i}.{end}", metric] - mean[f"blocks.{i}.mid", metric] for i in range(layers)]
        assert residual["MLP", metric] == pytest.approx(sum(steps) / layers, abs=1e-9)
    assert list(measurement.change_by_kind("chain")["kind"].unique()) == ["LayerNorm", "Attention", "MLP"]


def test_a_block_without_a_norm_goes_from_the_stream_and_has_no_step_of_one() -> None:
    from transformers import ModernBertConfig, ModernBertModel

    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    measurement = unsmooth.measure(ModernBertModel(config).eval(), [torch.randint(3, 50, (2, 6))], tokens="all")
    mean = measurement.frame().set_index(["point", "metric"])["mean"]
    chain = measurement.change_by_kind("chain").set_index(["kind", "metric"])["mean"]
    layers = measurement.about.model.layers
    assert "blocks.0.norm1" not in measurement.about.settings.points
    for metric in METRICS:
        start = ["pre", *["norm1"] * (layers - 1)]
        attention = [mean[f"blocks.{i}.mid", metric] - mean[f"blocks.{i}.{start[i]}", metric] for i in range(layers)]
        assert chain["Attention", metric] == pytest.approx(sum(attention) / layers, abs=1e-9)
        norms = [mean[f"blocks.{i}.norm1", metric] - mean[f"blocks.{i}.pre", metric] for i in range(1, layers)]
        norms += [mean[f"blocks.{i}.norm2", metric] - mean[f"blocks.{i}.mid", metric] for i in range(layers)]
        assert chain["LayerNorm", metric] == pytest.approx(sum(norms) / len(norms), abs=1e-9)


def test_in_a_post_norm_block_attention_and_the_norm_after_it_are_two_steps() -> None:
    measurement = unsmooth.measure(bert(), words(), tokens="content", special_ids=[])
    mean = measurement.frame().set_index(["point", "metric"])["mean"]
    residual = measurement.change_by_kind("residual").set_index(["kind", "metric"])["mean"]
    layers = measurement.about.model.layers
    for metric in METRICS:
        one, two = (
            [mean[f"blocks.{i}.{b}", metric] - mean[f"blocks.{i}.{a}", metric] for i in range(layers)]
            for a, b in (("attn_sum", "mid"), ("mlp_sum", "post"))
        )
        assert residual["LayerNorm", metric] == pytest.approx((sum(one) + sum(two)) / (2 * layers), abs=1e-9)
        whole = residual["Attention", metric] + residual["MLP", metric] + 2 * residual["LayerNorm", metric]
        through = mean[f"blocks.{layers - 1}.post", metric] - mean["blocks.0.pre", metric]
        assert whole * layers == pytest.approx(through, abs=1e-9)


def test_a_file_that_credits_the_norm_to_attention_is_read_with_both_apart(tmp_path: Path) -> None:
    measurement = unsmooth.measure(bert(), words(), tokens="content", special_ids=[])
    expected = measurement.change_by_kind("residual")
    for change in [c for c in measurement.changes if c.reading == "residual"]:
        moments = measurement.changes.pop(change)
        if change.kind != "LayerNorm":
            measurement.changes[change] = replace(moments, mean=moments.mean + 1)
    assert (
        unsmooth.load_measurement(measurement.save(tmp_path / "old.json")).change_by_kind("residual").equals(expected)
    )


def test_the_chain_steps_of_a_pre_norm_block_add_up_to_the_residual_ones() -> None:
    measurement = unsmooth.measure(vit(), images())
    chain = measurement.change_by_kind("chain").set_index(["kind", "metric"])["mean"]
    residual = measurement.change_by_kind("residual").set_index(["kind", "metric"])["mean"]
    for metric in METRICS:
        whole = 2 * chain["LayerNorm", metric] + chain["Attention", metric] + chain["MLP", metric]
        assert whole == pytest.approx(residual["Attention", metric] + residual["MLP", metric], abs=1e-9)


def test_the_stream_alone_tells_both_changes_of_the_stream() -> None:
    model, batches = vit(), images(2)
    few, all_ = (unsmooth.measure(model, batches, points=points) for points in ("residual", "all"))
    pd.testing.assert_frame_equal(few.change_by_kind("residual"), all_.change_by_kind("residual"))
    assert set(few.change_by_kind("residual")["kind"]) == {"Attention", "MLP"}


def test_a_change_needs_its_points() -> None:
    measurement = unsmooth.measure(vit(), images(), points="residual")
    with pytest.raises(
        PointError,
        match=r"needs points that were not measured, such as blocks\.0\.norm1, blocks\.0\.norm2, blocks\.1\.norm1: "
        r"measure with points='all', or take change_by_kind\('residual'\), which these points tell$",
    ):
        measurement.change_by_kind("chain")
    text = [{"input_ids": words(1)[0]["input_ids"]}]
    post_norm = unsmooth.measure(bert(), text, points="residual")  # both readings need the sums
    with pytest.raises(PointError, match=r"such as blocks\.0\.attn_sum, blocks\.0\.mlp_sum, .*points='all'$"):
        post_norm.change_by_kind("residual")
    with pytest.raises(OptionError, match="unknown reading of change 'sum'"):
        measurement.change_by_kind("sum")
