"""The crammed BERT as Hugging Face's ModernBERT, so that a baked model is an ordinary Hugging Face folder."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from unsmooth.errors import MissingExtraError
from unsmooth.sources.files import write_atomically
from unsmooth.sources.trained import TEXT_ABOUT, TEXT_SCHEMA, file_hash
from unsmooth.training.tasks.text.recipe import TextRecipe


def build_model(recipe: TextRecipe, vocabulary: int, tokenizer: Any, seed: int) -> nn.Module:
    """A ModernBERT for masked language modelling, in float32; the same seed gives the same weights."""
    try:
        from transformers import ModernBertConfig, ModernBertForMaskedLM
    except ImportError as error:
        raise MissingExtraError.needed("transformers", "text", "training a text model") from error
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    config = ModernBertConfig(
        vocab_size=vocabulary,
        hidden_size=recipe.width,
        intermediate_size=recipe.inner,
        num_hidden_layers=recipe.depth,
        num_attention_heads=recipe.heads,
        layer_types=["full_attention"] * recipe.depth,
        max_position_embeddings=max(512, recipe.length),  # rotary: fine-tuning may use longer sequences
        embedding_dropout=recipe.dropout,
        mlp_dropout=recipe.dropout,
        attention_dropout=recipe.dropout,
        decoder_bias=False,
        norm_eps=1e-12,
        classifier_pooling="mean",
        **ids,
    )
    config._attn_implementation = "sdpa"
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        return ModernBertForMaskedLM(config)
    finally:
        torch.random.set_rng_state(state)


def masked_logits(
    model: Any, inputs: Int64[Tensor, "row token"], positions: Int64[Tensor, "row hidden"]
) -> Float[Tensor, "row hidden word"]:
    """Logits at the hidden positions only: the decoder is the largest product of the model."""
    features = model.model(input_ids=inputs).last_hidden_state
    chosen = features.gather(1, positions[..., None].expand(-1, -1, features.shape[-1]))
    logits: Tensor = model.decoder(model.head(chosen))
    return logits


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """A run says itself what it does."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def save_model(model: Any, tokenizer: Any, folder: Path, about: dict[str, Any]) -> str:
    """A Hugging Face folder in float16, with its tokenizer; returns the hash of the weights."""
    draft = folder / "model.part"
    shutil.rmtree(draft, ignore_errors=True)
    with _without_bars():
        copy.deepcopy(model).to("cpu", torch.float16).save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    digest = file_hash(draft / "model.safetensors")
    assert digest is not None
    content = {"schema": TEXT_SCHEMA, **about, "weights": digest}
    write_atomically(draft / TEXT_ABOUT, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    for path in sorted(draft.iterdir(), key=lambda p: p.name == "config.json"):  # last: with it the folder is a model
        path.replace(folder / path.name)
    draft.rmdir()
    return digest
