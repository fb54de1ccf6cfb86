"""Models that do not fit: spread while they are read, offloaded to disk, at a revision, in the dtype that is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import unsmooth
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.sources.load import load_model
from unsmooth.sources.parts import split_mark

accelerate = pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")
IDS = [{"input_ids": torch.arange(14).reshape(2, 7)}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    transformers.LlamaModel(config).to(torch.bfloat16).save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def test_a_device_map_gives_the_same_numbers_in_the_dtype_that_is_stored(folder: Path) -> None:
    plain = load_model(f"hf:{folder}", dtype=None)
    spread = load_model(f"hf:{folder}", dtype=None, device_map="auto")
    assert {p.dtype for p in spread.model.parameters()} == {torch.bfloat16}
    assert unsmooth.measure(spread, IDS).cells == unsmooth.measure(plain, IDS).cells
    assert {p.dtype for p in load_model(f"hf:{folder}").model.parameters()} == {torch.float32}
    with pytest.raises(OptionError, match="device_map"):
        load_model("timm:vit_tiny_patch16_224", random_init=True, device_map="auto")


def test_weights_on_disk_are_read_layer_by_layer(folder: Path) -> None:
    """A map of accelerate's: the first block in memory, the rest read from the disk when its turn comes."""
    plain = load_model(f"hf:{folder}", dtype=torch.float32)
    places = {"embed_tokens": "cpu", "layers.0": "cpu", "layers.1": "disk", "norm": "disk", "rotary_emb": "cpu"}
    spread = load_model(f"hf:{folder}", dtype=torch.float32, device_map=places)
    away = [name for name, p in spread.model.named_parameters() if p.is_meta]
    assert len(away) == 10
    assert unsmooth.measure(spread, IDS).cells == unsmooth.measure(plain, IDS).cells
    for verb, column in ((unsmooth.explain, "exponent"), (unsmooth.attribute, "mean")):
        found, expected = (verb(each, IDS).frame()[column].tolist() for each in (spread, plain))
        assert found == pytest.approx(expected, rel=1e-6)
    assert [name for name, p in spread.model.named_parameters() if p.is_meta] == away
    with pytest.raises(CheckpointError, match=r"does not give any device for .{0,250} \[\.\.\.\]"):
        load_model(f"hf:{folder}", device_map={"embed_tokens": "cpu", "norm": "disk"})


def test_a_revision_is_cut_off_unless_a_folder_is_called_so(folder: Path, tmp_path: Path) -> None:
    assert split_mark("EleutherAI/pythia-70m@step1000", "@") == ("EleutherAI/pythia-70m", "step1000")
    (tmp_path / "a@b").mkdir()
    assert split_mark(str(tmp_path / "a@b"), "@") == (str(tmp_path / "a@b"), "")
    with pytest.raises(OptionError, match="a folder has no revisions; leave @main out"):
        load_model(f"hf:{folder}@main")
