"""A tiny encoder, and tasks that it can learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from unsmooth.sources import LoadedModel
from unsmooth.training.tasks.text.tokenizer import train_tokenizer


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(["yes no maybe it is red blue green what because so house tree " * 50], 60)


@pytest.fixture
def loaded(tokenizer: Any) -> LoadedModel:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **shape))
    return LoadedModel(model.eval(), "tiny", "text", tokenizer=tokenizer)


def write(folder: Path, name: str, records: list[dict[str, Any]]) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for split, part in (("train", records[:48]), ("val", records[48:])):
        (folder / name / f"{split}.jsonl").write_text("\n".join(map(json.dumps, part)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tasks whose answer is one word of the text."""
    colours = ["red", "blue"]
    entail = [
        {
            "premise": f"it is {colours[i % 2]}",
            "hypothesis": "house tree",
            "label": ["entailment", "not_entailment"][i % 2],
        }
        for i in range(64)
    ]
    copa = [
        {
            "premise": "it is",
            "question": "cause",
            "choice1": colours[i % 2],
            "choice2": colours[1 - i % 2],
            "label": i % 2,
        }
        for i in range(64)
    ]
    write(tmp_path, "RTE", entail)
    write(tmp_path, "COPA", copa)
    return tmp_path
