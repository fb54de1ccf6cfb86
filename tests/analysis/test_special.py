"""`content` leaves out what is special, finds out what that is, or refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_models import bert, transformers
from torch import nn

import unsmooth
from unsmooth.analysis.measuring.cells import Cell
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.special import SpecialTokens
from unsmooth.errors import OptionError
from unsmooth.sources import LoadedModel

CLS, SEP, PAD = 41, 42, 0


def text(length: int = 7) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 40, (2, length), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = CLS, SEP
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def rank(found: Measurement) -> float:
    return found.cells[Cell("blocks.1.post", "effective_rank", "content")].mean


def expected(model: nn.Module) -> float:
    """The rank of the tokens between the two special ones, from the hidden states themselves."""
    with torch.no_grad():
        states = model.eval()(**text()).last_hidden_state.double()
    return float(unsmooth.effective_rank(states[:, 1:-1]).mean())


@pytest.mark.parametrize("how", ["ids", "tokenizer", "loaded", "mask", "config"])
def test_special_tokens_are_left_out_however_they_are_told(how: str) -> None:
    model, batch, told = bert(), text(), SimpleNamespace(all_special_ids=[CLS, SEP, PAD])
    given: dict[str, Any] = {"ids": {"special_ids": [CLS, SEP]}, "tokenizer": {"tokenizer": told}}.get(how, {})
    subject: Any = LoadedModel(model, "hf:x", "text", tokenizer=told) if how == "loaded" else model
    if how == "mask":
        batch["special_tokens_mask"] = torch.isin(batch["input_ids"], torch.tensor([CLS, SEP])).long()
    if how == "config":
        model.config.bos_token_id, model.config.eos_token_id = CLS, SEP
    found = unsmooth.measure(subject, [batch], tokens="content", **given)
    assert rank(found) == pytest.approx(expected(model), rel=1e-6)
    assert rank(found) != pytest.approx(rank(unsmooth.measure(model, [text()], tokens="content", special_ids=[])))


def test_what_nobody_names_is_refused_with_what_to_do() -> None:
    with pytest.raises(OptionError, match=r"nothing says which they are: give tokenizer=.*special_ids=.*mask"):
        unsmooth.measure(bert(), [text()], tokens="content")
    with pytest.raises(OptionError, match="nothing says which"):
        unsmooth.watch(bert(), text(), tokens="content").__enter__()


def test_a_configuration_that_names_one_end_only_is_not_believed() -> None:
    model = bert()
    model.config.eos_token_id = SEP  # as ESM's, whose beginning has another id
    with pytest.raises(OptionError, match="not at both ends of every text"):
        unsmooth.measure(model, [text()], tokens="content")


def test_ends_are_those_of_the_text_not_of_its_padding() -> None:
    model, batch = bert(), text(7)
    model.config.bos_token_id, model.config.eos_token_id = CLS, SEP
    padded = {
        "input_ids": torch.nn.functional.pad(batch["input_ids"], (0, 2), value=PAD),
        "attention_mask": torch.nn.functional.pad(batch["attention_mask"], (0, 2)),
    }
    found = unsmooth.measure(model, [padded], tokens="content")
    assert rank(found) == pytest.approx(expected(model), rel=1e-5)


def test_decoders_are_believed_what_their_configuration_says() -> None:
    config = transformers.GPT2Config(vocab_size=50, n_embd=24, n_layer=2, n_head=3, bos_token_id=7, eos_token_id=8)
    assert SpecialTokens.find(transformers.GPT2Model(config)).ids == {7, 8}
    ids = torch.randint(10, 40, (2, 6))
    unsmooth.measure(transformers.GPT2Model(config), [{"input_ids": ids}], tokens="content")
    lists = transformers.GPT2Config(vocab_size=50, n_embd=24, n_layer=1, n_head=3, eos_token_id=[8, 9])
    assert {8, 9} <= (SpecialTokens.find(transformers.GPT2Model(lists)).ids or set())
