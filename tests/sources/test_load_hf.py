"""Hugging Face models by reference, at the edges: configurations alone, weights that lack, what is left as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from model_cases import CASES, DECODER, TEXT, VISION, hf
from safetensors.torch import save_file

from unsmooth.errors import CheckpointError, DataError, UnknownModelError
from unsmooth.models import registry, view
from unsmooth.sources import ImageInput, LoadedModel, load_model, open_data


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A bare BERT as save_pretrained writes it."""
    hf("Bert", **TEXT)().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_hugging_face_weights_from_a_file(bert: Path, tmp_path: Path) -> None:
    save_file(
        {name: torch.full_like(t, 0.5) for name, t in hf("Bert", **TEXT)().state_dict().items()},
        tmp_path / "half.safetensors",
    )
    loaded = load_model(f"hf:{bert}", weights=tmp_path / "half.safetensors")
    assert type(loaded.model).__name__ == "BertModel"
    assert all((p == 0.5).all() for p in loaded.model.parameters())


def test_a_configuration_of_a_pair_gives_its_vision_tower(tmp_path: Path) -> None:
    pair = hf("CLIP", text_config={**TEXT, "hidden_size": 16}, vision_config=VISION)()
    pair.config.save_pretrained(tmp_path)
    v = view(load_model(f"hf:{tmp_path}", random_init=True).model)
    assert (v.family.name, v.width, len(v.layers)) == ("hf-clip-vision", 32, 3)


@pytest.mark.parametrize("known", [True, False])
def test_what_lacks_outside_the_blocks_is_left_random(
    tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A masked language model's config with the weights of its blocks only: neither head nor pooler is measured."""
    import transformers

    if not known:
        rows = [row for row in registry.families() if row.name != "hf-bert"]
        monkeypatch.setattr(registry, "_FAMILIES", rows)

    config = transformers.BertConfig(**TEXT, architectures=["BertForMaskedLM"])
    bare = transformers.BertModel(config, add_pooling_layer=False)
    bare.save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text().replace('"BertModel"', '"BertForMaskedLM"')
    (tmp_path / "config.json").write_text(text)
    model = load_model(f"hf:{tmp_path}").model
    assert type(model).__name__ == "BertModel"
    own = model.state_dict()
    assert all(torch.equal(t, own[name]) for name, t in bare.state_dict().items())


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_preprocessor_the_size_is_the_configurations(
    offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers.utils

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError("no connection")

    hf("ViT", **VISION)().save_pretrained(tmp_path)
    if offline:
        monkeypatch.setattr(transformers.utils, "cached_file", fail)
    assert load_model(f"hf:{tmp_path}").images == ImageInput(16)


def test_remote_code_is_never_run(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    trusted: list[Any] = []
    for auto in (transformers.AutoConfig, transformers.AutoTokenizer):

        def spy(*args: Any, own: Any = auto.from_pretrained, **options: Any) -> Any:
            trusted.append(options.get("trust_remote_code"))
            return own(*args, **options)

        monkeypatch.setattr(auto, "from_pretrained", spy)
    load_model(f"hf:{bert}")
    assert len(trusted) >= 2
    assert all(trust is False for trust in trusted)


def save_tokenizer(words: list[str], folder: Path) -> None:
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: i for i, word in enumerate(["[UNK]", "[PAD]", *words])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    kept = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]")
    kept.save_pretrained(folder)


@pytest.mark.parametrize("words", [["The", "quick", "brown"], []])
def test_a_tokenizer_comes_with_the_model_unless_it_knows_no_word(words: list[str], bert: Path) -> None:
    save_tokenizer(words, bert)
    loaded = load_model(f"hf:{bert}")
    if words:
        assert loaded.tokenizer("The brown fox")["input_ids"] == [2, 4, 0]
        assert loaded.padding_id == 1
    else:
        assert loaded.tokenizer is None


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        # its own unknown token is unknown to it, so it looks for its id for ever (RecursionError)
        ("tokenizer_config.json", {"unk_token": ""}),
        # a text alone is given the place of a pair's second (a panic of the Rust library, which is no Exception)
        ("tokenizer.json", {"post_processor": {
            "type": "TemplateProcessing", "special_tokens": {},
            "single": [{"Sequence": {"id": "B", "type_id": 1}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        }}),
    ],
)  # fmt: skip
def test_a_tokenizer_that_fails_once_it_is_used_is_none(file: str, damage: dict[str, Any], bert: Path) -> None:
    save_tokenizer(["The", "quick", "brown"], bert)
    (bert / file).write_text(json.dumps(json.loads((bert / file).read_text()) | damage))
    loaded = load_model(f"hf:{bert}")
    assert loaded.tokenizer is None
    with pytest.raises(DataError, match="has no tokenizer beside its weights that can be used"):
        next(iter(open_data(bert / "config.json", loaded)))


def test_a_cut_that_is_turned_off_is_not_made(tmp_path: Path) -> None:
    hf("ViT", **VISION)().save_pretrained(tmp_path)
    found = {"size": {"height": 16, "width": 16}, "crop_size": {"height": 12, "width": 12}, "do_center_crop": False}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(found))
    assert load_model(f"hf:{tmp_path}").images == ImageInput(16, squash=True)


def test_a_folder_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "abacus"}))
    with pytest.raises(CheckpointError, match="cannot be read as a Hugging Face model"):
        load_model(f"hf:{tmp_path}")


def test_architectures_that_are_no_list_are_refused(bert: Path) -> None:
    config = json.loads((bert / "config.json").read_text()) | {"architectures": 7}
    (bert / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="architectures"):
        load_model(f"hf:{bert}")


def test_a_configuration_that_names_no_class_gives_the_backbone(tmp_path: Path) -> None:
    hf("Bert", **TEXT)().config.save_pretrained(tmp_path)  # type: ignore[operator, union-attr]
    config = json.loads((tmp_path / "config.json").read_text())
    config.pop("architectures", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert type(load_model(f"hf:{tmp_path}", random_init=True).model).__name__ == "BertModel"


@pytest.mark.parametrize("bars", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_transformers_speaks_as_before_afterwards(bars: bool, fails: bool, bert: Path) -> None:
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_info()
    (logging.enable_progress_bar if bars else logging.disable_progress_bar)()
    if fails:
        (bert / "model.safetensors").write_bytes(b"cut")
    try:
        if fails:
            with pytest.raises(CheckpointError):
                load_model(f"hf:{bert}")
        else:
            load_model(f"hf:{bert}")
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.INFO, bars)
    finally:
        logging.set_verbosity(before[0])
        (logging.enable_progress_bar if before[1] else logging.disable_progress_bar)()


class _Tokenizer:
    def __init__(self, pad: int | None, eos: int) -> None:
        self.pad_token_id, self.eos_token_id = pad, eos


@pytest.mark.parametrize(
    ("tokenizer", "own", "expected"),
    [(_Tokenizer(7, 9), 3, 7), (_Tokenizer(None, 9), 3, 3), (_Tokenizer(None, 9), None, 9), (None, None, 0)],
)
def test_the_padding_is_the_tokenizers_else_the_models_else_the_end(
    tokenizer: Any, own: int | None, expected: int
) -> None:
    model = hf("Bert", **TEXT)()
    model.config.pad_token_id = own  # type: ignore[union-attr]
    assert LoadedModel(model, "hf:x", "text", tokenizer).padding_id == expected


@pytest.mark.parametrize("name", ["videomae", "vivit", "vjepa2"])
def test_video_models_take_video_and_say_that_there_is_no_loader(tmp_path: Path, name: str) -> None:
    saved: Any = next(case for case in CASES if case.name == name).model()
    saved.save_pretrained(tmp_path)
    loaded = load_model(f"hf:{tmp_path}")
    assert loaded.modality == "video"
    with pytest.raises(DataError, match="takes video, for which there is no loader"):
        _ = loaded.vocabulary


@pytest.mark.parametrize("name", ["yolos", "internvl"])
def test_an_image_size_of_two_numbers_is_its_shorter_side(tmp_path: Path, name: str) -> None:
    saved: Any = next(case for case in CASES if case.name == name).model()
    saved.config.image_size = [16, 20]
    saved.save_pretrained(tmp_path)
    assert load_model(f"hf:{tmp_path}", random_init=True).images.size == 16


def test_a_tokenizer_that_wants_more_than_text_is_none(tmp_path: Path) -> None:
    saved: Any = next(case for case in CASES if case.name == "layoutlmv3").model()
    saved.save_pretrained(tmp_path)
    loaded = load_model(f"hf:{tmp_path}")
    assert (loaded.modality, loaded.tokenizer) == ("text", None)


def test_experts_run_in_float64_too(tmp_path: Path) -> None:
    """Their fused product, the default, knows no float64."""
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1}
    hf("Dots1", topk_group=1, n_shared_experts=1, **{**DECODER, **experts})().save_pretrained(tmp_path)
    batch = {"input_ids": torch.arange(3, 10)[None]}
    single, double = (load_model(f"hf:{tmp_path}", dtype=dtype).model for dtype in (torch.float32, torch.float64))
    with torch.no_grad():
        a, b = (model(**batch).last_hidden_state for model in (single, double))
    assert b.dtype is torch.float64
    torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


def test_sparse_attention_is_refused_with_the_option_that_helps(tmp_path: Path) -> None:
    hf("BigBird", attention_type="block_sparse", **TEXT)().save_pretrained(tmp_path)
    with pytest.raises(UnknownModelError, match="attention_type = original_full .*--model-option NAME=VALUE"):
        view(load_model(f"hf:{tmp_path}").model)
    full = load_model(f"hf:{tmp_path}", options={"attention_type": "original_full"}).model
    assert view(full).family.name == "hf-big-bird"


WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs")


@pytest.mark.parametrize("name", ["Bert", "MPNet"])
def test_a_vocab_txt_alone_is_a_tokenizer_or_the_message_says_what_it_lacks(name: str, tmp_path: Path) -> None:
    """MPNet's special tokens (<s>, </s>) are not in BERT's words: ids beyond the model's would be made for them."""
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = getattr(transformers, f"{name}Config")(vocab_size=len(WORDS), **sizes)
    getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dogs " * 3)
    data = open_data(tmp_path / "a.txt", load_model(f"hf:{tmp_path / 'model'}"), max_length=8, samples=1)
    if name == "MPNet":
        with pytest.raises(DataError, match=r"model knows ids up to 12: .*\(a vocab.txt alone lacks"):
            next(iter(data))
    else:
        assert next(iter(data))["input_ids"].tolist() == [[2, 5, 6, 7, 8, 9, 10, 3]]


def test_a_folder_with_only_a_vocab_txt_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    with pytest.raises(CheckpointError, match=r"has no config\.json: expected a folder that save_pretrained wrote"):
        load_model(f"hf:{tmp_path}")
