"""A part of a Hugging Face model by its path, and what kind of input it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from model_cases.builders import DECODER, TEXT, VISION, VOCAB, hf
from torch import nn

from unsmooth.analysis import measure
from unsmooth.errors import ForwardError, OptionError, UnknownModelError
from unsmooth.models import view
from unsmooth.models.forward import call
from unsmooth.sources import load_model
from unsmooth.sources.parts import modality_of

_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}


@pytest.fixture
def clip(tmp_path: Path) -> tuple[Path, Any]:
    """A whole CLIP as save_pretrained writes it."""
    pair: Any = hf("CLIP", text_config={**TEXT, **_TOKENS}, vision_config=VISION)()
    pair.save_pretrained(tmp_path / "clip")
    return tmp_path / "clip", pair


def test_a_named_part_is_the_model(clip: tuple[Path, Any]) -> None:
    folder, pair = clip
    text, vision = (load_model(f"hf:{folder}#{part}") for part in ("text_model", "vision_model"))
    assert (text.modality, text.vocabulary, view(text.model).family.name) == ("text", VOCAB, "hf-clip-text")
    assert (vision.modality, vision.images.size, view(vision.model).family.name) == ("images", 16, "hf-clip-vision")
    for name, weight in pair.text_model.state_dict().items():
        assert torch.equal(text.model.state_dict()[name], weight)


def test_a_part_of_random_weights(clip: tuple[Path, Any]) -> None:
    made = load_model(f"hf:{clip[0]}#text_model", random_init=True)
    assert (made.modality, view(made.model).causal) == ("text", True)


def test_a_part_that_is_not_there_names_those_that_are(clip: tuple[Path, Any]) -> None:
    with pytest.raises(OptionError, match=r"\(CLIPModel\) has no part 'text': it holds text_model, vision_model"):
        load_model(f"hf:{clip[0]}#text")


def test_a_part_that_no_data_fits_is_refused(clip: tuple[Path, Any]) -> None:
    with pytest.raises(OptionError, match=r"takes inputs_embeds.*Give the part around it"):
        load_model(f"hf:{clip[0]}#vision_model.encoder")


def test_a_folder_with_a_hash_in_its_name_is_one_name(tmp_path: Path) -> None:
    hf("Bert", **TEXT)().save_pretrained(tmp_path / "bert#2")
    assert type(load_model(f"hf:{tmp_path / 'bert#2'}").model).__name__ == "BertModel"


def test_two_towers_say_how_to_name_one(clip: tuple[Path, Any]) -> None:
    with pytest.raises(UnknownModelError, match=r"model\.get_submodule\('text_model'\).*hf:NAME#text_model"):
        view(clip[1])


def test_an_outer_model_that_embeds_is_measured_like_the_inner_one() -> None:
    import transformers

    config = transformers.Qwen2VLConfig(
        text_config={"rope_parameters": _MROPE, **DECODER},
        vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 4},
    )
    model: Any = transformers.Qwen2VLForConditionalGeneration(config).eval()
    batch = {"input_ids": torch.arange(3, 20)[None]}
    outer, inner = measure(model, [batch]), measure(model.model.language_model, [batch])
    assert {cell: m.mean for cell, m in outer.cells.items()} == {cell: m.mean for cell, m in inner.cells.items()}
    assert "embed" in {cell.point for cell in inner.cells}


def test_a_vision_tower_that_inherits_another_main_input_takes_images() -> None:
    tower: Any = hf("Idefics3VisionTransformer", "Idefics3VisionConfig", "Idefics3VisionTransformer", **VISION)()
    tower.main_input_name = "input_ids"
    assert modality_of(tower, tower.config, "hf:x") == "images"


def test_a_signature_that_says_nothing_leaves_the_main_input() -> None:
    class Wrapped(nn.Module):
        main_input_name = "input_values"

        def forward(self, *args: Any, **kwargs: Any) -> None: ...

    assert modality_of(Wrapped(), None, "hf:x") == "audio"


def test_a_model_that_wants_pictures_too_says_so() -> None:
    model = hf("Vilt", **{**TEXT, **VISION})()
    with pytest.raises(ForwardError, match=r"It also takes pixel_values: in Python, give unsmooth\.measure dicts"):
        call(model, {"input_ids": torch.ones(1, 4, dtype=torch.long)})
