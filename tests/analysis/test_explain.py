from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from unsmooth.analysis import Explainer, Explanation, explain, load_explanation, measure
from unsmooth.analysis.facts import alignment, layer_facts
from unsmooth.analysis.measurement import Cell
from unsmooth.errors import CheckpointError, FeatureError, OptionError, WeightsError
from unsmooth.models import capture_attention, view
from unsmooth.theory import dominance
from unsmooth.theory.exponent import layer_exponent


@pytest.fixture(scope="module")
def vit() -> nn.Module:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=48, embed_dim=24, depth=2, num_heads=3, num_classes=0, init_values=0.3
    )
    for block in model.blocks:  # weights that a freshly made model lacks
        nn.init.normal_(block.norm1.weight)
        nn.init.normal_(block.norm1.bias)
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
        nn.init.normal_(block.attn.qkv.bias)
        nn.init.normal_(block.ls1.gamma)
    return model.double()


@pytest.fixture(scope="module")
def found(vit: nn.Module) -> Explanation:
    torch.manual_seed(1)
    return explain(vit, [torch.randn(2, 3, 48, 48), torch.randn(1, 3, 48, 48)], spectra=2)


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


def test_without_an_input_norm_the_mean_step_is_exact_too() -> None:
    model, batch = tiny_bert()
    frame = explain(model, [batch], spectra=0).frame()
    assert (frame["mean_step_hfc"] - frame["measured_hfc"]).abs().max() < 1e-12
    assert frame["step"].tolist() == [1.0] * 4


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
    left = one.frame()[one.frame()["input"] == 1].drop(columns=["input", "converged"])
    right = other.frame().drop(columns=["input", "converged"])
    torch.testing.assert_close(torch.tensor(left.to_numpy()), torch.tensor(right.to_numpy()), atol=1e-4, rtol=0)
    heads = one.head_frame()
    ours = heads[heads["input"] == 1][["entropy", "gap", "exponent"]].to_numpy()
    torch.testing.assert_close(
        torch.tensor(ours), torch.tensor(other.head_frame()[["entropy", "gap", "exponent"]].to_numpy())
    )


def attention_of_one(vit: nn.Module) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """An input, and the attention of each layer on it."""
    torch.manual_seed(2)
    batch = torch.randn(1, 3, 48, 48, dtype=torch.float64)
    seen: dict[int, torch.Tensor] = {}
    with torch.no_grad(), capture_attention(view(vit), seen.__setitem__):
        vit.eval()(batch)
    return batch, seen


def test_a_head_verdict_is_the_single_head_dominance(vit: nn.Module) -> None:
    batch, seen = attention_of_one(vit)
    heads = explain(vit, [batch], spectra=1).head_frame()
    raw = view(vit).layers[1].weights()
    for head in range(3):
        h = (raw.w_v[head] @ raw.w_proj[head]).T.detach()
        row = heads[(heads["layer"] == 1) & (heads["head"] == head)].iloc[0]
        values = torch.linalg.eigvals(h)
        keep = values.abs() > 1e-9
        a = dominance(h, seen[1][0, head])
        moduli = (1 + a.a.values[:, None] * values[keep]).abs()
        expected = moduli[:-1].max().log() - moduli[-1].max().log()
        assert row["paper_exponent"] == pytest.approx(float(expected), abs=1e-9)


def test_what_is_said_of_attention_is_that_of_its_eigenvalues(vit: nn.Module) -> None:
    batch, seen = attention_of_one(vit)
    for row in explain(vit, [batch], spectra=1).head_frame().itertuples():
        values = torch.linalg.eigvals(seen[row.layer][0, row.head])
        others = values[(values - 1).abs().argsort()[1:]]  # all but Perron's
        assert row.gap == pytest.approx(1 - float(others.abs().max()), abs=1e-9)
        assert row.smallest_real == pytest.approx(float(others.real.min()), abs=1e-9)
        assert row.complex == pytest.approx(float((values.imag.abs() > 1e-9).double().mean()))


def test_spectra_are_limited_to_the_inputs_asked_for(found: Explanation) -> None:
    frame = found.head_frame()
    assert sorted(frame[frame["kind"].notna()]["input"].unique()) == [0, 1]
    assert frame["entropy"].notna().all()
    assert found.type_shares()["count"].tolist() == [2 * 2 * 3] * 3


def test_shares_sum_to_one_and_have_intervals(found: Explanation) -> None:
    for kind in ("paper_kind", "kind"):
        table = found.type_shares(kind)
        assert table["share"].sum() == pytest.approx(1.0)
        assert ((table["low"] <= table["share"]) & (table["share"] <= table["high"])).all()


def test_eigenvalue_shares_before_and_after_folding(found: Explanation) -> None:
    weights = found.weight_frame()
    assert sorted(weights["folded"].unique()) == [False, True]
    assert (weights[["negative", "positive", "outside"]].sum(axis=1) - 1).abs().max() < 1e-12
    assert (weights[["re_negative", "re_positive", "re_outside"]].sum(axis=1) - 1).abs().max() < 1e-12


def test_saving_and_loading_gives_the_same_explanation(found: Explanation, tmp_path: Path) -> None:
    again = load_explanation(found.save(tmp_path / "e.json"))
    assert json.dumps(again.to_json()) == json.dumps(found.to_json())
    assert again.predictions().equals(found.predictions())
    assert again.about["versions"]["torch"] == torch.__version__
    assert "exponent" in again.about["definitions"]
    (tmp_path / "e.json").write_text('{"schema": "unsmooth.explanation/1", ')
    with pytest.raises(CheckpointError, match="truncated"):
        load_explanation(tmp_path / "e.json")
    (tmp_path / "e.json").write_text('{"schema": "unsmooth.explanation/1", "spectra": []}')
    with pytest.raises(CheckpointError, match="was cut or changed after it was written .*layer_rows"):
        load_explanation(tmp_path / "e.json")


def test_splitting_the_batches_changes_nothing(vit: nn.Module, found: Explanation) -> None:
    torch.manual_seed(1)
    first, second = torch.randn(2, 3, 48, 48), torch.randn(1, 3, 48, 48)
    split = explain(vit, [first[:1], first[1:], second], spectra=2)
    columns = ["exponent", "measured_ratio", "step", "alignment"]
    ours = split.frame().sort_values(["input", "layer"])[columns].to_numpy()
    theirs = found.frame().sort_values(["input", "layer"])[columns].to_numpy()
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=2e-2, rtol=0)  # γ to 1 % of itself


def test_the_model_is_left_as_it_was(vit: nn.Module) -> None:
    vit.train()
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in vit.modules())
    with pytest.raises(FeatureError, match=r"blocks.0.pre holds NaN .*batch 0"):
        explain(vit, [torch.full((1, 3, 48, 48), torch.nan)])
    assert vit.training
    assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in vit.modules()) == hooks
    vit.eval()


def test_bare_weights_use_step_one(vit: nn.Module) -> None:
    bare = explain(vit, [torch.randn(1, 3, 48, 48)], folded=False, layers=[1], spectra=0)
    assert bare.frame()["step"].tolist() == [1.0]
    assert bare.frame()["layer"].tolist() == [1]
    assert bare.notes == []
    with pytest.raises(FeatureError, match="explain with spectra=1"):
        bare.type_shares()


def test_wrong_requests_are_refused(vit: nn.Module, found: Explanation) -> None:
    with pytest.raises(OptionError, match="layers must be between 0 and 1"):
        Explainer(vit, layers=[2])
    with pytest.raises(OptionError, match="unknown column 'gamma'"):
        found.agreement("gamma")
    with pytest.raises(OptionError, match="unknown kind"):
        found.type_shares("type")
    with pytest.raises(FeatureError, match="there was no batch"):
        explain(vit, [])


def test_an_attention_that_its_weights_do_not_explain_is_refused(vit: nn.Module) -> None:
    attention = vit.blocks[0].attn
    honest = attention.forward
    attention.forward = lambda *args, **kwargs: 2 * honest(*args, **kwargs)
    try:
        with pytest.raises(WeightsError, match="layer 0 .*misses the attention's output"):
            explain(vit, [torch.randn(2, 3, 48, 48)])
    finally:
        del attention.forward


def test_alignment_is_one_on_the_direction_and_in_its_plane() -> None:
    direction = torch.tensor([1.0, 0.0, 0.0], dtype=torch.complex128)
    x = torch.tensor([[[2.0, 0.0, 0.0], [-3.0, 0.0, 0.0]]], dtype=torch.float64)
    assert float(alignment(x, direction, None)) == pytest.approx(1.0)
    turned = torch.tensor([1.0, 1.0j, 0.0], dtype=torch.complex128)
    assert float(
        alignment(torch.randn(1, 4, 3, dtype=torch.float64) * torch.tensor([1, 1, 0]), turned, None)
    ) == pytest.approx(1.0)


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


@pytest.mark.parametrize(("scale", "over"), [(-0.5, False), (-1.9, False), (-2.1, True), (5.0, False)])
def test_a_layer_overshoots_when_its_fastest_eigenvalue_steps_below_minus_two(scale: float, over: bool) -> None:
    rows = [{"layer": 0, "input": i, "step": 2.0} for i in range(2)]
    values = torch.tensor([scale / 2, 0.01, -0.2 + 0.1j], dtype=torch.complex128)
    spectra = [
        {"layer": 0, "folded": folded, "layer_values": v, "head_values": v[None]}
        for folded, v in ((False, values - 9), (True, values))  # only what acts counts
    ]
    found = Explanation(rows, [], [], spectra, {}).overshooting()
    assert found == ({0: pytest.approx(scale)} if over else {})
