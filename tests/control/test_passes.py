"""Weights are right whatever way the model is run: in part, checkpointed, without gradients, copied in between."""

from __future__ import annotations

import copy

import model_cases
import pytest
import torch
from control.cases import Around, images, outputs, vit
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from versions import NEEDS_NEWER_DYNAMO, checkpoint_activations

from unsmooth.control import SpectralControl, bake, control_of, reparametrize


class Again(Around):
    """A block that runs again in the backward pass."""

    def __init__(self, inner: nn.Module, reentrant: bool) -> None:
        super().__init__(inner)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return out


def controlled(depth: int = 3) -> nn.Module:
    return reparametrize(
        vit(depth=depth), form="symmetric", std=0.3, generator=torch.Generator().manual_seed(0)
    ).train()


def gradient(model: nn.Module, batch: object = None) -> Tensor:
    model.zero_grad()
    outputs(model, images() if batch is None else batch).square().sum().backward()
    found = control_of(model).theta.grad
    assert found is not None
    return found.clone()


def stopped() -> nn.Module:
    """A model whose last pass ended after its first block."""
    model = controlled()
    model.forward_intermediates(images(), indices=[0], stop_early=True)  # type: ignore[operator]
    return model


def test_a_pass_that_ended_early_leaves_no_stale_weights() -> None:
    model = stopped()
    with torch.no_grad():
        control_of(model).psi.mul_(2)
    expected = control_of(model).weights(2)[1].detach().mT
    torch.testing.assert_close(model.blocks[2].attn.proj.weight.detach(), expected)  # type: ignore[index, union-attr]
    torch.testing.assert_close(bake(model).blocks[2].attn.proj.weight.detach(), expected)  # type: ignore[index, union-attr]


def test_baking_after_a_pass_that_ended_early_reads_the_parameters_as_they_are() -> None:
    model = controlled().eval()
    model.forward_intermediates(images(), indices=[0], stop_early=True)  # type: ignore[operator]
    control_of(model).psi.data *= 0.5  # no version is counted here
    expected = copy.deepcopy(model)(images())
    torch.testing.assert_close(bake(model)(images()), expected, rtol=1e-5, atol=1e-5)


def test_a_pass_that_ends_in_another_thread_takes_no_weights_away(monkeypatch: pytest.MonkeyPatch) -> None:
    model = controlled().eval()
    control = control_of(model)
    expected = model.blocks[0].attn.proj.weight  # type: ignore[index, union-attr]
    control.fill(model, ())
    # The other pass ends while this one looks at its weights.
    monkeypatch.setattr(control, "_outdated", lambda layer, weights: control.clear(model, (), None))
    torch.testing.assert_close(model.blocks[0].attn.proj.weight, expected)  # type: ignore[index, union-attr]


def test_a_model_whose_pass_ended_early_can_be_copied() -> None:
    model = stopped()
    torch.testing.assert_close(copy.deepcopy(model)(images()), model(images()))


def test_a_pass_without_gradients_that_ended_early_does_not_take_gradients_away() -> None:
    model = controlled()
    with torch.no_grad():
        model.forward_intermediates(images(), indices=[0], stop_early=True)  # type: ignore[operator]
    assert model.blocks[2].attn.proj.weight.requires_grad  # type: ignore[index, union-attr]


@pytest.mark.parametrize("blocks", [[0], [1], [0, 1, 2]])
def test_reentrant_checkpoints_of_some_blocks_give_every_layer_its_gradient(blocks: list[int]) -> None:
    model = controlled()
    expected = gradient(model)
    for index in blocks:
        model.blocks[index] = Again(model.blocks[index], True)  # type: ignore[index, operator]
    torch.testing.assert_close(gradient(model), expected, rtol=1e-4, atol=1e-6)


def test_checkpoints_by_hand_work_when_blocks_compute_their_own_weights() -> None:
    model = controlled()
    expected = gradient(model)
    control_of(model).batched = False
    for index in range(3):
        model.blocks[index] = Again(model.blocks[index], False)  # type: ignore[index, operator]
    torch.testing.assert_close(gradient(model), expected, rtol=1e-4, atol=1e-6)


def test_checkpointing_is_noticed_in_a_part_and_when_only_features_are_asked_for() -> None:
    inner = vit(depth=3)
    model = reparametrize(Around(inner), form="symmetric").train()
    expected = gradient(model)
    inner.set_grad_checkpointing(True)  # type: ignore[operator]
    torch.testing.assert_close(gradient(model), expected, rtol=1e-4, atol=1e-6)
    features = inner.forward_features(images())  # type: ignore[operator]
    features.square().sum().backward()


def test_checkpointing_of_hugging_face_changes_nothing() -> None:
    case = next(case for case in model_cases.CASES if case.name == "bert-padded")
    model = reparametrize(case.model(), form="symmetric", std=0.3).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    expected = gradient(model, case.inputs())
    checkpoint_activations(model)
    torch.testing.assert_close(gradient(model, case.inputs()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # Dynamo's own, on a compiled block's input
@pytest.mark.parametrize(
    "how", ["blocks compiled", pytest.param("checkpointed and compiled", marks=NEEDS_NEWER_DYNAMO)]
)
def test_all_ways_to_run_give_the_same_gradient(how: str) -> None:
    model = controlled(depth=2)
    expected = gradient(model)
    torch._dynamo.reset()
    if how == "blocks compiled":
        for block in model.blocks:  # type: ignore[union-attr]
            block.compile(backend="aot_eager")
    else:
        model.set_grad_checkpointing(True)  # type: ignore[operator]
        model.compile(backend="aot_eager", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(gradient(model), expected, rtol=1e-4, atol=1e-6)


def test_inference_then_training_then_inference() -> None:
    model = controlled()
    with torch.inference_mode():
        before = model(images()).clone()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    gradient(model)
    optimiser.step()
    with torch.inference_mode():
        after = model(images()).clone()
    assert not torch.allclose(after, before)
    with torch.no_grad():
        torch.testing.assert_close(bake(model)(images()), after, rtol=1e-5, atol=1e-5)


def test_a_model_moved_to_half_precision_bakes_to_half_precision() -> None:
    model = controlled().eval()
    expected = model(images())
    model.half()
    out = model(images(dtype=torch.float16))
    torch.testing.assert_close(out.float(), expected, rtol=0.02, atol=0.02)
    baked = bake(model)
    assert {p.dtype for p in baked.parameters()} == {torch.float16}
    torch.testing.assert_close(baked(images(dtype=torch.float16)), out, rtol=1e-3, atol=1e-3)


def test_control_is_found_inside_wrappers_and_baked_there() -> None:
    inner = controlled().eval()
    model = Around(inner)
    assert control_of(model) is control_of(inner)
    assert isinstance(control_of(nn.DataParallel(inner)), SpectralControl)
    expected = model(images())
    bake(model)
    assert not hasattr(inner, "spectral_control")
    torch.testing.assert_close(model(images()), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrap", [Around, nn.Sequential])
def test_the_transformer_inside_a_wrapper_has_the_parameters_and_its_copies_follow_them(wrap: type) -> None:
    inner = vit()
    model = reparametrize(wrap(inner)).eval()
    control = control_of(inner)
    assert {id(p) for p in control.parameters()} <= {id(p) for p in inner.parameters()}
    averaged = copy.deepcopy(inner)
    with torch.no_grad():
        control.theta += 0.1 * torch.randn_like(control.theta)
    averaged.load_state_dict(inner.state_dict())
    expected = model(images())
    torch.testing.assert_close(averaged(images()), expected, rtol=0, atol=0)
    bake(inner)
    torch.testing.assert_close(model(images()), expected, rtol=1e-5, atol=1e-5)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
