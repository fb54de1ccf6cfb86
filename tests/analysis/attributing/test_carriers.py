"""A token that an MLP makes long is found, with its writer, the attention on it, and what it does to the metric."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from model_cases import CASES, Case, every_case
from small_models import bert, images, vit, words
from torch import Tensor, nn

import unsmooth
from unsmooth.analysis.attributing.carriers import AS_IT_IS, LEFT_OUT
from unsmooth.errors import CheckpointError

LONG = 40.0
SHAPES = ("timm-parallel-scaled", "torch-pre-token-first", "albert", "gemma2")


class Writes(nn.Module):
    """An MLP that adds a long vector to the first token."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        added = self.inner(x).clone()
        added[:, 0, 1] += LONG
        return added


def without_outlier() -> nn.Module:
    torch.manual_seed(0)
    model = vit().double().eval()
    # As long as a patch: timm's is so short at the start that it is an outlier, a standard normal one nearly so long.
    nn.init.normal_(model.cls_token, std=0.5)
    return model


def with_outlier() -> nn.Module:
    model = without_outlier()
    model.blocks[1].mlp = Writes(model.blocks[1].mlp)
    return model


@pytest.fixture(scope="module")
def found() -> unsmooth.Attribution:
    torch.manual_seed(1)
    batches = [batch.double() for batch in images(3)]
    return unsmooth.attribute(with_outlier(), batches, tokens=("all", "no-outliers"), carriers=True)


def test_the_writer_of_the_outlier_is_found(found: unsmooth.Attribution) -> None:
    assert found.carriers is not None
    account = found.carriers.account
    assert account is not None
    assert (account.layer, account.point, account.position, account.everywhere) == (1, "blocks.1.post", 0, True)
    rows = found.carriers.frame().set_index("layer")
    assert rows.loc[1, "times"] == pytest.approx(account.ratio)
    assert rows.loc[1, "position"] == 0
    assert rows.loc[1, "feature"] == 1
    assert rows.loc[1, "kurtosis_token"] > 2 * rows.loc[0, "kurtosis_token"]
    assert rows.loc[0, "outliers"] == 0
    assert rows.loc[1, "outliers"] == 1


def test_the_account_ends_where_the_model_does_and_without_the_write_differs_after_it_only(
    found: unsmooth.Attribution,
) -> None:
    assert found.carriers is not None
    account = found.carriers.account
    assert account is not None
    whole, left = (np.array(account.curves[run]) for run in (AS_IT_IS, LEFT_OUT))
    assert whole[[0, -1]] == pytest.approx([found.under("all").start.mean, found.under("all").end.mean])
    assert account.curves[f"{AS_IT_IS}, others"][-1] == pytest.approx(found.under("no-outliers").end.mean)
    assert left[:2] == pytest.approx(whole[:2])  # the input, and after layer 0
    assert whole[2] == pytest.approx(np.log(16) / 2, abs=0.1)  # one long token of 17
    assert abs(left[2] - whole[2]) > 1e-4
    # tokens that are not written to are the same until the next layer's attention
    assert account.curves[f"{LEFT_OUT}, others"][2] == pytest.approx(account.curves[f"{AS_IT_IS}, others"][2])
    assert account.sink[AS_IT_IS][:2] == pytest.approx(account.sink[LEFT_OUT][:2])
    assert account.uniform == pytest.approx([1 / 17] * 3)


def test_attention_on_the_first_token_equals_the_mean_over_the_other_queries() -> None:
    from unsmooth.models import capture_attention, view

    model, batch = without_outlier(), images(1)[0].double()
    found = unsmooth.attribute(model, [batch], carriers=True).carriers
    assert found is not None
    assert found.account is None  # no outlier, nothing is left out
    seen: dict[int, Tensor] = {}
    with torch.no_grad(), capture_attention(view(model), seen.__setitem__):
        model(batch)
    for layer, a in seen.items():
        expected = a[:, :, 1:, 0].mean((0, 2))
        assert found.sink_frame().query(f"layer == {layer}")["first"].to_numpy() == pytest.approx(expected.numpy())


def test_uniform_attention_is_that_of_the_mask_and_padding_takes_no_part() -> None:
    model = bert().double().eval()
    (batch,) = words(1)
    batch = {**batch, "attention_mask": torch.tensor([[1] * 7, [1] * 5 + [0] * 2])}
    for causal in (False, True):
        share = np.mean([np.mean([1 / (i if causal else n) for i in range(2, n + 1)]) for n in (7, 5)])
        model.config.is_decoder = causal
        for module in model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = causal
        found = unsmooth.attribute(model, [batch], carriers=True).carriers
        assert found is not None
        assert found.first_uniform == pytest.approx(share)
        rows = found.frame().query("layer >= 0")
        assert rows["first_uniform"].to_numpy() == pytest.approx(np.full(len(rows), share))


def test_kurtosis_is_the_fourth_moment_over_the_features_of_a_token() -> None:
    from scipy import stats

    from unsmooth.models import hook_points, view

    model, batch = without_outlier(), images(1)[0].double()
    found = unsmooth.attribute(model, [batch], carriers=True).carriers
    assert found is not None
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(view(model), ["blocks.2.post"], seen.__setitem__):
        model(batch)
    expected = stats.kurtosis(seen["blocks.2.post"].numpy(), axis=-1, fisher=False).mean()
    assert found.layers[3]["kurtosis"] == pytest.approx(expected)


def test_padding_and_the_split_into_batches_change_nothing() -> None:
    model = bert().double().eval()
    (batch,) = words(1)
    batch = {**batch, "attention_mask": torch.ones_like(batch["input_ids"])}
    batch["attention_mask"][0, -2:] = 0
    count = len(batch["input_ids"])
    whole = unsmooth.attribute(model, [batch], carriers=True)
    parts = unsmooth.attribute(
        model, [{k: v[i : i + 1] for k, v in batch.items()} for i in range(count)], carriers=True
    )
    wider = {k: torch.nn.functional.pad(v, (0, 3)) for k, v in batch.items()}
    longer = unsmooth.attribute(model, [wider], carriers=True)
    # positions and features that two inputs each have most: which is named does not depend on their order
    turned = unsmooth.attribute(model, [{k: v.flip(0) for k, v in batch.items()}], carriers=True)
    for other in (parts, longer, turned):
        assert whole.carriers is not None
        assert other.carriers is not None
        np.testing.assert_allclose(np.array(whole.carriers.heads), np.array(other.carriers.heads), atol=1e-9)
        for left, right in zip(whole.carriers.layers, other.carriers.layers, strict=True):
            assert left == pytest.approx(right, rel=1e-9)


class WritesMore(nn.Module):
    """An MLP that makes another token longer still, in inputs that are marked by their brightness."""

    def __init__(self, inner: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.inner, self.marked = inner, torch.zeros(0)
        model.register_forward_pre_hook(self.look)

    def look(self, model: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.marked = (args[0].mean((1, 2, 3)) > 2).double()

    def forward(self, x: Tensor) -> Tensor:
        added = self.inner(x).clone()
        added[:, 5, 2] += 100 * LONG * self.marked
        return added


def test_the_account_follows_from_all_inputs_whichever_comes_first() -> None:
    model = with_outlier()
    model.blocks[2].mlp = WritesMore(model.blocks[2].mlp, model)
    batch = torch.cat([batch.double() for batch in images(2)])[:4]
    batch[0] += 5
    alone = unsmooth.attribute(model, [batch[:1]], carriers=True).carriers
    assert alone is not None
    assert alone.account is not None
    assert alone.account.layer == 2
    accounts = []
    for order in (batch, batch.flip(0)):
        for size in (1, 4):
            found = unsmooth.attribute(model, list(order.split(size)), carriers=True).carriers
            assert found is not None
            assert found.account is not None
            accounts.append(found.account)
    for account in accounts:
        assert (account.layer, account.inputs) == (1, 4)
        for run, curve in account.curves.items():
            assert curve == pytest.approx(accounts[0].curves[run], rel=1e-9)


def test_a_report_names_one_maker_though_few_inputs_are_attributed() -> None:
    """Of the first input alone layer 2 makes the outlier; of the four that are measured layer 1 does."""
    from unsmooth.page.words.carriers import account_found
    from unsmooth.page.words.findings import findings

    model = with_outlier()
    model.blocks[2].mlp = WritesMore(model.blocks[2].mlp, model)
    batch = torch.cat([batch.double() for batch in images(2)])[:4]
    batch[0] += 5
    subject = unsmooth.analysis.analyse(model, [batch], explain_inputs=1)
    assert subject.attribution is not None
    assert subject.attribution.carriers is not None
    assert account_found(subject.attribution.carriers).startswith("The MLP of layer 1 brings the first token")
    (said,) = [str(found.parts[0]) for found in findings([subject]) if found.about == "outliers"]
    assert "the MLP of layer 1 brings its norm to" in said


@every_case([case for case in CASES if case.name in SHAPES])
def test_families_of_every_shape(case: Case) -> None:
    found = unsmooth.attribute(case.model(torch.float64), [case.inputs(torch.float64)], carriers=True).carriers
    assert found is not None
    assert len(found.layers) == case.layers + 1
    heads = np.array(found.heads)
    assert (heads >= 0).all()
    assert (heads <= 1 + 1e-6).all()


def test_a_result_saves_and_draws_itself_and_says_who_attends(found: unsmooth.Attribution, tmp_path: Path) -> None:
    from unsmooth.figures import carriers
    from unsmooth.page.words.carriers import account_found, sinks_found

    again = unsmooth.load(found.save(tmp_path / "a.json"))
    assert isinstance(again, unsmooth.Attribution)
    assert again.to_json() == found.to_json()
    assert again.carriers is not None
    assert "The MLP of layer 1 brings the first token to" in account_found(again.carriers)
    assert sinks_found(again.carriers).startswith(
        "From layer 2 on heads give the token that the MLP of layer 1 makes extreme"
    )
    assert again.carriers.account is not None
    again.carriers.account = replace(again.carriers.account, several=True, in_all=False, makers=3)
    assert "heads give the tokens that the MLP of layer 1 makes extreme" in sinks_found(again.carriers)
    said = account_found(again.carriers)
    assert "the first token up to" in said
    assert "median norm (one of 3 layers that make it an outlier anew)." in said
    for wide in (1072, 346):
        assert "ln HFC/LFC with and without" in carriers(again, wide=wide).svg()
    plain = json.loads(json.dumps(found.to_json())) | {"carriers": {"layers": 3, "heads": [], "account": None}}
    with pytest.raises(CheckpointError, match="carriers are damaged"):
        unsmooth.Attribution.from_json(plain)


def test_no_definition_of_a_column_hides_that_of_a_part() -> None:
    from unsmooth.analysis.attributing.attribution import DEFINITIONS as PARTS
    from unsmooth.analysis.attributing.carriers import DEFINITIONS as COLUMNS

    assert not PARTS.keys() & COLUMNS.keys()
