"""Models by reference: every scheme, what is inferred, and every promised error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from model_cases import CASES, TEXT, VISION, hf
from safetensors.torch import save_file

from unsmooth.errors import CheckpointError, DataError, MissingExtraError, OptionError, UnknownModelError
from unsmooth.models import view
from unsmooth.sources import ImageInput, load_model

BY_NAME = {case.name: case for case in CASES}
SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "num_heads": 3, "depth": 2}
TINY = "timm:vit_tiny_patch16_224"


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    """Weights of a small ViT with 7 classes."""
    model = load_model(TINY, random_init=True, options={**SMALL, "num_classes": 7}).model
    save_file(model.state_dict(), tmp_path / "vit.safetensors")
    return tmp_path / "vit.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A BERT as save_pretrained writes it, without a tokenizer."""
    hf("Bert", wrap="BertForMaskedLM", **TEXT)().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_timm_with_random_weights() -> None:
    loaded = load_model(TINY, random_init=True, options=SMALL)
    assert loaded.modality == "images"
    assert loaded.images == ImageInput(32, (0.5,) * 3, (0.5,) * 3, "bicubic", 0.9)
    assert not loaded.model.training
    assert len(view(loaded.model).layers) == 2
    with pytest.raises(DataError, match="takes images, not token ids"):
        _ = loaded.vocabulary


def test_local_weights_reveal_classes_and_image_size(vit: Path) -> None:
    options = {key: value for key, value in SMALL.items() if key != "img_size"}
    loaded = load_model(TINY, weights=vit, options=options)
    assert loaded.images.size == 32
    assert loaded.model.head.out_features == 7  # type: ignore[union-attr]
    assert loaded.model(torch.zeros(1, 3, 32, 32)).shape == (1, 7)


def test_positions_are_resampled_for_an_image_size_that_is_asked_for(vit: Path) -> None:
    loaded = load_model(TINY, weights=vit, options={**SMALL, "img_size": 64})
    assert loaded.images.size == 64
    assert loaded.model(torch.zeros(1, 3, 64, 64)).shape == (1, 7)


def test_pickled_weights_are_read_as_tensors_only(vit: Path, tmp_path: Path) -> None:
    state = load_model(TINY, weights=vit, options=SMALL).model.state_dict()
    torch.save({"epoch": 3, "state_dict": {f"module.{name}": t for name, t in state.items()}}, tmp_path / "a.pth")
    again = load_model(TINY, weights=tmp_path / "a.pth", options=SMALL)
    assert all(torch.equal(state[name], t) for name, t in again.model.state_dict().items())


def test_the_hash_tells_weights_apart(vit: Path) -> None:
    same = [load_model(TINY, weights=vit, options=SMALL).weights_hash for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != load_model(TINY, random_init=True, options=SMALL).weights_hash
    assert same[0] != load_model(TINY, weights=vit, options=SMALL, dtype=torch.bfloat16).weights_hash


def test_hugging_face_folder(folder: Path) -> None:
    loaded = load_model(f"hf:{folder}")
    assert type(loaded.model).__name__ == "BertForMaskedLM"
    assert (loaded.modality, loaded.vocabulary, loaded.padding_id, loaded.tokenizer) == ("text", 50, 0, None)
    assert view(loaded.model).family.name == "hf-bert"
    with pytest.raises(DataError, match="takes text, not images"):
        _ = loaded.images


def test_a_head_without_weights_gives_the_bare_backbone(folder: Path, tmp_path: Path) -> None:
    hf("Bert", **TEXT)().save_pretrained(tmp_path / "bare")
    config = json.loads((tmp_path / "bare" / "config.json").read_text())
    config["architectures"] = ["BertForMaskedLM"]
    (tmp_path / "bare" / "config.json").write_text(json.dumps(config))
    assert type(load_model(f"hf:{tmp_path / 'bare'}").model).__name__ == "BertModel"


def test_hugging_face_config_with_random_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    loaded = load_model(f"hf:{folder}", random_init=True, dtype=torch.bfloat16, options={"num_hidden_layers": 5})
    assert len(view(loaded.model).layers) == 5
    assert next(loaded.model.parameters()).dtype == torch.bfloat16


def test_a_clip_folder_gives_its_vision_tower(tmp_path: Path) -> None:
    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 50}
    pair = hf("CLIP", text_config=text, vision_config=VISION)()
    pair.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "size": {"shortest_edge": 20},
                "crop_size": {"height": 16, "width": 16},
                "do_center_crop": True,
                "image_mean": [0.1, 0.2, 0.3],
                "image_std": [1, 1, 1],
                "resample": 2,
            }
        )
    )
    loaded = load_model(f"hf:{tmp_path}")
    assert view(loaded.model).family.name == "hf-clip-vision"
    assert loaded.images == ImageInput(16, (0.1, 0.2, 0.3), (1, 1, 1), "bilinear", 0.8)
    own = pair.vision_model.state_dict()
    assert all(torch.equal(t, own[n.removeprefix("vision_model.")]) for n, t in loaded.model.state_dict().items())


def test_a_siglip_folder_gives_its_vision_tower(tmp_path: Path) -> None:
    pair = hf("Siglip", text_config=TEXT, vision_config=VISION)()
    pair.save_pretrained(tmp_path)
    loaded = load_model(f"hf:{tmp_path}")
    assert (view(loaded.model).family.name, loaded.modality) == ("hf-siglip-vision", "images")
    own = pair.vision_model.state_dict()
    assert all(torch.equal(t, own[n.removeprefix("vision_model.")]) for n, t in loaded.model.state_dict().items())


def test_of_an_encoder_decoder_the_encoder_is_loaded(tmp_path: Path) -> None:
    shape = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 64, "vocab_size": 50}
    whole = hf("T5", **shape)()
    whole.save_pretrained(tmp_path)
    loaded = load_model(f"hf:{tmp_path}")
    assert (view(loaded.model).family.name, loaded.modality, loaded.vocabulary) == ("hf-t5-encoder", "text", 50)
    assert loaded.tokenizer is None  # transformers makes one all the same, to which every word is unknown
    ids = torch.randint(50, (1, 5))
    assert torch.equal(loaded.model(ids)[0], whole.eval().encoder(ids)[0])


def test_speech_models_take_audio_and_say_that_there_is_no_loader(tmp_path: Path) -> None:
    next(case for case in CASES if case.name == "wav2vec2").model().save_pretrained(tmp_path)
    loaded = load_model(f"hf:{tmp_path}")
    assert loaded.modality == "audio"
    with pytest.raises(DataError, match="takes audio, for which there is no loader"):
        _ = loaded.vocabulary


def _trained(folder: Path) -> Path:
    model = load_model(TINY, random_init=True, options=SMALL).model
    folder.mkdir()
    save_file({name: t.half() for name, t in model.state_dict().items()}, folder / "model.safetensors")
    config = {"library": "timm", "name": TINY[5:], "arguments": SMALL, "mean": [0.5] * 3, "std": [0.2] * 3}
    (folder / "config.json").write_text(json.dumps({"schema": "unsmooth-model/1", **config}))
    return folder


def test_a_folder_that_train_wrote_and_the_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _trained(tmp_path / "run")
    loaded = load_model(run)
    assert loaded.images == ImageInput(32, (0.5,) * 3, (0.2,) * 3)
    assert next(loaded.model.parameters()).dtype == torch.float32
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    assert load_model("zoo:run").weights_hash == loaded.weights_hash
    with pytest.raises(UnknownModelError, match=r"no model zoo:rum; available: run\. Did you mean zoo:run\?"):
        load_model("zoo:rum")


def test_an_empty_zoo_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    with pytest.raises(UnknownModelError, match="available: none yet"):
        load_model("zoo:vit")


def test_damaged_and_foreign_files_are_refused(vit: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.safetensors").write_bytes(vit.read_bytes()[:-1000])
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 no more")
    torch.save({"code": Path("x")}, tmp_path / "code.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    for name, why in {
        "cut.safetensors": "truncated or no safetensors file",
        "cut.pth": "truncated, of another kind",
        "code.pth": "holds more than tensors",
        "list.pth": "holds a list",
        "empty.pth": "holds no tensors",
        "absent.pth": "no weights at",
    }.items():
        with pytest.raises(CheckpointError, match=why):
            load_model(TINY, weights=tmp_path / name, options=SMALL)


def test_weights_of_another_model_are_refused_by_name(vit: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weights it lacks \(blocks\.2\.norm1\.weight, .*Check the model's name"):
        load_model(TINY, weights=vit, options={**SMALL, "depth": 3})
    with pytest.raises(CheckpointError, match="of another shape"):
        load_model(TINY, weights=vit, options={**SMALL, "embed_dim": 48})


def test_a_damaged_hugging_face_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"cannot be loaded \(.*truncated, of another kind"):
        load_model(f"hf:{folder}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        load_model(f"hf:{tmp_path / 'empty'}")
    with pytest.raises(CheckpointError, match="no folder at"):
        load_model(f"hf:{tmp_path / 'absent'}")


def test_weights_that_lack_a_block_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] = 4
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"18 weights are missing, for example .*layer\.3"):
        load_model(f"hf:{folder}")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("tim:vit", r"expected a model as timm:NAME, hf:NAME, zoo:NAME or the path.*no scheme 'tim'"),
        ("no/such/run", "there is no such path"),
    ],
)
def test_an_unknown_reference_lists_the_schemes(reference: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        load_model(reference)


def test_a_model_in_memory_needs_no_loading() -> None:
    with pytest.raises(OptionError, match="got Identity: a model in memory needs no loading"):
        load_model(torch.nn.Identity())  # type: ignore[arg-type]


def test_a_hugging_face_folder_without_its_scheme_is_named(folder: Path) -> None:
    with pytest.raises(OptionError, match="is a Hugging Face folder, .* give it as hf:"):
        load_model(folder)


def test_an_unknown_timm_name_lists_near_ones() -> None:
    with pytest.raises(UnknownModelError, match=r"has no model 'vit_tinny_patch16_224'; nearest names: .*vit_tiny"):
        load_model("timm:vit_tinny_patch16_224")


def test_options_that_cannot_be_are_refused(vit: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="either weights or random_init"):
        load_model(TINY, weights=vit, random_init=True)
    with pytest.raises(OptionError, match="does not take these options"):
        load_model(TINY, random_init=True, options={"flavour": 1})
    with pytest.raises(OptionError, match="has no option 'flavour'"):
        load_model(f"hf:{folder}", options={"flavour": 1})
    with pytest.raises(OptionError, match="does not take these options.*num_heads"):
        load_model(TINY, random_init=True, options={**SMALL, "num_heads": 5})
    with pytest.raises((OptionError, UnknownModelError), match="num_hidden_layers|no model can be made"):
        load_model(f"hf:{folder}", random_init=True, options={"num_hidden_layers": "x"})
    with pytest.raises(OptionError, match="for timm: and hf: models only"):
        load_model(_trained(tmp_path / "run"), random_init=True)


@pytest.mark.parametrize(
    ("package", "reference", "extra"), [("timm", TINY, "vision"), ("transformers", "hf:x", "text")]
)
def test_a_missing_extra_is_named(package: str, reference: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"needs {package}.*pip install 'unsmooth\[{extra}\]'"):
        load_model(reference)


def test_no_network_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm
    import transformers

    def offline(*args: Any, **kwargs: Any) -> None:
        raise OSError("We couldn't connect to the hub")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(CheckpointError, match=r"couldn't connect.*--weights FILE.*--random-init"):
        load_model(TINY)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", offline)
    with pytest.raises(UnknownModelError, match=r"couldn't connect.*Check the name.*hf:FOLDER.*--random-init"):
        load_model("hf:some/model")
