"""Models by reference, at the edges: nested and foreign weights, odd positions, trained folders, the zoo."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from unsmooth.errors import CheckpointError, DataError, OptionError, UnknownModelError
from unsmooth.sources import ImageInput, LoadedModel, load_model, load_timm
from unsmooth.sources.state_files import read_state
from unsmooth.sources.trained import zoo_folder

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "num_heads": 3, "depth": 2}
TINY = "timm:vit_tiny_patch16_224"


@pytest.mark.parametrize("nested", ["state_dict_ema", "model_ema", "state_dict", "model", "teacher"])
def test_weights_are_found_under_the_names_that_trainers_use(nested: str, tmp_path: Path) -> None:
    torch.save({"epoch": 3, nested: {"module.a": torch.ones(2), "b": 1}}, tmp_path / "a.pth")
    state = read_state(tmp_path / "a.pth")
    assert list(state) == ["a"]
    assert torch.equal(state["a"], torch.ones(2))


def test_averaged_weights_come_before_the_last_ones(tmp_path: Path) -> None:
    weights = {"state_dict": {"a": torch.zeros(1)}, "state_dict_ema": {"a": torch.ones(1)}}
    torch.save(weights, tmp_path / "a.pth")
    assert read_state(tmp_path / "a.pth")["a"].item() == 1


def test_weights_for_which_there_is_no_place_are_refused(tmp_path: Path) -> None:
    state = load_model(TINY, random_init=True, options=SMALL).model.state_dict()
    save_file({**state, **{f"extra.{i}": torch.ones(1) for i in range(4)}}, tmp_path / "more.safetensors")
    with pytest.raises(
        CheckpointError, match=r"4 weights this model has no place for \(extra\.0, extra\.1, extra\.2, …\)\. Check"
    ):
        load_model(TINY, weights=tmp_path / "more.safetensors", options=SMALL)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 8, 24), r"does not fit VisionTransformer: 1 of another shape \(pos_embed\)"),  # seven patches
        (
            (1, 1, 24),
            r"does not fit VisionTransformer: timm cannot convert it \(RuntimeError: .*Check the model's name",
        ),
        ((17, 24), r"does not fit VisionTransformer: timm cannot convert it"),
    ],
)
def test_positions_that_are_no_square_are_not_taken_for_an_image_size(
    shape: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    state = dict(load_model(TINY, random_init=True, options=SMALL).model.state_dict())
    state["pos_embed"] = torch.zeros(shape)
    save_file(state, tmp_path / "odd.safetensors")
    options = {key: value for key, value in SMALL.items() if key != "img_size"}
    with pytest.raises(CheckpointError, match=message):
        load_model(TINY, weights=tmp_path / "odd.safetensors", options=options)


def test_a_headless_file_makes_a_headless_model(tmp_path: Path) -> None:
    state = load_model(TINY, random_init=True, options={**SMALL, "num_classes": 0}).model.state_dict()
    save_file(dict(state), tmp_path / "bare.safetensors")
    loaded = load_model(TINY, weights=tmp_path / "bare.safetensors", options=SMALL)
    assert loaded.model(torch.zeros(1, 3, 32, 32)).shape == (1, 24)


def test_weights_without_positions_need_no_image_size(tmp_path: Path) -> None:
    relative = "timm:vit_relpos_small_patch16_224"
    state = load_model(relative, random_init=True, options=SMALL).model.state_dict()
    save_file({name: t.contiguous() for name, t in state.items()}, tmp_path / "relative.safetensors")
    loaded = load_model(relative, weights=tmp_path / "relative.safetensors", options=SMALL)
    assert all(torch.equal(state[name], t) for name, t in loaded.model.state_dict().items())


def test_a_name_like_no_other_points_to_the_list() -> None:
    with pytest.raises(UnknownModelError, match=r"has no model '0+'; see timm\.list_models\(\)"):
        load_model("timm:" + "0" * 60)


def test_imagenets_statistics_are_timms() -> None:
    import timm.data

    images = ImageInput(16)
    assert (images.mean, images.std) == (timm.data.IMAGENET_DEFAULT_MEAN, timm.data.IMAGENET_DEFAULT_STD)


def test_a_text_model_that_tells_no_vocabulary_is_an_error() -> None:
    with pytest.raises(DataError, match="x takes text, but no vocab_size in its config says how many token ids"):
        _ = LoadedModel(nn.Linear(1, 1), "x", "text").vocabulary
    encoder = nn.ModuleDict({"embed_tokens": nn.Embedding(7, 2)})  # as FSMT's, which has no config
    assert LoadedModel(encoder, "x", "text").vocabulary == 7


@pytest.mark.parametrize("scheme", ["timm", "hf", "zoo"])
def test_a_scheme_alone_is_no_reference(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=f"got '{scheme}', and there is no such path"):
        load_model(scheme)


def test_a_configuration_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes('{"model_type": "é"}'.encode("latin-1"))
    with pytest.raises(OptionError, match="is a Hugging Face folder"):
        load_model(tmp_path)


@pytest.mark.parametrize("changes", [{"library": "other"}, {"name": None}, {"arguments": None}])
def test_a_trained_folder_must_say_which_model_it_holds(changes: dict[str, Any], tmp_path: Path) -> None:
    config = {"schema": "unsmooth-model/1", "library": "timm", "name": TINY[5:], "arguments": SMALL, **changes}
    kept = {key: value for key, value in config.items() if value is not None}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    with pytest.raises(CheckpointError, match="expected a timm model's name and arguments"):
        load_model(tmp_path)


def test_a_trained_model_is_found_by_its_weights_too(tmp_path: Path) -> None:
    state = load_model(TINY, random_init=True, options=SMALL).model.state_dict()
    save_file(dict(state), tmp_path / "model.safetensors")
    config = {"library": "timm", "name": TINY[5:], "arguments": SMALL, "mean": [0.5] * 3, "std": [0.2] * 3}
    (tmp_path / "config.json").write_text(json.dumps({"schema": "unsmooth-model/1", **config}))
    by_file = load_model(tmp_path / "model.safetensors")
    assert by_file.weights_hash == load_model(tmp_path).weights_hash


def test_a_timm_model_that_cannot_be_outlined_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some models compute with their weights while they are built, which the meta device cannot."""
    state = load_model(TINY, random_init=True, options={**SMALL, "num_classes": 7}).model.state_dict()
    save_file(dict(state), tmp_path / "vit.safetensors")
    create = load_timm.create

    def needs_values(name: str, options: Any) -> nn.Module:
        if torch.empty(0).is_meta:
            raise NotImplementedError("no values on meta")
        return create(name, options)

    monkeypatch.setattr(load_timm, "create", needs_values)
    options = {key: value for key, value in SMALL.items() if key != "img_size"}
    loaded = load_model(TINY, weights=tmp_path / "vit.safetensors", options=options)
    assert (loaded.model.get_parameter("head.weight").shape[0], loaded.images.size) == (7, 32)


def test_a_model_of_no_fixed_size_takes_the_one_of_its_weights() -> None:
    import timm.data

    loaded = load_model("timm:naflexvit_base_patch16_gap", random_init=True, options={"depth": 1, "embed_dim": 24})
    assert loaded.images.size == timm.data.resolve_model_data_config(loaded.model)["input_size"][-1]


def test_the_zoo_is_the_projects_unless_another_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNSMOOTH_ZOO", raising=False)
    assert zoo_folder().name == "zoo"
    assert list(zoo_folder().glob("*/config.json"))
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    assert zoo_folder() == tmp_path


class _Code:
    """A pickle that runs code when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize("option", ["checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "pretrained"])
def test_options_never_read_a_file(option: str) -> None:
    with pytest.raises(OptionError, match=f"'{option}' is no option here: give weights by --weights FILE"):
        load_model(TINY, random_init=True, options={**SMALL, option: "weights.pth"})


@pytest.mark.parametrize("name", ["hf-hub:somebody/model", "local-dir:/tmp", "no_such_model", 3])
def test_a_file_names_a_timm_model_and_no_other_source(name: Any) -> None:
    with pytest.raises((CheckpointError, UnknownModelError), match="must not name other sources|has no model"):
        load_timm.create(name, {})


@pytest.mark.parametrize(
    "extra",
    [
        {"model_args": {"checkpoint_path": "PICKLE"}},
        {"architecture": "hf-hub:somebody/model"},
        {"model_args": {"pretrained_cfg": {"file": "PICKLE"}}},
        {"architecture": "local-dir:/tmp"},
        {"attn_implementation": "somebody/kernel"},
    ],
)
@pytest.mark.parametrize("random_init", [False, True])
def test_a_hugging_face_folder_does_not_name_other_files(extra: Any, random_init: bool, tmp_path: Path) -> None:
    mark, file = tmp_path / "ran", tmp_path / "weights.pth"
    torch.save(_Code(mark), file)
    config = {"model_type": "timm_wrapper", "architecture": "vit_tiny_patch16_224", "num_labels": 2, **extra}
    (tmp_path / "config.json").write_text(json.dumps(config).replace("PICKLE", str(file)))
    with pytest.raises(CheckpointError, match="must not name other files or repositories"):
        load_model(f"hf:{tmp_path}", random_init=random_init)
    assert not mark.exists()


def test_an_adapter_is_not_loaded_onto_a_model_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/model"}')
    for _ in range(2):  # alone, as PEFT saves it, then beside a model
        with pytest.raises(CheckpointError, match=r"holds an adapter .* merge it into the weights"):
            load_model(f"hf:{tmp_path}", random_init=True)
        (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')


@pytest.mark.parametrize("scheme", ["", "hf:"])
def test_a_file_of_another_kind_is_told_how_its_model_can_be_given(scheme: str, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(
        CheckpointError, match=r"model\.gguf is a file.*--weights FILE.*ONNX\), load the model in Python"
    ):
        load_model(f"{scheme}{file}")


def test_a_folder_with_code_of_its_own_is_told_to_be_loaded_in_python(tmp_path: Path) -> None:
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"never run here: load the model in Python yourself"):
        load_model(f"hf:{tmp_path}")


@pytest.mark.parametrize("name", ["Trainer", "pipeline", "logging", "no_such", "GPT2Config"])
def test_an_architecture_is_a_model_or_nothing(name: str, tmp_path: Path) -> None:
    config = {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 9, "architectures": [name]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert type(load_model(f"hf:{tmp_path}", random_init=True).model).__name__ == "GPT2Model"


@pytest.mark.parametrize("name", ["../outside", "../../zoo/run", "run/../../outside", "/outside", ".", ""])
def test_a_zoo_name_does_not_leave_the_zoo(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from unsmooth.sources.trained import trained_folder

    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path / "zoo"))
    for folder in ("outside", "zoo/run"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").write_text("{}")
    for resolve in (load_model, trained_folder):
        with pytest.raises(UnknownModelError, match="no model zoo:.*; available: run"):
            resolve(f"zoo:{name}")


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are always UTF-8 there")
def test_weights_in_a_file_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "weights.safetensors")
    odd = (tmp_path / "weights.safetensors").rename(tmp_path / os.fsdecode(b"caf\xe9.safetensors"))
    assert torch.equal(read_state(odd)["a"], torch.ones(2))
