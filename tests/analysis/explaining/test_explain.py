"""Explanations: heads, spectra and results, whatever the batches; and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from model_cases import CASES
from results import about_explained
from torch import nn

from unsmooth.analysis import Explainer, Explanation, explain, load_explanation
from unsmooth.errors import CheckpointError, FeatureError, OptionError, WeightsError
from unsmooth.figures import agreement
from unsmooth.models import capture_attention, view
from unsmooth.prose import counted
from unsmooth.theory import dominance


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
        a = dominance(seen[1][0, head], h.mT)
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
    assert again.about.versions["torch"] == torch.__version__
    assert "exponent" in again.about.definitions.columns
    (tmp_path / "e.json").write_text('{"schema": "unsmooth.explanation/1", ')
    with pytest.raises(CheckpointError, match="truncated"):
        load_explanation(tmp_path / "e.json")
    (tmp_path / "e.json").write_text('{"schema": "unsmooth.explanation/1", "spectra": []}')
    with pytest.raises(CheckpointError, match="was cut or changed after it was written .*definitions"):
        load_explanation(tmp_path / "e.json")


def test_it_says_what_it_is_and_draws_itself_also_from_a_file(found: Explanation, tmp_path: Path) -> None:
    one = replace(found, layers=found.layers[:1], notes=["said"])
    assert repr(one).splitlines()[0].endswith(f"{counted(len(found.about.settings.layers), 'layer')}, 1 input")
    assert "  1 note: .notes" in repr(one).splitlines()
    again = load_explanation(found.save(tmp_path / "e.json"))
    assert again.plot().svg() == found.plot().svg() == agreement(found).svg()
    with pytest.raises(OptionError, match="unknown token policy 'patches': expected one of 'all'"):
        found.plot("patches")


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
    with pytest.raises(FeatureError, match=r"blocks.0.pre holds NaN .*look at the weights before it.*batch 0"):
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


def test_layers_are_chosen_as_they_are_for_control_and_by_pass_where_shared(vit: nn.Module) -> None:
    assert Explainer(vit).chosen == Explainer(vit, layers=None).chosen == (0, 1)
    assert Explainer(vit, layers="second-half").chosen == Explainer(vit, layers=[-1]).chosen == (1,)
    assert Explainer(vit, layers="blocks.0.*,1").chosen == (0, 1)
    albert = next(case for case in CASES if case.name == "albert").model()
    passes = tuple(range(len(view(albert).layers)))
    assert Explainer(albert, layers="*").chosen == passes
    assert Explainer(albert, layers="1:").chosen == passes[1:]


def test_wrong_requests_are_refused(vit: nn.Module, found: Explanation) -> None:
    with pytest.raises(OptionError, match="layer 2 does not exist: this model has layers 0 to 1"):
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


@pytest.mark.parametrize(("scale", "over"), [(-0.5, False), (-1.9, False), (-2.1, True), (5.0, False)])
def test_a_layer_overshoots_when_its_fastest_eigenvalue_steps_below_minus_two(scale: float, over: bool) -> None:
    rows = [{"layer": 0, "input": i, "step": 2.0} for i in range(2)]
    values = torch.tensor([scale / 2, 0.01, -0.2 + 0.1j], dtype=torch.complex128)
    spectra = [
        {"layer": 0, "folded": folded, "layer_values": v, "head_values": v[None]}
        for folded, v in ((False, values - 9), (True, values))  # only what acts counts
    ]
    found = Explanation(rows, [], [], spectra, about_explained()).overshooting()
    assert found == ({0: pytest.approx(scale)} if over else {})


def test_without_the_spectrum_of_the_sum_exponents_are_the_same_and_what_needs_it_is_not_known(
    vit: nn.Module, tmp_path: Path
) -> None:
    data = [torch.randn(2, 3, 48, 48, dtype=torch.float64)]
    lean, whole = (explain(vit, data, layer_spectrum=wanted) for wanted in (False, True))
    for column in ("exponent", "small_step", "log_rho_lfc", "measured_ratio", "frozen_ratio"):
        assert lean.frame()[column].tolist() == pytest.approx(whole.frame()[column].tolist(), rel=1e-4, abs=1e-6)
    heads = [e.weight_frame().query("head >= 0").drop(columns="head") for e in (lean, whole)]
    assert heads[0]["condition"].tolist() == pytest.approx(heads[1]["condition"].tolist(), rel=1e-6)
    assert lean.frame()["alignment"].isna().all()
    assert any("layer_spectrum=True finds them" in note for note in lean.notes)
    assert not any("layer_spectrum" in note for note in whole.notes)
    loaded = load_explanation(lean.save(tmp_path / "lean.json"))
    assert loaded.spectrum_frame()["head"].min() == 0
    assert len(loaded.by_layer()) == 2
