"""Each error that measuring promises, with what its message must say."""

from __future__ import annotations

import json
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from small_models import bert, images, vit
from torch import nn

import unsmooth
from unsmooth.analysis import Explainer, Measurer, analyse
from unsmooth.errors import (
    DataError,
    FeatureError,
    OptionError,
    PointError,
    UnknownModelError,
    UnsmoothError,
)
from unsmooth.models import view
from unsmooth.sources import Data


def test_a_model_no_row_matches() -> None:
    with pytest.raises(UnknownModelError, match="Sequential"):
        unsmooth.measure(nn.Sequential(nn.Linear(3, 3)), images())


def test_a_compiled_model_is_seen_through_and_said_to_be_compiled() -> None:
    model, data = vit().eval(), images()
    plain, shares = unsmooth.measure(model, data), unsmooth.attribute(model, data).frame()
    wrapper = torch.compile(model)
    model.blocks[0].compile()
    for compiled in (wrapper, model):
        measured = unsmooth.measure(compiled, data)  # type: ignore[arg-type]
        assert measured.cells == plain.cells
        notes = measured.notes + unsmooth.explain(compiled, data).notes  # type: ignore[arg-type]
        assert len([note for note in notes if "ran as the original module" in note]) == 2
        assert unsmooth.attribute(compiled, data).frame().equals(shares)  # type: ignore[arg-type]


def test_a_point_that_never_fired() -> None:
    model = vit()
    model.blocks[1].forward = lambda x, *_, **__: x
    with pytest.raises(PointError, match=r"blocks\.1"):
        unsmooth.measure(model, images())


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_with_nan_or_infinity_name_point_and_batch(bad: float) -> None:
    data = images()
    data[1][0, 0, 0, 0] = bad
    with pytest.raises(FeatureError, match=r"(?s)embed.*batch 1"):
        unsmooth.measure(vit(), data)


def test_one_token_only() -> None:
    model = vit(img_size=4, class_token=False, global_pool="avg")
    with pytest.raises(FeatureError, match="token"):
        unsmooth.measure(model, [torch.randn(2, 3, 4, 4)])


def test_a_mask_that_leaves_nothing() -> None:
    data = [{"input_ids": torch.zeros(1, 6, dtype=torch.long), "attention_mask": torch.ones(1, 6)}]
    with pytest.raises(FeatureError, match="content"):
        unsmooth.measure(bert(), data, tokens="content", special_ids=[0])


def test_an_all_zero_token_says_what_its_value_means() -> None:
    model = vit()
    with torch.no_grad():
        model.blocks[0].attn.proj.weight.zero_()
        model.blocks[0].attn.proj.bias.zero_()
    with pytest.raises(FeatureError, match=r"(?s)blocks\.0\.attn.*zero"):
        unsmooth.measure(model, images())
    kept = unsmooth.measure(model, images(), degenerate="keep")
    assert any("zero" in note for note in kept.notes)


def _padded_llama() -> tuple[torch.nn.Module, list[dict[str, torch.Tensor]]]:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.LlamaModel(transformers.LlamaConfig(**shape, vocab_size=30, pad_token_id=0)).eval()
    ids, mask = torch.randint(3, 30, (4, 9)), torch.ones(4, 9, dtype=torch.long)
    ids[2, 5:] = mask[2, 5:] = 0  # whose embedding is 0
    return model, [{"input_ids": ids[rows], "attention_mask": mask[rows]} for rows in (slice(2), slice(2, 4))]


def _fresh_deit() -> tuple[torch.nn.Module, list[torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = transformers.DeiTModel(transformers.DeiTConfig(**shape, image_size=16, patch_size=4)).eval()
    return model, [torch.randn(3, 3, 16, 16)]


@pytest.mark.parametrize(
    ("made", "special", "which", "instead"),
    [
        (_padded_llama, None, r"1 sample \(tokens 5 to 8 of sample 0, padding\).*\(batch 1\)", "no-outliers"),
        (_padded_llama, [0, 1, 2], r"1 sample \(tokens 5 to 8 of sample 0, padding\)", "content,no-outliers"),
        (_fresh_deit, None, r"3 samples \(tokens 0 and 1 of sample 0, before the patches\)", "patches,no-outliers"),
    ],
)
def test_zero_tokens_are_named_with_what_leaves_them_out(
    made: Any, special: list[int] | None, which: str, instead: str
) -> None:
    """What the message advises works, and no later layer runs where the first batch has them."""
    model, batches = made()
    advice = rf"leave it out \(tokens='{instead}', --tokens {instead}\), or keep it"
    for verb in (unsmooth.measure, partial(analyse, explain_inputs=1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # padding counts
            with pytest.raises(FeatureError, match=rf"embed, all tokens: .*{which}") as said:
                verb(model, batches, special_ids=special)
        assert re.search(advice, str(said.value))
        verb(model, batches, tokens=instead, special_ids=special)


def test_a_zero_token_of_the_first_batch_is_told_before_anything_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = _fresh_deit()
    ran: list[int] = []
    view(model).layers[0].block.register_forward_hook(lambda *_: ran.append(1))
    with pytest.raises(FeatureError, match="a token is zero everywhere"):
        unsmooth.measure(model, batches)
    assert ran == []
    monkeypatch.setattr(Explainer, "facts", lambda *_: ran.append(2))
    with pytest.raises(FeatureError, match="a token is zero everywhere"):
        analyse(model, batches)
    assert 2 not in ran  # no spectrum of weights


def test_unknown_options_list_the_valid_ones() -> None:
    with pytest.raises(OptionError, match="'hfc_lfc'"):
        unsmooth.measure(vit(), images(), metrics="smoothness")
    with pytest.raises(OptionError, match="'patches'"):
        unsmooth.measure(vit(), images(), tokens="cls")
    with pytest.raises(PointError, match=r"blocks\.9\.post"):
        unsmooth.measure(vit(), images(), points=["blocks.9.post"])


def test_no_batch() -> None:
    with pytest.raises(FeatureError, match="no batch"):
        unsmooth.measure(vit(), [])


@pytest.mark.parametrize(
    ("slip", "hint"),
    [
        (
            torch.zeros(2, 3, 16, 16),
            r"list \(or loader\) of batches, got one tensor of shape \(2, 3, .*give \[x\]",
        ),
        ({"pixel_values": torch.zeros(2, 3, 16, 16)}, r"one batch of keyword inputs \(pixel_values\).*give \[batch\]"),
        ("some text", "got text 'some text': tokenise it first"),
        (3, "batches, got int"),
    ],
)
@pytest.mark.parametrize("verb", ["measure", "explain"])
def test_one_batch_where_a_list_was_meant_gets_the_right_hint(verb: str, slip: object, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        getattr(unsmooth, verb)(vit(), slip)


def test_a_batch_of_another_kind() -> None:
    with pytest.raises(UnsmoothError, match=r"must be a tensor.*got str"):
        unsmooth.measure(vit(), ["text"])


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(FeatureError, match=r"a batch of shape \(0, 3, 16, 16\) holds no samples"):
        unsmooth.measure(vit(), [torch.zeros(0, 3, 16, 16)])


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(UnknownModelError, match="expected a torch module, got str: load it first"):
        unsmooth.measure("timm:vit", images())  # type: ignore[arg-type]


def test_a_loaded_model_brings_its_reference_and_weights() -> None:
    loaded = unsmooth.sources.LoadedModel(vit(), "timm:x", "images")
    found = unsmooth.measure(loaded, Data("noise", "images", lambda: iter(images(1))))
    assert (found.about.model.reference, found.about.model.weights) == ("timm:x", loaded.weights_hash)
    assert (found.about.data.reference, found.about.data.kind) == ("noise", "images")


def test_what_is_not_a_number_is_a_word_in_the_file_and_comes_back(tmp_path: Path) -> None:
    model = vit()
    for name in ("weight", "bias"):
        nn.init.zeros_(getattr(model.blocks[0].attn.proj, name))
    measured = unsmooth.measure(model, images(), degenerate="keep")
    text = measured.save(tmp_path / "run.json").read_text()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    json.loads(text, parse_constant=refuse)
    again = unsmooth.load_measurement(tmp_path / "run.json")
    pd.testing.assert_frame_equal(again.frame(), measured.frame())
    assert again.frame()["mean"].isna().any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": []}, "no point was asked for: expected at least one"),
        ({"points": 3}, "expected names or patterns of points, 'residual' or 'all', got 3"),
        ({"metrics": []}, "no metric was asked for"),
        ({"metrics": 3}, "unknown metric 3"),
        ({"tokens": []}, r"unknown token policy \[\]"),
        ({"tokens": None}, "unknown token policy None"),
    ],
)
def test_an_option_that_is_no_list_of_names_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsmoothError, match=message):
        unsmooth.measure(vit(), images(), **options)


@pytest.mark.parametrize("make", [Measurer, Explainer])
def test_batches_outside_the_with_are_refused_not_left_out(make: Any) -> None:
    listener, batch = make(vit()), images()[0]
    with pytest.raises(UnsmoothError, match=f"{make.__name__} listens inside its `with` only"):
        listener.update(batch)
    with listener:
        listener.update(batch)
    with pytest.raises(UnsmoothError, match="inside its `with` only"):
        listener.update(batch)
    with listener:  # again: the same counts go on
        listener.update(batch)
    assert listener.result().samples == 4 if make is Measurer else listener.result().inputs == 4


@pytest.mark.parametrize("layers", [[], "first", 3, [0.5], [7], [None]])
def test_layers_that_are_none_are_refused(layers: Any) -> None:
    with pytest.raises(OptionError, match="layer"):
        unsmooth.explain(vit(), images(), layers=layers)


@pytest.mark.parametrize(("samples", "said"), [(1, "in 1 sample:"), (2, "in 2 samples:")])
def test_one_sample_is_not_said_in_the_plural(samples: int, said: str) -> None:
    with pytest.raises(FeatureError, match=rf"{said} no metric is defined on them"):
        unsmooth.measure(vit(), [torch.full((samples, 3, 16, 16), torch.inf)])
