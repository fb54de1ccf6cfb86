"""Each published fix does what defines it, on timm and Hugging Face models, and composes with control."""

from __future__ import annotations

import copy
import pickle

import model_cases
import pytest
import torch
from control.cases import images, outputs, vit
from model_cases import Case
from torch import Tensor, nn

import unsmooth
from unsmooth.control import FIXES, apply_fix, bake, reparametrize
from unsmooth.control.fixes.base import AttentionFix, LayerShape
from unsmooth.control.fixes.contranorm import ContraNorm
from unsmooth.control.fixes.explicit_attention import softmax_of
from unsmooth.errors import OptionError, WeightsError

SHAPE = LayerShape(0, 1, 24, 3)
LEARNED = ("attnscale", "featscale", "gfsa")
BY_NAME = {case.name: case for case in model_cases.CASES}


def parts(fix: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """A random attention matrix, the uniform one, and its fixed version with random learned weights."""
    for p in fix.parameters():
        nn.init.normal_(p)
    a = torch.randn(2, 3, 7, 7, dtype=torch.float64).softmax(-1)
    uniform = torch.full_like(a, 1 / 7)
    assert isinstance(fix, AttentionFix)
    return a, uniform, fix.double().matrix(a, uniform)


def test_attnscale_scales_the_high_pass_part_of_each_head_and_keeps_row_sums() -> None:
    fix = FIXES["attnscale"].build([SHAPE])[0]
    a, uniform, fixed = parts(fix)
    torch.testing.assert_close(fixed.sum(-1), torch.ones_like(fixed.sum(-1)))
    torch.testing.assert_close(fixed - uniform, (1 + fix.get_parameter("omega")[:, None, None]) * (a - uniform))


def test_centered_attention_annihilates_constant_tokens() -> None:
    _, _, fixed = parts(FIXES["centered"].build([SHAPE])[0])
    constant = torch.ones(7, 1, dtype=torch.float64) @ torch.randn(1, 4, dtype=torch.float64)
    assert (fixed @ constant).abs().max() < 1e-12


@pytest.mark.parametrize("order", [2, 3, 9])
def test_gfsa_is_the_polynomial_of_its_paper(order: int) -> None:
    fix = FIXES["gfsa"].build([SHAPE], order=order, identity=0.3)[0]
    a, _, fixed = parts(fix)
    w0, w1, wk = (fix.state_dict()[name][:, None, None] for name in ("w0", "w1", "wk"))
    values, vectors = torch.linalg.eig(a)
    filtered = w0 + w1 * values[..., None, :] + wk * (values + (order - 1) * (values**2 - values))[..., None, :]
    expected = (vectors * filtered @ torch.linalg.inv(vectors)).real
    torch.testing.assert_close(fixed, expected, rtol=0, atol=1e-9)
    if order == 2:  # A + (A² − A) = A²: no estimate at all
        torch.testing.assert_close(fixed, w0 * torch.eye(7) + w1 * a + wk * a @ a)


def test_featscale_rescales_each_band_by_exactly_its_weights() -> None:
    fix = FIXES["featscale"].build([SHAPE])[0].double()
    s, t = (nn.init.normal_(fix.get_parameter(name)) for name in "st")
    x = torch.randn(2, 9, 24, dtype=torch.float64)
    low, new = x.mean(1, keepdim=True), fix(x)
    torch.testing.assert_close(new.mean(1, keepdim=True), (1 + s) * low)
    torch.testing.assert_close(new - new.mean(1, keepdim=True), (1 + t) * (x - low))


def test_contranorm_lowers_the_similarity_of_tokens_and_scale_zero_does_nothing() -> None:
    x = torch.randn(2, 9, 24) + 2 * torch.randn(2, 1, 24)

    def similarity(x: Tensor) -> Tensor:
        unit = nn.functional.normalize(x, dim=-1)
        return (unit @ unit.mT).mean((1, 2))

    assert (similarity(ContraNorm(SHAPE, scale=0.5)(x)) < similarity(x)).all()
    assert torch.equal(ContraNorm(SHAPE, scale=0.0)(x), x)
    sim = (nn.functional.normalize(x, dim=-1) @ nn.functional.normalize(x, dim=-1).mT / 0.3).softmax(-1)
    torch.testing.assert_close(ContraNorm(SHAPE, 0.2, 0.3)(x), x - 0.2 * sim @ x)


def test_neutreno_adds_the_first_layers_values_and_takes_its_own_away() -> None:
    first, second = FIXES["neutreno"].build([SHAPE, SHAPE], strength=0.5)
    a = torch.randn(2, 3, 7, 7).softmax(-1)
    v0, v1 = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    assert isinstance(first, AttentionFix)
    assert isinstance(second, AttentionFix)
    torch.testing.assert_close(first.mix(a, v0), a @ v0)
    torch.testing.assert_close(second.mix(a, v1), a @ v1 + 0.5 * (v0 - v1))


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        ("gfsa", {"order": 3, "identity": 0.0}),
        ("neutreno", {"strength": 0.6}),
        ("contranorm", {"scale": 0.1, "temperature": 1.0}),
    ],
)
def test_a_fix_without_options_is_the_usual_one(name: str, usual: dict[str, float]) -> None:
    """The runs in zoo/finetuned do not record a fix's options: they ran with ContraNorm's here."""
    x, results = torch.randn(2, 3, 7, 7), []
    for fixes in (FIXES[name].build([SHAPE, SHAPE]), FIXES[name].build([SHAPE, SHAPE], **usual)):
        for parameter in fixes[-1].parameters():
            nn.init.constant_(parameter, 0.5)
        if isinstance(fixes[0], AttentionFix) and isinstance(fixes[1], AttentionFix):
            a = fixes[1].matrix(x.softmax(-1), torch.full_like(x, 1 / 7))
            fixes[0].mix(a, x.flip(0))
            results.append(fixes[1].mix(a, x))
        else:
            results.append(fixes[1](x[0]))
    assert torch.equal(*results)


def test_uniform_attention_covers_the_tokens_that_a_query_may_see() -> None:
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    a, uniform = softmax_of(torch.randn(1, 1, 4, 4), mask)
    expected = torch.tensor([[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [1 / 3] * 3 + [0], [1 / 4] * 4])
    torch.testing.assert_close(uniform[0, 0], expected)
    assert (a[0, 0].triu(1) == 0).all()
    additive = torch.zeros(4, 4).masked_fill(~mask, torch.finfo(torch.float32).min)
    torch.testing.assert_close(softmax_of(torch.zeros(1, 1, 4, 4), additive)[0], uniform)


TIMM = ("timm-vit", "timm-clip-qknorm", "timm-registers", "timm-deit3", "timm-respost")
HF = ("hf-vit", "hf-dinov2", "bert-padded", "gpt2", "qwen3", "gemma2")
ENCODERS = (*TIMM[:-1], *HF[:3])


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(case, fix, id=f"{case.name}-{fix}")
        for case in (BY_NAME[name] for name in (*TIMM, *HF))
        for fix in LEARNED
        if not (case.causal and fix == "featscale")  # refused there
    ],
)
def test_a_learned_fix_starts_as_the_plain_model_and_then_changes_it(case: Case, name: str) -> None:
    model = case.model()
    expected = outputs(model, case.inputs())
    keys = set(model.state_dict())
    apply_fix(model, name)
    torch.testing.assert_close(outputs(model, case.inputs()), expected, rtol=1e-4, atol=1e-4)
    assert keys <= set(model.state_dict())
    assert all(".fix." in key for key in set(model.state_dict()) - keys)
    added = {key for key, _ in model.named_parameters()} - keys
    assert added
    with torch.no_grad():
        for key in added:
            model.get_parameter(key).add_(torch.randn_like(model.get_parameter(key)))
    assert not torch.allclose(outputs(model, case.inputs()), expected, atol=1e-3)
    outputs(model, case.inputs()).square().sum().backward()
    grads = [model.get_parameter(key).grad for key in added]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)


@pytest.mark.parametrize("name", ["contranorm", "neutreno", "centered"])
@pytest.mark.parametrize("case", [BY_NAME[name] for name in ENCODERS], ids=lambda case: case.name)
def test_the_other_fixes_act_at_once_without_new_parameters(case: Case, name: str) -> None:
    model = case.model()
    expected, keys = outputs(model, case.inputs()), list(model.state_dict())
    apply_fix(model, name)
    assert list(model.state_dict()) == keys
    assert not torch.allclose(outputs(model, case.inputs()), expected, atol=1e-4)


def test_a_centred_model_with_equal_tokens_adds_nothing_but_the_bias_of_the_projection() -> None:
    model = apply_fix(vit(qkv_bias=True), "centered")
    x = torch.randn(1, 1, 24).expand(2, 5, 24)
    attention = model.blocks[0].attn  # type: ignore[index, union-attr]
    torch.testing.assert_close(attention(x), attention.proj.bias.expand(2, 5, 24), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gfsa", "rows .* sum to 1 ± .* its fix GFSA makes them so"),
        ("centered", "its fix Centered makes them so"),
        ("featscale", "Its fix FeatScale does more than mix values"),
        ("neutreno", "Its fix NeuTRENO does more than mix values"),
    ],
)
def test_a_fix_that_the_theory_does_not_describe_is_named_where_it_is_explained(name: str, said: str) -> None:
    model = apply_fix(vit(), name)
    for parameter in (p for key, p in model.named_parameters() if ".fix." in key):
        nn.init.normal_(parameter)
    for verb in (unsmooth.explain, unsmooth.attribute):
        with pytest.raises(WeightsError, match=said):
            verb(model, [images()])


def test_a_fix_before_the_norms_is_explained_with_a_note_that_predictions_leave_it_out() -> None:
    (note,) = (n for n in unsmooth.explain(apply_fix(vit(), "contranorm"), [images()]).notes if "ContraNorm" in n)
    assert note.endswith("γ and the other predictions leave it out")
    assert not any("acts outside" in n for n in unsmooth.explain(apply_fix(vit(), "attnscale"), [images()]).notes)


@pytest.mark.parametrize("name", FIXES)
def test_fixes_compile_copy_and_compose_with_control(name: str) -> None:
    model = reparametrize(apply_fix(vit(depth=1), name), form="symmetric", std=0.3)
    expected = model(images())
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(images()), expected)
    torch.testing.assert_close(copy.deepcopy(model)(images()), expected)
    baked = bake(model)
    torch.testing.assert_close(baked(images()), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pickle.loads(pickle.dumps(baked))(images()), expected, rtol=1e-5, atol=1e-5)


def test_layers_can_be_left_alone() -> None:
    model = apply_fix(vit(depth=4), "attnscale", layers="second-half")
    assert [hasattr(block.attn, "fix") for block in model.blocks] == [False, False, True, True]  # type: ignore[union-attr]
    assert model(images()).isfinite().all()


def test_mistakes_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(OptionError, match="unknown fix 'attscale': expected one of 'attnscale', 'featscale'"):
        apply_fix(vit(), "attscale")
    with pytest.raises(OptionError, match="gfsa takes order, identity, got power"):
        apply_fix(vit(), "gfsa", power=3)
    with pytest.raises(OptionError, match="attnscale takes no options, got order"):
        apply_fix(vit(), "attnscale", order=3)
    with pytest.raises(OptionError, match="order 1: expected K ≥ 2"):
        apply_fix(vit(), "gfsa", order=1)
    with pytest.raises(OptionError, match=r"contranorm temperature 0\.0: expected a positive number"):
        apply_fix(vit(), "contranorm", temperature=0.0)
    with pytest.raises(OptionError, match="already has the fix AttnScale"):
        apply_fix(apply_fix(vit(), "attnscale"), "featscale")
    with pytest.raises(
        WeightsError, match=r"needs timm's Attention .* MultiheadAttention of family 'torch-encoder-pre'"
    ):
        apply_fix(BY_NAME["torch-pre"].model(), "gfsa")
    with pytest.raises(WeightsError, match=r"needs timm's Attention .* 'hf-gptj' is neither: .* use reparametrize"):
        apply_fix(BY_NAME["gptj"].model(), "gfsa")  # it has a configuration, but never asks it for its attention
    model = BY_NAME["timm-respost"].model()
    with pytest.raises(WeightsError, match="family 'timm-vit-respost' has no normalisation to put a fix before"):
        apply_fix(model, "contranorm")
    assert not any(hasattr(module, "fix") for module in model.modules())  # nothing is left half done
    with pytest.raises(WeightsError, match="layers share their weights"):
        apply_fix(BY_NAME["albert"].model(), "neutreno")


@pytest.mark.parametrize("name", ["featscale", "contranorm"])
@pytest.mark.parametrize("case", model_cases.SEQUENCE_CASES[:5], ids=lambda case: case.name)
def test_fixes_outside_the_softmax_act_on_any_family(case: Case, name: str) -> None:
    model = apply_fix(case.model(), name)
    for key, p in model.named_parameters():
        if ".fix." in key:
            nn.init.constant_(p, 0.5)
    assert not torch.allclose(outputs(model, case.inputs()), outputs(case.model(), case.inputs()), atol=1e-3)
