"""An adapter starts exactly at the pretrained function, keeps its sign and bound whatever training does, and merges."""

from __future__ import annotations

import copy
import os
from typing import Any

import pytest
import torch
from control.cases import images, outputs, spectra, vit
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import CASES, Case, every_case
from torch import Tensor, nn

from unsmooth.control import Adapter, adapt, adapter_of, bake, edit, parameter_groups, reparametrize
from unsmooth.errors import CheckpointError, OptionError, WeightsError
from unsmooth.models import view

#: One for every way to keep values, projections, norms and scales: fused, grouped, transposed, shared, constant, sink;
#: the last two draw random numbers in every pass.
CHOSEN = (
    "timm-vit", "timm-deit3", "timm-registers", "hf-dinov2", "bert", "albert", "gpt2", "llama", "gemma", "falcon-40b",
    "phi3", "bloom", "modernbert-decoder", "granite", "gpt-oss", "torch-post", "torchvision-vit", "t5",
    "hf-vit-mae", "vilt",
)  # fmt: skip


#: A norm stands between W_proj and the stream: no update of W_proj alone has chosen eigenvalues as it acts.
NORMED = (
    "timm-respost", "timm-relpos-respost", "timm-eva-postnorm", "gemma2", "gemma3", "olmo2", "glm4", "exaone4",
    "flexolmo", "t5gemma",
)  # fmt: skip
SIGNS = {"sharpening": -1.0, "smoothing": 1.0}


def acting(model: nn.Module) -> list[Tensor]:
    """Every layer's folded H_h, (head, dim, dim), in float64."""
    from unsmooth.analysis.layer_weights import cast_weights, fold_weights

    folded = [fold_weights(cast_weights(layer.weights(), torch.float64)) for layer in view(model).layers]
    return [(f.w_v @ f.w_proj).mT.detach() for f in folded]


def moved(model: nn.Module, size: float = 1.0, seed: int = 0) -> nn.Module:
    """As if training had moved ψ."""
    with torch.no_grad():
        adapter_of(model).psi.normal_(0, size, generator=torch.Generator().manual_seed(seed))
    return model


def seeded(model: nn.Module, batch: Any) -> Tensor:
    """What the model gives, with the random numbers that it draws the same in every call."""
    torch.manual_seed(0)
    return outputs(model, batch)


def test_the_chosen_cases_exist() -> None:
    assert {case.name for case in CASES} >= {*CHOSEN, *NORMED}


def chosen() -> list[Case]:
    """A few; all with UNSMOOTH_EXPLORE=1."""
    every = bool(os.environ.get("UNSMOOTH_EXPLORE"))
    return [case for case in CASES if case.name in CHOSEN or (every and case.name not in NORMED)]


@every_case(chosen())
@pytest.mark.parametrize("mode", SIGNS)
def test_it_starts_bit_equal_updates_with_one_sign_and_bakes_into_the_untouched_class(case: Case, mode: str) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    keys, types = list(model.state_dict()), [type(module) for module in model.modules()]
    before, start = acting(model), seeded(model, batch)
    adapt(model, mode, rank=3, bound=0.5)
    assert torch.equal(seeded(model, batch), start)
    moved(model)
    wanted = adapter_of(model).eigenvalues().detach()
    found = [after - old for after, old in zip(acting(model), before, strict=True)]
    passes = list({id(layer.attention): i for i, layer in enumerate(view(model).layers)}.values())
    for index, layer in enumerate(passes):
        change = found[layer]
        assert torch.allclose(change, change.mT, atol=1e-10)
        values = torch.linalg.eigvalsh(change)
        zeros = values.new_zeros(values.shape[0], values.shape[1] - 3)
        expected = torch.cat([wanted[index], zeros], 1).sort(1).values
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-9)
        assert float((SIGNS[mode] * values).min()) > -1e-9
        assert float(values.abs().max()) <= 0.5
    adapted = seeded(model, batch)
    assert not torch.allclose(adapted, start)
    assert bake(model) is model
    assert list(model.state_dict()) == keys
    assert [type(module) for module in model.modules()] == types
    torch.testing.assert_close(seeded(model, batch), adapted, rtol=0, atol=1e-12)


@every_case([case for case in CASES if case.name in NORMED])
def test_where_a_norm_follows_the_projection_only_the_bare_weights_are_adapted(case: Case) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    start = outputs(model, batch)
    with pytest.raises(
        WeightsError, match=r"a norm on the attention's output.* adapt the bare weights \(folded=False\)"
    ):
        adapt(model)
    assert torch.equal(outputs(model, batch), start)
    assert torch.equal(outputs(adapt(model, rank=3, folded=False), batch), start)
    adapted = outputs(moved(model), batch)
    assert not torch.allclose(adapted, start)
    torch.testing.assert_close(outputs(bake(model), batch), adapted, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=20)
@given(
    rank=st.integers(1, 8), bound=st.floats(0.01, 10), size=st.floats(0, 1e4), seed=st.integers(0, 99),
    mode=st.sampled_from(list(SIGNS)),
)  # fmt: skip
def test_no_parameters_leave_the_bound(rank: int, bound: float, size: float, seed: int, mode: str) -> None:
    model = vit(qkv_bias=True).double()
    before = acting(model)
    adapt(model, mode, rank=rank, bound=bound, generator=torch.Generator().manual_seed(seed))
    moved(model, size, seed)
    for after, old in zip(acting(model), before, strict=True):
        values = SIGNS[mode] * torch.linalg.eigvalsh(after - old)
        assert float(values.min()) > -1e-7 * bound
        assert float(values.max()) <= bound * (1 + 1e-7)


def step(model: nn.Module, optimiser: torch.optim.Optimizer, x: Tensor) -> float:
    optimiser.zero_grad()
    loss = nn.functional.cross_entropy(model(x), torch.arange(len(x)) % 5)
    loss.backward()
    optimiser.step()
    return float(loss.detach())


@pytest.mark.parametrize("frozen", [True, False])
def test_a_plain_loop_learns_within_the_bound(frozen: bool) -> None:
    model = vit(init_values=0.1).double().requires_grad_(not frozen)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    adapt(model, "sharpening", rank=4, bound=0.3)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {"spectral_adapter.c", "spectral_adapter.psi"} <= trained
    assert frozen == (len(trained) == 2)
    optimiser = torch.optim.AdamW(parameter_groups(model, 0.05), lr=0.02)
    losses = [step(model, optimiser, images(8, dtype=torch.float64)) for _ in range(8)]
    assert losses[-1] < losses[0]
    free = copy.deepcopy(model)
    with torch.no_grad():
        adapter_of(free).psi.zero_()
    for after, without in zip(acting(model), acting(free), strict=True):  # values, norms and LayerScale trained too
        values = torch.linalg.eigvalsh(after - without)
        assert float(values.max()) < 1e-9 < -float(values.min()) <= 0.3
    bake(model)
    changed = [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]
    assert set(changed) == {f"blocks.{i}.attn.proj.weight" for i in range(2)} if frozen else len(changed) > 10
    assert [p.requires_grad for p in model.parameters()] == [not frozen] * len(before)


def test_all_layers_share_one_call_and_every_parameter_gets_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls, original = adapt(vit(depth=4)), [], Adapter.weights
    monkeypatch.setattr(Adapter, "weights", lambda self, layer=None: calls.append(layer) or original(self, layer))
    moved(model)
    model(images()).square().sum().backward()
    assert calls == [None]
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())
    model.set_grad_checkpointing(True)  # blocks run again in the backward pass: each computes its own
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}  # type: ignore[union-attr]
    model.zero_grad()
    model.train()(images()).square().sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=1e-4, atol=1e-5)


def test_it_compiles_as_one_graph() -> None:
    model = moved(adapt(vit(qkv_bias=True)))
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images()), model(images()))
    torch.testing.assert_close(bake(compiled)(images()), compiled(images()), rtol=1e-5, atol=1e-5)


def test_a_model_in_bfloat16_keeps_its_adapter_in_float32_and_starts_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)  # whose bfloat16 kernels some CPUs cannot run
    model = vit().bfloat16()
    start = model(images(dtype=torch.bfloat16))
    adapt(model)
    assert adapter_of(model).c.dtype == torch.float32
    assert torch.equal(model(images(dtype=torch.bfloat16)), start)


def test_it_is_saved_alone_or_whole_and_a_plain_checkpoint_loads() -> None:
    plain, model = vit(), moved(adapt(vit()))
    other = adapt(vit())
    adapter_of(other).load_state_dict(adapter_of(model).state_dict())
    torch.testing.assert_close(other(images()), model(images()), rtol=0, atol=0)
    fresh = adapt(vit(seed=1))
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(images()), model(images()))
    fresh = adapt(vit(seed=1))
    kept = fresh.load_state_dict(plain.state_dict(), strict=False)
    assert {name.partition(".")[0] for name in kept.missing_keys} == {"spectral_adapter"}
    assert torch.equal(fresh(images()), plain(images()))
    with pytest.raises(CheckpointError, match="same layers, modes and bound"):
        adapt(vit(), "smoothing").load_state_dict(model.state_dict())
    with pytest.raises(CheckpointError, match="same layers, modes and bound"):
        adapter_of(adapt(vit(), bound=2.0)).load_state_dict(adapter_of(model).state_dict())
    weight = torch.randn(24, 24)
    model.blocks[0].attn.proj.weight = weight  # type: ignore[index, union-attr]  # the update stays, around the new one
    torch.testing.assert_close(model.blocks[0].attn.proj.weight, weight)  # type: ignore[index, union-attr]


def test_what_cannot_be_adapted_is_refused_by_name() -> None:
    for asked, said in (
        ({"rank": 9}, "rank 9: expected 1 to 8, the features of a head"), ({"rank": 0}, "rank 0"),
        ({"bound": 0.0}, "bound 0.0: expected a positive number"), ({"mode": "plain"}, "no layer is left"),
        ({"mode": "sharp"}, "unknown mode"), ({"rank": 2.5}, "rank 2.5"), ({"bound": "1"}, "bound '1'"),
    ):  # fmt: skip
        model = vit()
        with pytest.raises(OptionError, match=said):
            adapt(model, **asked)  # type: ignore[arg-type]
        assert not hasattr(model, "spectral_adapter")
    with pytest.raises(OptionError, match="call `bake` first"):
        adapt(adapt(vit()))
    with pytest.raises(OptionError, match="call `bake` first"):
        adapt(reparametrize(vit()))
    with pytest.raises(OptionError, match="already reparametrised or adapted: call `bake` first"):
        reparametrize(adapt(vit()))
    with pytest.raises(WeightsError, match="`bake` the model if"):
        edit(adapt(vit()), flip=True)
    with pytest.raises(OptionError, match="expected a model with one adapter"):
        adapter_of(vit())
    mixed = vit()
    mixed.blocks[1] = vit(dim=12).blocks[1]  # type: ignore[index]
    with pytest.raises(WeightsError, match="select layers of one kind"):
        adapt(mixed)
    broken = adapt(vit())
    with torch.no_grad():
        adapter_of(broken).c[1, 0, :, 1] = adapter_of(broken).c[1, 0, :, 0]
    with pytest.raises(WeightsError, match=r"the adapter of blocks.1.attn holds NaN .* dependent columns"):
        broken(images())


def test_modes_may_differ_by_layer_and_the_spectrum_moves_their_way() -> None:
    model = vit(depth=3).double()
    before = spectra(model).real.sum(-1)
    moved(adapt(model, ["sharpening", "plain", "smoothing"], rank=8))
    change = spectra(model).real.sum(-1) - before
    assert bool((change[0] < 0).all())
    assert bool((change[1].abs() < 1e-12).all())
    assert bool((change[2] > 0).all())
