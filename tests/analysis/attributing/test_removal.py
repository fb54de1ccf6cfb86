"""Parts that are taken out are out, of every family, and what the end loses is reported beside the share."""

from __future__ import annotations

import pytest
import torch
from model_cases import CASES, Case, every_case
from small_models import images, vit
from torch import Tensor, nn

import unsmooth
from unsmooth.analysis import Attributor
from unsmooth.analysis.attributing.removal import end_ratio, removed
from unsmooth.analysis.attributing.shares import Part
from unsmooth.errors import OptionError
from unsmooth.models import hook_points
from unsmooth.models.forward import call

CHOSEN = (
    "timm-vit",
    "timm-parallel-scaled",
    "torch-post-padded",
    "torch-pre-token-first",
    "bert",
    "albert",
    "gpt2",
    "gemma2",
    "opt",
)


@every_case([case for case in CASES if case.name in CHOSEN])
def test_what_is_taken_out_is_not_added(case: Case) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    attributor = Attributor(model)
    v, placement = attributor.view, attributor.view.family.placement
    ends = {"pre": ("mid", "post"), "post": ("mid", "mlp_sum")}.get(placement, ("pre", "post"))
    names = {*ends, "attn"}
    seen: dict[str, Tensor] = {}

    def keep(point: str, x: Tensor) -> None:
        seen[point.rpartition(".")[2]] = x.clone()

    points = [f"blocks.1.{name}" for name in names]
    with torch.no_grad(), removed(attributor, Part(1, "mlp"), batch), hook_points(v, points, keep):
        call(model, batch)
    added = seen[ends[1]] - seen[ends[0]] - (seen["attn"] if placement.startswith("parallel") else 0)
    assert float(added.abs().max()) < 1e-9
    whole, without = (end_ratio(attributor, batch), None)
    with removed(attributor, Part(0, "head", 1), batch):
        without = end_ratio(attributor, batch)
    assert float((whole - without).abs().max()) > 1e-9


def test_taking_out_everything_that_attention_adds_leaves_the_stream() -> None:
    model, batch = vit().double().eval(), images(1)[0].double()
    attributor, seen = Attributor(model), {}
    v = attributor.view
    parts = [Part(1, "mean"), *(Part(1, "head", h) for h in range(3))]
    with torch.no_grad(), hook_points(v, ["blocks.1.attn"], seen.__setitem__):
        call(model, batch)
    total = torch.zeros_like(seen["blocks.1.attn"])
    whole = seen["blocks.1.attn"].clone()
    for part in parts:
        with (
            torch.no_grad(),
            removed(attributor, part, batch),
            hook_points(v, ["blocks.1.pre", "blocks.1.mid"], seen.__setitem__),
        ):
            call(model, batch)
        total += whole - (seen["blocks.1.mid"] - seen["blocks.1.pre"])
    assert torch.allclose(total, whole, atol=1e-10)


def test_the_last_mlp_taken_out_at_some_tokens_changes_these_only() -> None:
    model, batch = vit().double().eval(), images(1)[0].double()
    attributor, seen = Attributor(model), []
    nowhere = torch.zeros(2, 17, dtype=torch.bool)
    one = nowhere.clone()
    one[0, 3] = True
    for only in (nowhere, 3, one, one[:1]):
        with (
            torch.no_grad(),
            removed(attributor, Part(2, "mlp"), batch, only=only),
            hook_points(attributor.view, ["blocks.2.post"], lambda _, x: seen.append(x.clone())),
        ):
            call(model, batch)
    moved = [(x - seen[0]).abs().amax(-1) for x in seen[1:]]
    assert (moved[0] > 1e-9).nonzero().tolist() == [[0, 3], [1, 3]]
    assert (moved[1] > 1e-9).nonzero().tolist() == (moved[2] > 1e-9).nonzero().tolist() == [[0, 3]]


def test_direct_and_total_stand_side_by_side() -> None:
    torch.manual_seed(0)
    model, data = vit().double().eval(), [x.double() for x in images(2)]
    found = unsmooth.attribute(model, data)
    effects = found.effects()
    assert len(effects) == 3
    assert set(effects["inputs"]) == {4}
    assert effects["direct"].tolist() == found.strongest(3)["mean"].tolist()
    last = unsmooth.attribute(model, data, total=99, passes=400).effects().query("layer == 2 and part == 'MLP'").iloc[0]
    attributor = Attributor(model)
    gaps = []
    for batch in data:
        whole = end_ratio(attributor, batch)
        with removed(attributor, Part(2, "mlp"), batch):
            gaps.append(whole - end_ratio(attributor, batch))
    assert last["total"] == pytest.approx(float(torch.cat(gaps).mean()))
    with pytest.raises(OptionError, match="way to remove"):
        unsmooth.attribute(model, data, total=1, remove="badly")


def test_forward_passes_are_bounded_and_one_batch_is_always_taken() -> None:
    model, passes = vit().eval(), []
    model.register_forward_hook(lambda *_: passes.append(1))

    def walked(total: int, most: int) -> tuple[int, set[int]]:
        passes.clear()
        found = unsmooth.attribute(model, iter(images(5)), total=total, passes=most)
        return len(passes), {row["inputs"] for row in found.totals}

    without = walked(0, 32)
    assert without[1] == set()
    for total, most in ((3, 32), (3, 14), (2, 10)):
        took, inputs = walked(total, most)
        assert took - without[0] <= most
        assert inputs == {2 * (most // (1 + 2 * total))}
    assert walked(20, 3)[1] == {2}


def test_a_model_that_cannot_run_without_a_part_keeps_its_shares() -> None:
    model, allowed = vit().eval(), [3]  # a check, a batch, and the end as it is

    def fail(*_: object) -> None:
        allowed[0] -= 1
        if allowed[0] < 0:
            raise torch.OutOfMemoryError("no room")

    model.register_forward_pre_hook(fail)
    found = unsmooth.attribute(model, images(1))
    assert found.inputs == 2
    assert found.totals == []
    assert any("no total effect" in note for note in found.notes)


@every_case([case for case in CASES if case.name == "albert"])
def test_heads_are_taken_out_where_matrices_are_shown_after_what_they_made_was_added(case: Case) -> None:
    """One layer that is used again and again: the part of one use alone is out."""
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    found = unsmooth.attribute(model, [batch], total=99)
    assert not [note for note in found.notes if "no total effect" in note]
    assert {row["kind"] for row in found.totals} == {"mean", "head", "mlp"}
    attributor, seen = Attributor(model), {}
    v, heads = attributor.view, {row["head"] for row in found.totals if row["kind"] == "head"}
    points = ["blocks.1.pre", "blocks.1.attn_sum"]
    with torch.no_grad(), hook_points(v, points, lambda name, x: seen.__setitem__(name, x.clone())):
        call(model, batch)
    added, left = seen["blocks.1.attn_sum"] - seen["blocks.1.pre"], torch.zeros(())
    for part in (Part(1, "mean"), *(Part(1, "head", h) for h in sorted(heads))):
        new: dict[str, Tensor] = {}
        with torch.no_grad(), removed(attributor, part, batch), hook_points(v, points, new.__setitem__):
            call(model, batch)
        assert torch.equal(new["blocks.1.pre"], seen["blocks.1.pre"])  # the use before has it still
        left = left + seen["blocks.1.attn_sum"] - new["blocks.1.attn_sum"]
    assert torch.allclose(left, added, atol=1e-9)


def test_where_all_tokens_depend_on_features_a_note_says_why_there_is_no_total() -> None:
    found = unsmooth.attribute(vit().eval(), images(1), tokens="no-outliers")
    assert found.totals == []
    assert any("no total effects" in note for note in found.notes)


def test_what_an_mlp_writes_to_one_token_is_taken_out_alone_as_well() -> None:
    torch.manual_seed(0)
    model, data = vit().double().eval(), [x.double() for x in images(1)]

    def explode(module: nn.Module, args: object, output: Tensor) -> Tensor:
        output = output.clone()
        output[:, 4] += 300 * torch.linspace(-1, 1, 24, dtype=torch.float64)
        return output

    model.blocks[2].mlp.register_forward_hook(explode)
    whole, alone = unsmooth.attribute(model, data, total=1).totals
    assert (whole["layer"], whole["part"], alone["part"]) == (2, "MLP", "MLP at position 4")
    assert alone["direct"] == pytest.approx(whole["direct"], rel=0.2)
    assert alone["total"] == pytest.approx(whole["total"], rel=0.2)  # of the last MLP, and one token has it all
