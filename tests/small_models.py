"""Small models and inputs that the tests of several rooms share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from unsmooth.sources import LoadedModel

timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")


def vit(**options: Any) -> nn.Module:
    settings = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 5}
    return timm.models.VisionTransformer(**(settings | options))


def bert(layers: int = 2) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=layers, num_attention_heads=3, intermediate_size=32
    )
    return transformers.BertModel(config)


def images(batches: int = 3, size: int = 2) -> list[torch.Tensor]:
    return [torch.randn(size, 3, 16, 16) for _ in range(batches)]


def words(batches: int = 2) -> list[dict[str, torch.Tensor]]:
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    return [{"input_ids": torch.randint(50, (2, 7)), "attention_mask": mask} for _ in range(batches)]


def text_model(kind: str) -> LoadedModel:
    """A model of eight words, of this class of transformers."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat"]
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, **{w: i + 1 for i, w in enumerate(words)}}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[UNK]")
    torch.manual_seed(0)
    shape = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.LlamaConfig(vocab_size=9, max_position_embeddings=32, **shape)
    if kind.startswith("Roberta"):
        config = transformers.RobertaConfig(vocab_size=9, max_position_embeddings=32, pad_token_id=0, **shape)
    return LoadedModel(getattr(transformers, kind)(config).eval(), "tiny", "text", tokenizer=fast)


def colour_folder(path: Path, classes: int = 3, count: int = 4) -> Path:
    """Pictures whose colour is their class."""
    from PIL import Image

    for split in ("train", "test"):
        for label in range(classes):
            where = path / split / f"c{label}"
            where.mkdir(parents=True)
            for i in range(count):
                shade = [20 + i + (split == "test")] * 3
                shade[label] = 200 + i
                Image.new("RGB", (16, 16), tuple(shade)).save(where / f"{i}.png")
    return path
