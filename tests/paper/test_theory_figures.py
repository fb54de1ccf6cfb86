"""Figures 1, 3 and 5."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from unsmooth.paper import Context, find_item
from unsmooth.sources.patches import image_patches
from unsmooth.theory.scenario import log10_curves


@pytest.mark.parametrize("seed", range(6))
def test_no_definition_of_oversmoothing_always_holds_and_iterating_agrees(seed: int) -> None:
    table, _ = find_item("fig1").run(Context(seed=seed)).tables
    assert [row[1:4] for row in table.rows] == [
        ["yes", "yes", "yes"],
        ["no", "no", "yes"],
        ["yes", "yes", "yes"],
        ["no", "no", "no"],
    ]
    for _, inputs, angles, rank, _, ratio, cosine, effective in table.rows:
        assert (ratio < 1e-6) == (inputs == "yes")
        assert (cosine > 1 - 1e-6) == (angles == "yes")
        assert (effective < 1.001) == (rank == "yes")


def test_the_examples_of_figure_1_are_what_their_names_say() -> None:
    from unsmooth.paper.fig1 import _examples

    found = _examples(torch.Generator().manual_seed(3))
    assert [residual for _, _, residual in found.values()] == [True, True, False, True]
    low, high = zip(*(torch.aminmax(torch.linalg.eigvalsh(h)) for h, _, _ in found.values()), strict=True)
    assert 0 < low[0] <= high[0]
    assert all(-1 <= low[i] <= high[i] < 0 for i in (1, 2, 3))
    for _, a, _ in found.values():
        torch.testing.assert_close(a.sum(-1), torch.ones(len(a), dtype=torch.float64))
    a = found["λ_H > 0: type (1) dominates"][1]
    assert not torch.allclose(a, a.mT)


def test_figure_1_depends_on_its_seed_and_nothing_else() -> None:
    first = find_item("fig1").run(Context(seed=1))
    torch.rand(7)
    again, other = (find_item("fig1").run(Context(seed=seed)) for seed in (1, 2))
    assert first.tables[0].rows == again.tables[0].rows != other.tables[0].rows
    assert (first.about["tokens"], first.about["dim"]) == (12, 6)


def test_negative_weights_turn_pre_norm_around_and_leave_post_norm_alone() -> None:
    result = find_item("fig3").run(Context(samples=2))
    cells = {tuple(row[:4]): row[4] for row in result.tables[0].rows if row[0] == "symmetric"}
    assert cells["symmetric", "Pre-LN", "sharpening", "+"] > 0.5
    assert cells["symmetric", "Pre-LN", "sharpening", "−"] < -0.5
    assert cells["symmetric", "Pre-LN", "smoothing", "−"] > 0.5
    for sign in "+−":
        assert cells["symmetric", "Post-LN", "sharpening", sign] > 0.5
        assert cells["symmetric", "Post-LN", "smoothing", sign] < -5
    assert len(result.tables[0].rows) == 20
    assert "2 seeds" in result.label


def test_figure_3_can_start_from_an_image(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    path = tmp_path / "grey.png"
    image.effect_noise((64, 64), 50).save(path)
    result = find_item("fig3").run(Context(samples=1, seed=3, data=(str(path), "another")))
    assert f"on the patches of {path}, 1 seed, 128 iterations" in result.label
    assert result.about["start"] == f"the patches of {path}"
    assert {row[5] for row in result.tables[0].rows} == {None}  # one seed has no deviation
    again = log10_curves([3], x=image_patches(path))
    expected = [pytest.approx(float(v[0, -1])) for v in again.values()]
    assert [row[4] for row in result.tables[0].rows] == expected
    svg = result.figures["fig3"].svg()
    assert "One layer iterated, 1 seed:" in svg
    assert len(re.findall(r'stroke-width="2"', svg)) == 20 + 4  # every cell, and the legend


def test_figure_3_takes_twenty_seeds_and_stands_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.paper.fig3._LAYERS", 2)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = find_item("fig3").run(Context())
    assert "One layer iterated, 20 seeds" in result.figures["fig3"].svg()
    assert "20 seeds, 2 iterations" in result.label
    (table,) = result.tables
    assert table.columns == ["H", "LayerNorm", "mode", "its weights", "log10 HFC/LFC", "std", "seeds below 1"]
    for row, values in zip(table.rows, log10_curves(range(20), 2).values(), strict=True):
        assert row[6] == f"{sum(v < 0 for v in values[:, -1].tolist()) / 20:.0%}"


def test_figure_3_holds_mean_deviation_and_share_of_its_seeds() -> None:
    result = find_item("fig3").run(Context(samples=2, seed=5))
    assert result.about == {"seeds": [5, 6], "start": "random tokens (n = 64, d = 32)"}
    for row, (scenario, curves) in zip(result.tables[0].rows, log10_curves([5, 6]).items(), strict=True):
        values = curves[:, -1]
        assert row[:3] == [
            scenario.form,
            {None: "none", "pre": "Pre-LN", "post": "Post-LN"}[scenario.norm],
            scenario.mode,
        ]
        assert row[3] == ("" if scenario.norm is None else {1: "+", -1: "−"}[scenario.sign])
        assert row[4:6] == [pytest.approx(float(values.mean())), pytest.approx(float(values.std()))]
        assert row[6] == f"{sum(v < 0 for v in values.tolist()) / 2:.0%}"


def test_figure_5_names_its_models_and_shows_them_before_and_after_folding(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    arguments = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "num_heads": 2, "depth": 2, "num_classes": 4}
    config = {"schema": "unsmooth-model/1", "library": "timm", "name": "vit_tiny_patch16_224", "arguments": arguments}
    (tmp_path / "config.json").write_text(json.dumps({**config, "mean": [0.5] * 3, "std": [0.5] * 3}))
    model = timm.create_model("vit_tiny_patch16_224", **arguments)
    for block in model.blocks:  # the norm turns every eigenvalue around
        block.norm1.weight.data.fill_(-1)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    result = find_item("fig5").run(Context(models=(f"Mine={tmp_path}",), seed=3))
    assert "with models that you named" in result.label
    assert (result.about["models"], result.about["seed"]) == ([f"Mine={tmp_path}"], 3)
    assert result.about["made"].keys() >= {"date", "commit", "versions"}
    bare, folded = result.tables[0].rows
    assert (bare[:3], folded[:3]) == (["Mine", "vision", "bare"], ["Mine", "vision", "folded"])
    assert bare[8] == folded[8] == 2 * 16
    centred = torch.eye(16, dtype=torch.float64) - 1 / 16
    for row, around in ((bare, torch.eye(16, dtype=torch.float64)), (folded, -centred)):
        maps = [(b.attn.proj.weight @ b.attn.qkv.weight[-16:]).detach().double() @ around for b in model.blocks]
        values = torch.cat([torch.linalg.eigvals(h) for h in maps]).real
        some = values[values.abs() > 1e-9 * values.abs().max()]  # centring takes one direction away
        assert row[6] == pytest.approx(100 * (1 - len(some) / len(values)), abs=0.06)
        assert row[7] == pytest.approx(float(some.median()), rel=1e-4)
        assert row[3] == pytest.approx(100 * float((some < 0).double().mean()), abs=0.06)


def test_shares_of_figure_5_are_those_of_the_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("timm")
    from unsmooth.paper.depth import RANDOM
    from unsmooth.sources import load_model

    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    result = find_item("fig5").run(Context())
    assert "one untrained model" in result.label
    bare = result.tables[0].rows[0]
    torch.manual_seed(0)
    real = []
    for block in load_model(RANDOM, random_init=True).model.blocks:
        w_v, w_proj = block.attn.qkv.weight[-192:].double(), block.attn.proj.weight.double()
        real.append(torch.linalg.eigvals(w_proj @ w_v).real)
    values = torch.cat(real)
    assert bare[2] == "bare"
    assert bare[8] == len(values) == 12 * 192
    assert bare[3] == pytest.approx(100 * float((values < 0).double().mean()), abs=0.06)
    assert bare[5] == pytest.approx(100 * float((values < -1).double().mean()), abs=0.06)


def test_figure_5_takes_saved_results_and_files_of_explain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, little_zoo: Path
) -> None:
    import json

    from unsmooth.analysis import explain
    from unsmooth.errors import DataError
    from unsmooth.sources import load_model, open_data

    computed = find_item("fig5").run(Context())
    assert "the models that ship with unsmooth" in computed.label
    loaded = load_model("zoo:cifar100-plain", dtype=torch.float64)
    explained = explain(loaded, open_data("bundled", loaded, samples=1), spectra=0, max_products=1)
    explained.save(tmp_path / "plain.json")
    from_file = find_item("fig5").run(Context(models=(f"cifar100-plain={tmp_path / 'plain.json'}",)))
    for mine, theirs in zip(from_file.tables[0].rows, computed.tables[0].rows, strict=False):
        assert mine[:5] == theirs[:5]
        assert mine[7] == pytest.approx(theirs[7], rel=1e-3)
    (little_zoo / "results").mkdir()
    file = little_zoo / "results" / "fig5.json"
    file.write_text(json.dumps({"name": "fig5", **computed.to_json()}), encoding="utf-8")
    again = find_item("fig5").run(Context())
    assert again.tables[0].rows == computed.tables[0].rows
    assert again.about["made"] == computed.about["made"]
    assert "cifar100-plain (vision)" in " ".join(again.notes)
    added = find_item("fig5").run(Context(models=(str(file), f"Mine={tmp_path / 'plain.json'}")))
    assert list(added.about["spectra"]) == [*computed.about["spectra"], "Mine"]
    assert {**added.about["spectra"], **computed.about["spectra"]} == added.about["spectra"]
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is not what `unsmooth reproduce fig5 --out` writes"):
        find_item("fig5").run(Context())


def test_figure_5_says_on_how_many_models_the_claim_fails() -> None:
    from unsmooth.paper.fig5 import Spectra, distribution, verdicts

    def spectra(kind: str, negative: int, of: int = 100) -> Spectra:
        values = torch.cat([-torch.rand(negative) - 0.1, torch.rand(of - negative) + 0.1]).to(torch.complex128)
        found = distribution([values])
        return Spectra(kind=kind, layers=1, width=100, reference="", weights="", bare=found, folded=found)

    models = {"a": spectra("vision", 70), "b": spectra("vision", 50), "c": spectra("language", 51),
              "d": spectra("language", 30), "x-sharpening": spectra("vision", 100)}  # fmt: skip
    (said,) = verdicts(models)
    assert said.startswith("the claim fails on 2 of 4 models whose eigenvalues were free: a (vision) 70 %, negative;")
    assert "sharpening" not in said
    assert verdicts({"x-sharpening": models["x-sharpening"]}) == []
    near = [spectra("language", count, of=1000) for count in (546, 554)]  # one printed number, one verdict
    (said,) = verdicts({"e": near[0], "f": near[1]})
    assert said.endswith("e (language) 55 %, even; f (language) 55 %, even")


def test_figure_1_marks_all_definitions_after_the_first_that_a_work_claims() -> None:
    _, table = find_item("fig1").run(Context()).tables
    marks = {row[0]: row[1:] for row in table.rows}
    assert marks["Wang et al. 2022"] == ["✓", "✓", "✓"]
    assert marks["Shi et al. 2022"] == [None, "✓", "✓"]
    assert marks["Dong et al. 2021"] == [None, None, "✓"]
    assert marks["this paper"] == ["✗", "✗", "✗"]
    assert len(marks) == 13
