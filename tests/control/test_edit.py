"""Edits of H move its eigenvalues as asked, by the smallest change, and are undone bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch
from control.cases import spectra, vit
from model_cases import CASES, Case, every_case
from torch import nn

import unsmooth
from unsmooth.errors import OptionError, WeightsError
from unsmooth.models import view
from unsmooth.models.forward import call

CHOSEN = ("timm-vit", "timm-deit3", "bert", "gpt2", "llama", "torch-post", "falcon-40b")


@every_case([case for case in CASES if case.name in CHOSEN])
def test_real_parts_are_bounded_and_undone(case: Case) -> None:
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        call(model, batch)
    done = unsmooth.edit(model, high=0.0)
    # many eigenvalues meet at 0, where one is known to about the root of rounding only
    assert float(spectra(model).real.max()) < 1e-6
    frame = done.frame()
    assert len(frame) == case.layers * view(model).layers[0].heads
    assert (frame["max_after"] < 1e-6).all()
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed
    done.undo()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(OptionError, match="undone already"):
        done.undo()


def test_edits_of_the_same_weights_are_undone_in_reverse_order_only() -> None:
    model = vit()
    before = copy.deepcopy(model.state_dict())
    first, second = unsmooth.edit(model, high=0.0), unsmooth.edit(model, flip=True)
    for refused in (first.undo, lambda: first.go(0.5)):
        with pytest.raises(OptionError, match="changed since this edit.*undo later edits first"):
            refused()
    second.go(0.5)
    second.undo()
    first.undo()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("of", ["head", "layer"])
def test_what_is_gathered_at_zero_has_no_side(of: str) -> None:
    """Many eigenvalues that meet are ill-conditioned: rounding to 32 bits scatters them around 0."""
    from unsmooth.analysis.explaining.facts import eigenvalue_shares, layer_facts

    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 2, 64, batch_first=True), 1)
    layer = view(model).layers[0]

    def seen() -> tuple[torch.Tensor, dict[str, float]]:
        spectrum = layer_facts(layer).effective
        values = spectrum.heads[0] if of == "head" else spectrum.layer
        assert values is not None
        return values, eigenvalue_shares(values)

    values, shares = seen()
    row = unsmooth.edit(model, high=0.0, of=of).frame().iloc[0]
    assert row["negative_before"] == pytest.approx(float((values.real < 0).double().mean()))
    assert row["negative_after"] == row["negative_before"]
    assert row["max_after"] == 0
    weights = layer.weights()
    heads = [0] if of == "head" else [0, 1]
    w_proj = weights.w_proj[heads].detach().double().flatten(0, 1)
    stored = torch.linalg.eigvals(w_proj @ weights.w_v[heads].detach().double().transpose(0, 1).flatten(1))
    assert row["max_stored"] == pytest.approx(float(stored.real.max()), rel=0.05)
    assert row["max_stored"] > 1e-9
    solved = torch.linalg.eigvals((weights.w_proj[0] @ weights.w_v[0]).detach().double())
    assert of == "layer" or float((solved.real / solved.abs().max()).max()) > 1e-8  # what rounding leaves of zeros
    gathered, after = seen()
    assert after["re_positive"] == 0
    assert after["re_negative"] <= shares["re_negative"]
    assert float((gathered.real == 0).double().mean()) >= shares["re_positive"]


def test_values_of_zero_have_nothing_to_edit() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1)
    nn.init.zeros_(model.layers[0].self_attn.in_proj_weight)
    row = unsmooth.edit(model, shift=-0.1).frame().iloc[0]
    assert (row["change"], row["max_after"]) == (0, 0)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [({"scale": 0.5}, lambda v: 0.5 * v), ({"flip": True}, lambda v: -v), ({"shift": -0.3}, lambda v: v - 0.3),
     ({"scale": 0.0, "strength": 0.25}, lambda v: 0.75 * v)],
)  # fmt: skip
def test_eigenvalues_are_scaled_flipped_and_shifted(asked: dict[str, float], expected: object) -> None:
    model = next(case for case in CASES if case.name == "timm-vit").model(torch.float64)
    wanted = expected(spectra(model))  # type: ignore[operator]
    unsmooth.edit(model, **asked)  # type: ignore[arg-type]
    found = spectra(model)
    gaps = (found[..., :, None] - wanted[..., None, :]).abs().amin(-1)
    assert float(gaps.max()) < 1e-8


def test_a_shift_costs_exactly_what_the_eigenvalues_move_and_less_than_along_eigenvectors() -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).double()
    w = view(encoder).layers[0].weights()
    values, vectors = torch.linalg.eig((w.w_proj @ w.w_v).detach())
    moved = values.real.clamp(max=0.1) - values.real
    rows = unsmooth.edit(encoder, high=0.1).frame()
    for h in range(2):
        assert rows["change"][h] == pytest.approx(float(moved[h].norm()), rel=1e-9)
        naive = (vectors[h] * moved[h]) @ torch.linalg.inv(vectors[h])
        along = w.w_v[h].detach() @ naive.real @ torch.linalg.pinv(w.w_v[h].detach())
        assert rows["change"][h] <= float(along.norm()) * (1 + 1e-9)


def test_the_sum_of_heads_can_be_edited_and_a_head_removed() -> None:
    case = next(case for case in CASES if case.name == "timm-vit")
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    unsmooth.edit(model, high=-0.1, of="layer", layers=[1], folded=False)
    w = view(model).layers[1].weights()
    total = (w.w_v @ w.w_proj).sum(0).detach()
    # half of the 32 eigenvalues meet at −0.1, where rounding moves each by a high root of itself
    assert float(torch.linalg.eigvals(total).real.max()) < -0.09
    done = unsmooth.edit(model, head_scale=0.0, layers=[0], heads=[2])
    assert len(done.rows) == 1
    assert not view(model).layers[0].weights().w_proj[2].any()
    found = unsmooth.attribute(model, [batch]).frame(full=True)
    assert float(found.query("layer == 0 and head == 2")["mean"].iloc[0]) == pytest.approx(0, abs=1e-12)


def test_constants_stay_when_eigenvalues_move() -> None:
    """What attention gives to tokens that are all alike depends on ΣH and the constant: without W_V, on it alone."""
    case = next(case for case in CASES if case.name == "timm-vit")
    model = case.model(torch.float64)
    w = view(model).layers[0].weights()
    before = torch.einsum("hk,hkd->d", w.b_v, w.w_proj) + w.b_proj  # type: ignore[operator]
    unsmooth.edit(model, shift=0.2)
    w = view(model).layers[0].weights()
    after = torch.einsum("hk,hkd->d", w.b_v, w.w_proj) + w.b_proj  # type: ignore[operator]
    assert torch.allclose(before, after, atol=1e-12)


def test_what_makes_no_sense_is_refused() -> None:
    model = next(case for case in CASES if case.name == "timm-vit").model()
    for asked, said in (
        ({}, "expected one of scale"), ({"scale": 1.0, "flip": True}, "got 2"),
        ({"low": 1.0, "high": 0.0}, "above high"),
        ({"flip": True, "heads": [9]}, "some of the heads 0 to 3"), ({"flip": True, "heads": "1"}, "some of the heads"),
        ({"flip": True, "heads": []}, "some of the heads"),
        ({"high": "low"}, "high must be a finite number, got 'low'"),
        ({"flip": True, "strength": 2.0}, "from 0"),
        ({"flip": True, "strength": "all"}, "from 0"),
        ({"flip": True, "heads": True}, "heads True"),
        ({"flip": True, "of": "lunch"}, "of"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=said):
            unsmooth.edit(model, **asked)  # type: ignore[arg-type]
    respost = next(case for case in CASES if case.name == "timm-respost").model()
    with pytest.raises(WeightsError, match="folded=False"):
        unsmooth.edit(respost, flip=True)


def test_a_refusal_leaves_every_weight_as_it_was_and_what_it_advises_works() -> None:
    """Qwen2's values have a bias and its projection none; the layer that refuses is not the first."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen2Config(hidden_size=16, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                                      intermediate_size=16, vocab_size=9)  # fmt: skip
    model = transformers.Qwen2Model(config)
    unsmooth.edit(model, high=0.0).undo()  # biases of zero have nothing to take up
    nn.init.normal_(model.layers[1].self_attn.v_proj.bias)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(WeightsError, match=r"layer 1.*give the projection a bias of zeros"):
        unsmooth.edit(model, high=0.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.layers[1].self_attn.o_proj.bias = nn.Parameter(torch.zeros(16))
    unsmooth.edit(model, high=0.0)
    assert float(spectra(model).real.max()) < 1e-3
    assert model.layers[1].self_attn.o_proj.bias.any()


def test_a_value_bias_under_attention_with_a_sink_is_refused() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GptOssConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, head_dim=8,
                                       num_key_value_heads=1, intermediate_size=16, vocab_size=9,
                                       num_local_experts=2)  # fmt: skip
    model = transformers.GptOssModel(config)
    nn.init.normal_(model.layers[0].self_attn.v_proj.bias)
    with pytest.raises(WeightsError, match=r"do not sum to 1.*head_scale"):
        unsmooth.edit(model, high=0.0)
    unsmooth.edit(model, head_scale=0.5)


@pytest.mark.parametrize("asked", [
    {"high": float("nan")}, {"low": "0"}, {"scale": float("inf")}, {"shift": float("nan")},
    {"head_scale": float("inf")},
])  # fmt: skip
def test_what_is_no_finite_number_is_refused_and_no_weight_changes(asked: dict[str, float]) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    before = [parameter.clone() for parameter in encoder.parameters()]
    with pytest.raises(OptionError, match=rf"{next(iter(asked))} must be a finite number, got"):
        unsmooth.edit(encoder, **asked)
    assert all(map(torch.equal, before, encoder.parameters()))
    unsmooth.edit(encoder, low=0.0, high=float("inf")).undo()  # a bound that bounds nothing
