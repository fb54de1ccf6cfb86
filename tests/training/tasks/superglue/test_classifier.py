"""Which models are taken, and what padding does: nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertModel,
    DPRConfig,
    DPRQuestionEncoder,
    GPT2Config,
    GPT2Model,
    OPTConfig,
    OPTForCausalLM,
    ReformerConfig,
    ReformerModel,
    RobertaConfig,
    RobertaModel,
    RoFormerConfig,
    RoFormerModel,
    T5Config,
    T5ForConditionalGeneration,
)

from unsmooth.errors import DataError, ForwardError, OptionError, UnknownModelError
from unsmooth.sources import LoadedModel
from unsmooth.training.finetuning.text import TextJob
from unsmooth.training.tasks.superglue.classifier import (
    PairClassifier,
    check_trains,
    copied_encoder,
    encode,
    find_encoder,
    new_head,
    positions,
)
from unsmooth.training.tasks.superglue.evaluation import evaluate_superglue
from unsmooth.training.tasks.superglue.examples import TASKS, Example, read_examples
from unsmooth.training.tasks.superglue.finetune import FineTuning
from unsmooth.training.tasks.text.model import build_model
from unsmooth.training.tasks.text.recipe import RECIPES

HOW = FineTuning(lr=3e-3, batch_size=8, epochs=8, length=16, precision="float32")


def test_padding_changes_no_logit(loaded: LoadedModel, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = Example((("red", "blue"), ("red", "it is red and blue and red again")), 0)
    examples = [*read_examples(folder, TASKS["COPA"], "val")[:3], uneven]
    model = PairClassifier(copied_encoder(loaded.model), new_head(16, TASKS["COPA"], 0)).eval()
    ids, mask = encode(examples, loaded.tokenizer, 128)
    assert ids.shape[-1] == -(-int(mask.sum(-1).max()) // 16) * 16 < 128  # no wider than the longest, in sixteens
    longest = mask.sum(-1).amax(1)
    assert longest.unique().numel() > 1
    widths, features = list[int](), model.features
    monkeypatch.setattr(model, "features", lambda x, m: (widths.append(x.shape[-1]), features(x, m))[1])
    with torch.no_grad():
        together = model(ids, mask)
        alone = torch.cat([model(*row) for row in zip(ids[:, None], mask[:, None], strict=True)])
    assert widths == [int(longest.max()), *longest.tolist()]  # a CPU does not compute what a whole batch lacks
    assert torch.allclose(together, alone, atol=1e-5)
    assert together.shape == (4, 2)


def test_padding_stands_after_the_tokens_whatever_the_tokenizer_would_do(tokenizer: Any, folder: Path) -> None:
    uneven = Example((("red", "blue"), ("red", "it is red")), 0)
    examples = [*read_examples(folder, TASKS["COPA"], "val")[:2], uneven]
    (ids, mask), other = encode(examples, tokenizer, 32), copy.deepcopy(tokenizer)
    assert mask.sum(-1).unique().numel() > 1
    assert (mask.int().diff() <= 0).all()
    assert (ids[~mask] == tokenizer.pad_token_id).all()
    for row, pair in zip(ids.flatten(0, 1), [p for e in examples for p in e.choices], strict=True):
        whole = tokenizer(*pair)["input_ids"]
        assert row[: len(whole)].tolist() == whole
    other.padding_side = "left"
    assert all(map(torch.equal, encode(examples, other, 32), (ids, mask)))
    other.pad_token = None  # as of GPT-2
    without, same = encode(examples, other, 32)
    assert torch.equal(same, mask)
    assert torch.equal(without[mask], ids[mask])


def test_a_pair_without_tokens_is_refused(tokenizer: Any) -> None:
    """The mean over none of its features would make the whole batch's loss NaN."""

    def words(first: list[str], second: list[str], **_: object) -> dict[str, list[list[int]]]:
        pairs = zip(first, second, strict=True)
        return {"input_ids": [tokenizer.convert_tokens_to_ids(f"{a} {b}".split()) for a, b in pairs]}

    with pytest.raises(DataError, match=r"\('', ''\) has no tokens: expected a text in each pair"):
        encode([Example((("red", "blue"),), 0), Example((("", ""),), 1)], words, 16)


def test_decoders_are_taken_and_what_is_no_text_model_is_refused(loaded: LoadedModel, folder: Path) -> None:
    for model in (BertModel(loaded.model.config), GPT2Model(GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2))):
        assert copied_encoder(model) is not find_encoder(model) is model
    with pytest.raises(UnknownModelError, match="Linear is no text encoder"):
        copied_encoder(torch.nn.Linear(2, 2))
    bare = LoadedModel(loaded.model, "tiny", "text")
    with pytest.raises(DataError, match="tiny has no tokenizer"):
        evaluate_superglue(bare, folder, [TASKS["RTE"]], device="cpu")
    with pytest.raises(UnknownModelError, match="tiny takes images: expected a text encoder"):
        evaluate_superglue(LoadedModel(torch.nn.Linear(2, 2), "tiny", "images"), folder, [TASKS["RTE"]], device="cpu")


def test_a_model_with_too_few_positions_is_refused_before_it_is_tuned(loaded: LoadedModel, folder: Path) -> None:
    how = replace(HOW, length=129)
    with pytest.raises(OptionError, match="tiny has 128 positions, and RTE takes 129 tokens"):
        evaluate_superglue(loaded, folder, [TASKS["RTE"]], how=how, device="cpu")
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    assert positions(RobertaModel(RobertaConfig(vocab_size=60, max_position_embeddings=130, **shape))) == 128
    assert positions(build_model(RECIPES["small-text"], 60, loaded.tokenizer, 0)) is None  # rotary
    assert positions(RoFormerModel(RoFormerConfig(vocab_size=60, max_position_embeddings=64, **shape))) == 64
    assert positions(bart(64).get_encoder()) == 64


def bart(positions: int) -> BartModel:
    sizes = {f"{part}_{name}": 1 for part in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    return BartModel(BartConfig(vocab_size=60, d_model=16, max_position_embeddings=positions, **sizes))


@pytest.mark.parametrize("whole", [True, False])
def test_of_an_encoder_and_a_decoder_the_encoder_is_tuned(whole: bool, loaded: LoadedModel, folder: Path) -> None:
    """The file loader gives the encoder alone, and its configuration still tells of both."""
    shape = {"d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    for pair in (T5ForConditionalGeneration(T5Config(vocab_size=60, d_model=16, **shape)), bart(64)):
        model = pair if whole else pair.get_encoder()
        assert type(find_encoder(model)) is type(pair.get_encoder())
        given = LoadedModel(model.eval(), "tiny", "text", tokenizer=loaded.tokenizer)
        found = evaluate_superglue(given, folder, [TASKS["RTE"]], how=replace(HOW, epochs=1), seeds=1, device="cpu")
        assert found.mean("RTE")[2] == 1


def test_features_that_are_not_as_wide_as_the_layers_are_read_and_no_features_are_refused(
    loaded: LoadedModel, folder: Path
) -> None:
    """OPT-350m projects its output to the width of its embeddings; a retriever gives one vector for a whole text."""
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    options: dict[str, Any] = {"how": replace(HOW, epochs=1), "seeds": 1, "device": "cpu"}
    for width in (8, 16, 24):
        model = OPTForCausalLM(OPTConfig(vocab_size=60, ffn_dim=16, word_embed_proj_dim=width, **shape)).eval()
        given = LoadedModel(model, "projected", "text", tokenizer=loaded.tokenizer)
        assert evaluate_superglue(given, folder, [TASKS["RTE"]], **options).mean("RTE")[2] == 1
    vectors = DPRQuestionEncoder(DPRConfig(vocab_size=60, intermediate_size=16, **shape)).eval()
    given = LoadedModel(vectors, "vectors", "text", tokenizer=loaded.tokenizer)
    with pytest.raises(UnknownModelError, match="DPREncoder gives no features of each token"):
        evaluate_superglue(given, folder, [TASKS["RTE"]], **options)


def test_an_encoder_that_learns_from_some_lengths_only_is_refused(loaded: LoadedModel, folder: Path) -> None:
    """Reformer pads what it evaluates, and ended in an error of its own in the first step of training."""
    config = ReformerConfig(
        vocab_size=60, hidden_size=16, num_attention_heads=2, attention_head_size=8, feed_forward_size=16,
        attn_layers=["local"], local_attn_chunk_length=8, axial_pos_embds=False, max_position_embeddings=64,
    )  # fmt: skip
    given = LoadedModel(ReformerModel(config).eval(), "chunks", "text", tokenizer=loaded.tokenizer)
    with pytest.raises(UnknownModelError, match="ReformerModel cannot be trained on texts of .* multiple of"):
        evaluate_superglue(given, folder, [TASKS["RTE"]], how=HOW, seeds=1, device="cpu")
    with pytest.raises(UnknownModelError, match="it cannot be fine-tuned here"):
        TextJob(given, folder, "RTE", HOW, torch.device("cpu"))
    ids, before = torch.ones(2, 1, 16, dtype=torch.int64), torch.get_rng_state()
    check_trains(given.model, torch.device("cuda"), ids, ids > 0)  # where all texts are padded to one such length
    assert torch.equal(before, torch.get_rng_state())
    assert not given.model.training


def test_a_tokenizer_of_another_model_is_named(loaded: LoadedModel, folder: Path) -> None:
    """An index error of PyTorch's, or of a GPU, said nothing."""
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    small = LoadedModel(BertModel(BertConfig(vocab_size=20, **shape)).eval(), "small", "text", loaded.tokenizer)
    with pytest.raises(ForwardError, match="embeddings for the ids 0 to 19, .* the tokenizer this model's own"):
        evaluate_superglue(small, folder, [TASKS["RTE"]], how=HOW, seeds=1, device="cpu")


def test_a_model_that_gives_no_numbers_has_no_score(loaded: LoadedModel, folder: Path) -> None:
    """The first label was guessed everywhere, which looked like any other score."""
    broken = copy.deepcopy(loaded.model)
    next(p for name, p in broken.named_parameters() if "output.dense.weight" in name).data[0, 0] = float("nan")
    given = LoadedModel(broken, "tiny", "text", tokenizer=loaded.tokenizer)
    with pytest.raises(ForwardError, match="gives NaN or infinity"):
        evaluate_superglue(given, folder, [TASKS["RTE"]], how=HOW, seeds=1, device="cpu")
