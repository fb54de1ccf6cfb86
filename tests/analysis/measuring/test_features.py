"""Features that others saved give the numbers that a forward pass gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from small_models import bert, words

import unsmooth
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.errors import DataError, OptionError
from unsmooth.models import hook_points, view
from unsmooth.sources.features import point_named

NAMES = {
    "blocks.4.post": ("blocks.4.hook_resid_post", "model.layers.4", "transformer.h.4.output.0", "layer_4", "4",
                      "hidden_states.5", "hidden_states_5", "blocks.4.post"),
    "blocks.0.pre": ("blocks.0.hook_resid_pre",),
    "blocks.1.mid": ("blocks.1.hook_resid_mid",),
    "blocks.2.attn": ("blocks.2.hook_attn_out", "model.layers.2.self_attn"),
    "blocks.2.mlp": ("blocks.2.hook_mlp_out", "model.layers.2.mlp.output"),
    "embed": ("hidden_states.0", "embed"),
    "final_norm": ("ln_final.hook_normalized", "model.norm"),
}  # fmt: skip


@pytest.mark.parametrize(("point", "name"), [(point, name) for point, names in NAMES.items() for name in names])
def test_names_of_other_libraries_are_known(point: str, name: str) -> None:
    assert point_named(name) == point


def test_saved_features_are_measured_as_in_the_forward_pass(tmp_path: Path) -> None:
    model, data = bert().eval(), words()
    points = ("embed", "blocks.0.post", "blocks.1.post")
    for number, batch in enumerate(data):
        kept: dict[str, torch.Tensor] = {"attention_mask": batch["attention_mask"]}
        with torch.no_grad(), hook_points(view(model), points, lambda point, x, kept=kept: kept.update({point: x})):
            model(**batch)
        names = dict(zip(points, ("hidden_states.0", "hidden_states.1", "hidden_states.2"), strict=True))
        save_file({names.get(k, k): v.contiguous() for k, v in kept.items()}, tmp_path / f"{number}.safetensors")
    with pytest.warns(UserWarning, match="padding"):
        found = unsmooth.measure_features(tmp_path, tokens="all,content,no-outliers")
    with pytest.warns(UserWarning, match="padding"):
        expected = unsmooth.measure(model, data, points=points, tokens="all,no-outliers")
    for cell, moments in expected.cells.items():
        assert found.cells[cell].mean == pytest.approx(moments.mean, rel=1e-6)
        assert found.cells[cell].count == 4
    loaded = unsmooth.load(found.save(tmp_path / "found.json"))
    assert loaded.cells == found.cells
    assert json.loads((tmp_path / "found.json").read_text())["model"]["family"] == "features"


def test_layers_in_one_tensor_need_their_ids(tmp_path: Path) -> None:
    states = torch.randn(6, 3, 8)
    save_file({"hidden_states": states, "token_ids": torch.arange(6)}, tmp_path / "vllm.safetensors")
    with pytest.raises(OptionError, match="say which layers these are"):
        unsmooth.measure_features(tmp_path / "vllm.safetensors")
    found = unsmooth.measure_features(tmp_path / "vllm.safetensors", layers=[0, 4, 8])
    assert found.cells[Cell("blocks.7.post", "hfc_lfc", "all")].mean == pytest.approx(
        float(unsmooth.hfc_lfc_ratio(states[:, 2]))
    )


def test_a_cache_that_is_no_mapping_is_one_batch() -> None:
    class Cache:  # as TransformerLens's
        def __init__(self, kept: dict[str, torch.Tensor]) -> None:
            self.items = kept.items

    kept = {f"blocks.{i}.hook_resid_post": torch.randn(2, 5, 8) for i in range(2)}
    assert unsmooth.measure_features(Cache(kept)).cells == unsmooth.measure_features(kept).cells  # type: ignore[arg-type]


def test_names_that_say_nothing_and_points_that_come_and_go_are_refused() -> None:
    with pytest.raises(DataError, match="'logits' is no point that is known"):
        unsmooth.measure_features({"logits": torch.randn(4, 8)})
    with pytest.raises(DataError, match="in some batches only"):
        unsmooth.measure_features([{"0": torch.randn(4, 8)}, {"1": torch.randn(4, 8)}])
    with pytest.raises(OptionError, match="saved features"):
        unsmooth.measure_features({"0": torch.randn(4, 8)}, tokens="patches")
