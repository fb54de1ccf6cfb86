"""Calling a model: options reach it, and its own failure becomes one clear message."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import CASES, TEXT, TOKENS, D, _encoder, hf
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import unsmooth
from unsmooth.errors import DataError, ForwardError, PointError, UnknownModelError, UnsmoothError, WeightsError
from unsmooth.models import view
from unsmooth.models.forward import call, to_model

BY_NAME = {case.name: case for case in CASES}


def test_a_batch_that_the_model_cannot_take_says_shape_reason_and_what_to_do() -> None:
    model = hf("Bert", **TEXT)()
    with pytest.raises(ForwardError, match=r"input_ids \(1, 33\).*--max-length; this model has 32 positions"):
        call(model, {"input_ids": torch.ones(1, 33, dtype=torch.long)})


def test_our_own_errors_pass_unchanged() -> None:
    class Raises(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise PointError("ours")

    with pytest.raises(PointError, match="^ours$"):
        call(Raises(), torch.ones(1))


def test_options_among_the_inputs_reach_the_model_but_texts_do_not() -> None:
    batch = {"src": torch.randn(1, TOKENS, D), "is_causal": True, "title": "a text", "names": ["b"]}
    moved = to_model(batch, _encoder(True, True)())
    assert set(moved) == {"src", "is_causal"}
    assert moved["is_causal"] is True


@pytest.mark.parametrize("family", ["timm", "GPT2"])
def test_a_model_on_the_meta_device_is_told_from_a_wrong_batch(family: str) -> None:
    """A ViT fails on its patches there; a GPT-2 runs, and gives features without values."""
    import unsmooth
    from unsmooth.analysis import analyse

    with torch.device("meta"):
        if family == "timm":
            model = pytest.importorskip("timm").create_model("vit_tiny_patch16_224", img_size=32, depth=2)
        else:
            model = hf("GPT2", vocab_size=TEXT["vocab_size"])()
    batch = torch.ones(1, 3, 32, 32) if family == "timm" else torch.ones(1, TOKENS, dtype=torch.long)
    for verb in (unsmooth.measure, unsmooth.explain, analyse):
        with pytest.raises(WeightsError, match="on the meta device"):
            verb(model, [batch])
    with pytest.raises(WeightsError, match="its weights have shapes and no values. Load them first"):
        unsmooth.measure(model, [batch])


def llama() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaModel(transformers.LlamaConfig(vocab_size=20, **sizes))


@pytest.mark.parametrize(("batches", "error", "said"), [
    ([{"input_ids": [[1, 2]], "attention_mask": [[1, 1]]}], DataError,
     r"got input_ids \(list\), attention_mask \(list\).*return_tensors='pt'"),
    ([["two", "texts"]], UnsmoothError, r"got str: give tokenizer\(texts"),
    ([torch.tensor([[1, 25, 3]])], ForwardError, r"ids 0 to 19, and the batch holds 1 to 25: is the tokenizer"),
    ([{"input_ids": torch.tensor([[1, -1, 3]])}], ForwardError, r"ids 0 to 19, and the batch holds -1 to 3"),
    (TensorDataset(torch.ones(4, 3, dtype=torch.long)), DataError, r"got TensorDataset: give DataLoader\("),
])  # fmt: skip
def test_slips_with_texts_are_said_with_what_to_give(batches: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        unsmooth.measure(llama(), batches)


def test_keyword_inputs_may_stand_before_labels_in_a_tuple() -> None:
    model, inputs = llama(), {"input_ids": torch.tensor([[1, 2, 3]])}
    cells = [unsmooth.measure(model, [batch]).cells for batch in (inputs, (inputs, torch.tensor([1])))]
    assert {cell: found.mean for cell, found in cells[0].items()} == {c: found.mean for c, found in cells[1].items()}
    assert unsmooth.explain(model, [(inputs, torch.tensor([1]))]).inputs == 1


@pytest.mark.parametrize("kind", ["T5", "MarianMT", "Bart"])
def test_of_a_pair_the_encoder_runs_alone_on_what_a_tokenizer_gives(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size = {"vocab_size": 30, "d_model": 16, "decoder_start_token_id": 0, "pad_token_id": 0}
    if kind == "T5":
        config = transformers.T5Config(**size, d_kv=4, d_ff=16, num_layers=2, num_heads=4)
        model = transformers.T5ForConditionalGeneration(config).eval()
    else:
        layers = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")}
        wide = {"encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 32}
        config = getattr(transformers, f"{kind.removesuffix('MT')}Config")(**size, **layers, **wide)
        model = getattr(transformers, f"{kind}Model" if kind == "Bart" else "MarianMTModel")(config).eval()
    ids = torch.randint(1, 30, (3, 7))
    alone = unsmooth.measure(model.get_encoder(), [{"input_ids": ids}]).frame()
    for batch in ({"input_ids": ids, "labels": ids}, ids, {"input_ids": ids, "decoder_input_ids": ids}):
        assert unsmooth.measure(model, [batch]).frame()["mean"].equals(alone["mean"])
    assert unsmooth.explain(model, [{"input_ids": ids}]).inputs == 3


def test_an_input_of_another_name_is_told_the_names_that_the_model_takes() -> None:
    with pytest.raises(ForwardError, match=r"unexpected keyword argument 'pixels'\): its forward takes src, mask"):
        call(_encoder(True, True)(), {"pixels": torch.randn(1, TOKENS, D)})


class Trained(nn.Module):
    """As a Lightning module that only has a training step."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net


class ByName(Trained):
    """Takes its input by name only."""

    def forward(self, *, tokens: Tensor) -> Any:
        return self.net(input_ids=tokens)


def test_slips_with_wrappers_and_axes_are_said_with_what_to_give() -> None:
    llama, vit = BY_NAME["llama"], BY_NAME["timm-vit"]
    ids, picture = llama.inputs()["input_ids"], vit.inputs()[0]
    for model, batch, said in (
        (Trained(llama.model()), ids, r"no forward of its own: give the part that has one \(model\.net\)"),
        (Trained(llama.model()), {"input_ids": ids}, r"no forward of its own.*\(model\.net\)"),
        (ByName(llama.model()), ids, "its forward takes tokens: name the inputs so, in a dict"),
        (vit.model(), picture, r"without a batch axis\? Give x\[None\]"),
        (BY_NAME["bert-padded"].model(), {"input_ids": ids[0]}, "is this one text without a batch axis"),
        (llama.model(), {"input_ids": ids[0]}, r"got \(7, 32\): a batch of one sample needs a first axis"),
    ):
        with pytest.raises(UnsmoothError, match=said):
            unsmooth.measure(model, [batch])


def test_a_program_that_was_made_of_a_model_is_refused_as_one() -> None:
    with pytest.raises(UnknownModelError, match=r"traced or exported from a model.*give the model that it was made of"):
        view(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))))
