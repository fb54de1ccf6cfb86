"""One walk over the data: one forward pass per batch, and the numbers of three walks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from results import view_tokens
from small_models import bert, images, vit, words
from torch import Tensor

import unsmooth
from unsmooth.analysis import Explainer, analyse
from unsmooth.errors import FeatureError, ForwardError, OptionError, WeightsError
from unsmooth.page.words.findings import findings


def forwards(model: torch.nn.Module) -> list[int]:
    """The sizes of all batches that the model is run on from now on."""
    sizes: list[int] = []

    def count(_: Any, args: Any, kwargs: Any) -> None:
        sizes.append(len(args[0] if args else kwargs["input_ids"]))

    model.register_forward_pre_hook(count, with_kwargs=True)
    return sizes


def close(here: float, there: float) -> bool:
    return here == pytest.approx(there, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kind", ["images", "text"])
def test_one_forward_per_batch_gives_the_numbers_of_three_walks(kind: str) -> None:
    model, data = (vit(), images(3)) if kind == "images" else (bert(), words(3))
    settings: dict[str, Any] = {"special_ids": []} if kind == "text" else {}
    with pytest.warns(UserWarning, match="padding") if kind == "text" else torch.no_grad():
        measured = unsmooth.measure(model, data, "paper", "all,no-outliers", **settings)
    part: Any = data[1]
    first = part[:1] if kind == "images" else {name: value[:1] for name, value in part.items()}
    explained = unsmooth.explain(model, [data[0], first], "all,no-outliers", spectra=8, **settings)
    viewed = view_tokens(model, data[0], 1)
    sizes = forwards(model)
    with pytest.warns(UserWarning, match="padding") if kind == "text" else torch.no_grad():
        subject = analyse(
            model, data, metrics="paper", tokens="all,no-outliers", explain_inputs=3, example=1, **settings
        )
    # one input more beforehand: do weights and matrices belong together? And for each of the three inputs that are
    # attributed, one pass to find outliers and one without them; then both parts of these as they are, and without each
    # of the three strongest parts
    assert sizes == [1, 2, 2, 2, 2, 1, 1, 2, *4 * [2], *4 * [1]]
    assert subject.attribution is not None
    assert subject.attribution.inputs == 3
    assert [row["inputs"] for row in subject.attribution.totals] == [3] * len(subject.attribution.totals) != []
    assert subject.measurement.cells.keys() == measured.cells.keys()
    for cell, moments in measured.cells.items():
        assert close(subject.measurement.cells[cell].mean, moments.mean), cell
    assert subject.explanation is not None
    assert subject.explanation.inputs == 3
    for here, there in zip(subject.explanation.layers, explained.layers, strict=True):
        assert (here["layer"], here["input"]) == (there["layer"], there["input"])
        for name in ("exponent", "measured_ratio", "step", "frozen_ratio"):
            assert here[name] == pytest.approx(there[name], rel=1e-2, abs=1e-3), name
    assert subject.tokens is not None
    np.testing.assert_allclose(subject.tokens.distance, viewed.distance, rtol=1e-3)


def test_where_a_whole_batch_is_too_much_unfused_it_is_explained_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = vit(), [torch.randn(6, 3, 16, 16)]
    plain = model.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        if len(x) > 4 and not model.blocks[0].attn.fused_attn:
            raise torch.OutOfMemoryError("no room for six matrices")
        return plain(x)

    monkeypatch.setattr(model, "forward", forward)
    with pytest.raises(ForwardError):
        unsmooth.explain(model, data, spectra=0)
    subject = analyse(model, data, metrics="hfc_lfc", tokens="all", explain_inputs=5)
    assert subject.measurement.samples == 6
    assert subject.explanation is not None
    assert subject.explanation.inputs == 5


def test_a_result_draws_itself() -> None:
    drawing = unsmooth.measure(vit(), images(2), "hfc_lfc").plot()
    assert drawing.svg().startswith("<svg")


def test_steps_are_explained_under_the_policies_that_are_measured_and_the_page_takes_its_own() -> None:
    from unsmooth.page.data import _under

    subject = analyse(vit(), images(2), metrics="paper", tokens="all,patches", explain_inputs=4)
    explanation = subject.explanation
    assert explanation is not None
    assert explanation.policies == ("all", "patches")
    turned = explanation.under("patches")
    assert turned.policies == ("patches", "all")
    assert turned.frame().equals(explanation.frame("patches"))
    assert turned.agreement() == explanation.agreement(tokens="patches")
    assert explanation.under("content").policies == ("all", "patches")  # not measured: as it is
    assert _under(subject, "patches").agreements["frozen"] == explanation.agreement("frozen_ratio", tokens="patches")
    assert _under(subject, "patches").agreements["frozen"] != subject.agreements["frozen"]


@pytest.mark.parametrize("broken", [0, 1])
def test_features_that_hold_nan_are_said_with_their_batch(broken: int) -> None:
    data = images(3)
    data[broken][:] = torch.nan
    with pytest.raises(FeatureError, match=rf"NaN or infinity .* \(batch {broken}\)$"):
        analyse(vit(), data, metrics="hfc_lfc", tokens="all", explain_inputs=6)


def test_weights_that_cannot_be_explained_are_told_on_the_page_with_the_reason() -> None:
    from timm.models.cait import Cait

    cait = Cait(img_size=16, patch_size=4, embed_dim=24, depth=2, num_heads=3, num_classes=0)
    subject = analyse(cait, images(1), "talking heads")
    assert subject.explanation is subject.attribution is None
    said = [finding.html() for finding in findings([subject]) if finding.about == "refused"]
    assert said == ["<b>talking heads</b> was " + subject.measurement.notes[-1] + "."]
    assert re.search(r"was not explained: .*rows must sum to 1.*attn\.proj_w", said[0])


def test_weights_that_only_the_attribution_refuses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise WeightsError("no weights for that")

    monkeypatch.setattr("unsmooth.analysis.attributing.attributor.Attributor.weights", refuse)
    subject = analyse(vit(), images(1), metrics="hfc_lfc", tokens="all")
    assert subject.explanation is not None
    assert subject.attribution is None
    assert subject.measurement.notes == ["not attributed: no weights for that"]


def _texts(short: list[int], length: int) -> tuple[torch.nn.Module, list[dict[str, torch.Tensor]]]:
    """A small Llama, and texts of which the second is short."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = transformers.LlamaModel(transformers.LlamaConfig(**shape, vocab_size=40)).eval()
    ids, mask = torch.randint(20, 40, (6, length)), torch.ones(6, length, dtype=torch.long)
    ids[1, : len(short)], mask[1, len(short) :] = torch.tensor(short), 0
    return model, [{"input_ids": ids, "attention_mask": mask}]


LEFT = (
    "left out: 1 of 5 inputs that were to be {}: fewer than two of their tokens count in some layer, or all are equal"
)


@pytest.mark.filterwarnings("ignore:the inputs hold padding")
@pytest.mark.parametrize("short", [[7, 7], [12, 11, 10]])
def test_a_short_text_costs_the_others_nothing(short: list[int]) -> None:
    """Equal tokens have no HFC; of three tokens two may be outliers, one in the first layer and one in the last."""
    model, batches = _texts(short, 8)
    with torch.no_grad():
        found: Any = model
        table = found.embed_tokens.weight
        table[10:13] = torch.eye(3, 32) * torch.tensor([60.0, 1.0, 1.0])[:, None]
        for layer in found.layers:
            layer.self_attn.o_proj.weight *= 0.01
        mlp = found.layers[0].mlp  # writes some 60 to token 12, as long as token 10 is, and 4,000 to token 11
        mlp.gate_proj.weight[:2] = mlp.up_proj.weight[:2] = torch.eye(3, 32)[1:] * 10 / 32**0.5
        mlp.down_proj.weight[:, :2] = torch.tensor([40.0, 0.6]) / 32**0.5
    subject = analyse(model, batches, explain_inputs=5, metrics="hfc_lfc")
    assert subject.attribution is not None
    others = [{name: x[[0, 2, 3, 4]] for name, x in batches[0].items()}]
    expected = analyse(model, others, explain_inputs=4, metrics="hfc_lfc").attribution
    assert expected is not None
    assert subject.attribution.inputs == expected.inputs == 4
    assert subject.attribution.frame()["mean"].tolist() == pytest.approx(expected.frame()["mean"].tolist(), abs=1e-5)
    assert LEFT.format("attributed") in subject.measurement.notes
    assert LEFT.format("attributed")[1:] in " ".join(finding.html() for finding in findings([subject]))


@pytest.mark.parametrize("one", [True, False])
def test_an_input_that_cannot_be_explained_is_left_out(one: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = _texts([7, 8], 2)
    explain, short = Explainer._explain, model.get_parameter("embed_tokens.weight")[7]

    def refuse(self: Explainer, tokens: Any, index: int, pre: Tensor, **seen: Any) -> None:
        if index == 0 and (not one or bool((pre[:, 0] == short).all(-1).any())):
            raise FeatureError("too few")
        explain(self, tokens, index, pre, **seen)

    monkeypatch.setattr(Explainer, "_explain", refuse)
    subject = analyse(model, batches, explain_inputs=5, metrics="hfc_lfc")
    assert subject.measurement.samples == 6
    if one:
        assert subject.explanation is not None
        assert subject.explanation.inputs == 4
        assert LEFT.format("explained") in subject.measurement.notes
    else:
        assert subject.explanation is None
        assert "not explained: too few (batch 0)" in subject.measurement.notes


@pytest.mark.parametrize(("patches", "patches_count"), [(1, False), (2, True)])
def test_pictures_of_one_patch_are_measured_with_their_class_token(patches: int, patches_count: bool) -> None:
    subject = analyse(vit(img_size=(4, 4 * patches)), [torch.randn(2, 3, 4, 4 * patches)], explain_inputs=0)
    assert ("patches" in subject.measurement.about.settings.tokens) == patches_count
    assert {"all", "no-outliers"} <= {*subject.measurement.about.settings.tokens}


def test_fewer_inputs_than_none_cannot_be_explained() -> None:
    with pytest.raises(OptionError, match=r"explain_inputs must be 0 \(none\) or more, got -1"):
        analyse(vit(), images(1, 2), explain_inputs=-1)


def test_a_generator_that_is_spent_is_told() -> None:
    batches = iter(images(1, 2))
    unsmooth.measure(vit(), batches, "hfc_lfc")
    with pytest.raises(FeatureError, match=r"there was no batch.*a generator gives its own once"):
        unsmooth.measure(vit(), batches, "hfc_lfc")
