"""Shares of ln HFC/LFC are exact, and depend on nothing but the model and its inputs."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from model_cases import CASES, Case, every_case
from reference.analysis import divisia_shares
from small_models import bert, images, vit, words
from torch import nn

import unsmooth
from unsmooth.analysis.attributing.shares import parts_of
from unsmooth.errors import CheckpointError, FeatureError, OptionError, WeightsError
from unsmooth.models import capture_attention, hook_points, view
from unsmooth.theory.divisia import State, Step, logarithmic_mean, spectral_side

# One of every kind: LayerScale, registers, norms on the output, post-norm, parallel, shared blocks, grouped queries.
SHAPES = (
    "timm-vit", "timm-deit3", "timm-respost", "timm-parallel-scaled", "torch-post-padded", "torch-pre-token-first",
    "bert-padded", "albert", "gpt2", "llama", "gemma2", "gpt-neox", "falcon-40b", "modernbert",
)  # fmt: skip


def random_vit(**options: object) -> nn.Module:
    """Every parameter random, LayerScale included; float64."""
    torch.manual_seed(0)
    model = vit(init_values=0.5, **options).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def shares_of(found: unsmooth.Attribution, tokens: str | None = None) -> np.ndarray:
    return found.frame(tokens, full=True)["mean"].to_numpy()


@every_case([case for case in CASES if case.name in SHAPES])
def test_shares_sum_to_the_measured_change(case: Case) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    found = unsmooth.attribute(model, [batch])
    seen: dict[str, torch.Tensor] = {}
    v = view(model)
    ends = ["blocks.0.pre", f"blocks.{case.layers - 1}.post"]
    with torch.no_grad(), hook_points(v, ends, seen.__setitem__), capture_attention(v, lambda i, a: None):
        model(**batch) if isinstance(batch, dict) else model(batch)
    kept = batch.get("attention_mask") if isinstance(batch, dict) else None
    if isinstance(batch, dict) and "src_key_padding_mask" in batch:
        kept = ~batch["src_key_padding_mask"]
    first, last = (torch.stack([_log_ratio(x, kept, i) for i, x in enumerate(seen[p])]) for p in ends)
    assert shares_of(found).sum() == pytest.approx(float((last - first).mean()), abs=1e-10)
    assert found.under().start.mean == pytest.approx(float(first.mean()), abs=1e-10)
    assert found.positions["all"].sum() == pytest.approx(float((last - first).mean()), abs=1e-4)


def _log_ratio(x: torch.Tensor, kept: torch.Tensor | None, i: int) -> torch.Tensor:
    x = x if kept is None else x[kept[i].bool()]
    mean = x.mean(0)
    return torch.log((x - mean).norm() / (mean.norm() * len(x) ** 0.5))


@pytest.mark.parametrize("name", ["timm-deit3", "timm-respost", "bert-padded", "gemma2", "gpt-neox"])
def test_shares_are_those_of_the_definition(name: str) -> None:
    """Every head and the mean path formed as matrices, one input at a time."""
    case = next(case for case in CASES if case.name == name)
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    frame = unsmooth.attribute(model, [batch]).frame(full=True)
    slow = divisia_shares(model, batch)
    # Hugging Face computes some softmaxes and norms in float32 whatever the dtype
    allowed = 1e-10 if name.startswith("timm") else 2e-6
    rows = frame.to_dict("records")
    for part, row in zip(parts_of(rows), rows, strict=True):
        assert row["mean"] == pytest.approx(slow[part], abs=allowed), part
    assert len(slow) == len(frame)


def test_constants_may_be_kept_anywhere() -> None:
    """Moving a constant from b_v to b_proj changes no output, and no share."""
    model, data = random_vit(), [x.double() for x in images(1)]
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for block in moved.blocks:  # type: ignore[union-attr]
            width = block.attn.proj.weight.shape[0]
            constant = block.attn.qkv.bias[2 * width :].clone()
            block.attn.qkv.bias[2 * width :] = 0
            block.attn.proj.bias += block.attn.proj.weight @ constant
    assert torch.allclose(model(data[0]), moved(data[0]), atol=1e-9)
    here, there = (shares_of(unsmooth.attribute(m, data)) for m in (model, moved))
    assert np.abs(here).max() > 1e-2
    assert here == pytest.approx(there, abs=1e-10)


def test_splitting_and_batch_size_change_nothing() -> None:
    model, data = random_vit(), torch.cat([x.double() for x in images(3)])
    whole = unsmooth.attribute(model, [data], ("all", "patches"), spectrum=True)
    for sizes in ([1] * 6, [4, 2]):
        parted = unsmooth.attribute(model, list(data.split(sizes)), ("all", "patches"), spectrum=True)
        for policy in whole.policies:
            for column in ("mean", "std", "hfc", "lfc", "negative"):
                a, b = (f.frame(policy, full=True)[column].to_numpy() for f in (whole, parted))
                assert a == pytest.approx(b, abs=1e-10, nan_ok=True), column
            assert whole.positions[policy] == pytest.approx(parted.positions[policy], abs=1e-6)
    assert whole.inputs == 6


def test_padding_changes_nothing() -> None:
    torch.manual_seed(0)
    model = bert().double().eval()
    (batch,) = words(1)
    together = unsmooth.attribute(model, [batch])
    alone = [{k: x[i : i + 1, : int(batch["attention_mask"][i].sum())] for k, x in batch.items()} for i in range(2)]
    assert shares_of(unsmooth.attribute(model, alone)) == pytest.approx(shares_of(together), abs=1e-6)
    left = {"input_ids": batch["input_ids"].flip(1), "attention_mask": batch["attention_mask"].flip(1)}
    found = unsmooth.attribute(model, [left], tokens="no-outliers")
    assert found.positions["no-outliers"].shape[0] == 7  # of tokens, not of padding
    assert "padding is left out" in together.about.definitions.tokens["all"]
    rows = together.by_token()
    assert rows["per_input"].max() <= 7
    assert set(rows["token"]) <= set(batch["input_ids"][batch["attention_mask"].bool()].tolist())


def test_a_step_back_is_the_step_with_the_other_sign() -> None:
    torch.manual_seed(0)
    x, u, w = torch.randn(3, 2, 6, 4, dtype=torch.float64)
    there, back = Step(State.of(x), State.of(x + u + w)), Step(State.of(x + u + w), State.of(x))
    assert torch.allclose(there.shares(u), -back.shares(-u))
    assert torch.allclose(there.shares(u) + there.shares(w), there.total())


def test_a_nearly_collapsed_step_is_exact() -> None:
    torch.manual_seed(0)
    x = 1 + 1e-9 * torch.randn(1, 6, 4, dtype=torch.float64)
    u = 1e-9 * torch.randn(1, 6, 4, dtype=torch.float64)
    before, after = State.of(x), State.of(x + u)
    step = Step(before, after)
    assert float(step.total().sum()) == pytest.approx(float(after.ratio - before.ratio), abs=1e-10)
    same = Step(before, before)
    assert float(same.total().abs().max()) == 0


def test_the_logarithmic_mean_lies_between_and_is_continuous() -> None:
    a = torch.tensor(2.0, dtype=torch.float64)
    for factor in (1 + 1e-12, 1 + 0.9e-5, 1 + 1.1e-5, 3.0, 1e9):
        mean = logarithmic_mean(a, a * factor)
        assert a <= mean <= a * factor
        assert float(mean) == pytest.approx(2 * (factor - 1) / np.log1p(factor - 1), rel=1e-10)


def test_both_sides_of_the_spectrum_sum_to_the_head_and_a_symmetric_one_is_split_by_its_eigenvectors() -> None:
    torch.manual_seed(0)
    w_v, w_proj = torch.randn(2, 8, 3, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    side = spectral_side(w_v, w_proj)
    assert torch.allclose(side @ side, side, atol=1e-9)  # a projector
    values = torch.linalg.eigvals(w_v @ side @ w_proj)
    assert (values.real <= 1e-9).all()
    frame = unsmooth.attribute(random_vit(), [images(1)[0].double()], spectrum=True).frame(full=True)
    heads = frame[frame["kind"] == "head"]
    assert (heads["negative"] + heads["positive"] - heads["mean"]).abs().max() < 1e-12
    assert heads["negative"].abs().max() > 1e-4
    assert frame[frame["kind"] != "head"]["negative"].isna().all()


def test_the_model_is_left_as_it_was() -> None:
    model = vit()
    before = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    unsmooth.attribute(model, images(1))
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == before
    assert model.training
    assert all(block.attn.fused_attn == vit().blocks[0].attn.fused_attn for block in model.blocks)  # type: ignore[union-attr]


def test_outliers_are_left_out_in_every_layer() -> None:
    """A token that one layer blows up leaves all of them, so that the steps still telescope."""
    model = random_vit()
    batch = images(1, 3)[0].double()
    v = view(model)

    def explode(module: nn.Module, args: object, output: torch.Tensor) -> torch.Tensor:
        output = output.clone()
        output[:, 5] *= 300
        return output

    handle = v.layers[1].block.mlp.register_forward_hook(explode)
    found = unsmooth.attribute(model, [batch], ("all", "no-outliers"))
    handle.remove()
    top = found.strongest(1).iloc[0]
    assert (top["layer"], top["part"]) == (1, "MLP")
    assert int(found.by_position(count=1).iloc[0]["position"]) == 5
    assert not found.positions["no-outliers"][5].any()
    assert shares_of(found, "no-outliers").sum() == pytest.approx(found.under("no-outliers").change.mean, abs=1e-10)


def test_it_saves_and_loads(tmp_path: Path) -> None:
    found = unsmooth.attribute(random_vit(), [images(1)[0][:1].double()], ("all", "patches"), spectrum=True)
    again = unsmooth.load(found.save(tmp_path / "a.json"))
    assert isinstance(again, unsmooth.Attribution)
    assert repr(again) == repr(found)
    assert repr(again).splitlines()[0].endswith(" layers, 1 input")
    assert again.frame("patches", full=True).equals(found.frame("patches", full=True))
    assert (again.positions["all"] == found.positions["all"]).all()
    assert again.about == found.about
    text = (tmp_path / "a.json").read_text()
    for old, new in (('"kind": "mlp"', '"kind": "lunch"'), ('"tokens": ["all", ', '"tokens": ["none", ')):
        assert old in text
        (tmp_path / "b.json").write_text(text.replace(old, new))
        with pytest.raises(CheckpointError):
            unsmooth.load(tmp_path / "b.json")


def test_what_cannot_be_attributed_is_refused_by_name() -> None:
    model = vit().eval()
    with pytest.raises(FeatureError, match="no batch"):
        unsmooth.attribute(model, [])
    with pytest.raises(OptionError, match="token policy"):
        unsmooth.attribute(model, images(1)).under("patches")
    equal = CASES[[case.name for case in CASES].index("torch-pre")].model()
    with pytest.raises(FeatureError, match=r"does not exist at blocks\.0\.mid .* all tokens are equal"):
        unsmooth.attribute(equal, [torch.ones(1, 4, 32)])
    sink = next(case for case in CASES if case.sink)
    with pytest.raises(WeightsError, match="rows must sum to 1"):
        unsmooth.attribute(sink.model(), [sink.inputs()])
