"""Folders that `train` wrote: what is in them is checked, and never trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unsmooth
from unsmooth.control import FIXES, Variant
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.sources import load_model
from unsmooth.sources.trained import load_trained, save_trained, trained_folder

pytest.importorskip("timm")

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "num_heads": 2, "depth": 2, "num_classes": 4}
CONFIG = {"name": "vit_tiny_patch16_224", "arguments": SMALL, "mean": [0.5] * 3, "std": [0.2] * 3, "variant": "plain"}


def build(variant: str = "plain") -> nn.Module:
    """A small ViT whose attention counts; the weights of its fix are moved away from where they start."""
    import timm

    torch.manual_seed(0)
    model: nn.Module = timm.create_model(CONFIG["name"], pretrained=False, **SMALL)
    model = Variant.parse(variant).apply(model).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".fix." in name:
                parameter.add_(torch.randn_like(parameter))
            elif ".attn." in name:
                parameter.mul_(10)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_trained(build(), tmp_path / "run", CONFIG)
    return tmp_path / "run"


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


class _Code:
    """A pickle that runs code when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"checkpoint_path": "PICKLE"}, "the argument checkpoint_path='.*' is not one that train writes"),
        ({"pretrained": True}, "the argument pretrained=True is not one"),
        ({"pretrained_cfg": {"file": "PICKLE"}}, "the argument pretrained_cfg=.* is not one"),
        ({"scriptable": True}, "the argument scriptable=True is not one"),
        ({"cache_dir": "/tmp"}, "the argument cache_dir='/tmp' is not one"),
        ({"depth": "2"}, "the argument depth='2' is not one that train writes: expected only img_size, "),
        ({"depth": True}, "the argument depth=True"),
        ({"depth": 2.0}, "the argument depth=2.0"),
        ({"depth": 10**9}, "the argument depth=1000000000"),
        ({"patch_size": 0}, "the argument patch_size=0"),
        ({"qkv_bias": 1}, "the argument qkv_bias=1"),
        ({"mlp_ratio": float("nan")}, "the argument mlp_ratio=nan"),
        ({"global_pool": "../x"}, "the argument global_pool='../x'"),
        ({"embed_dim": 24_000}, "describes a model far larger than model.safetensors"),
        ({"num_heads": 5}, "describes no model that can be built"),
        ({"depth": 3}, "does not fit VisionTransformer"),
    ],
)
def test_a_folder_passes_nothing_else_on_to_timm(extra: dict[str, Any], said: str, folder: Path) -> None:
    """timm 1.0.20 to 1.0.25 read checkpoint_path as a pickle, and run what is in it."""
    mark, file = folder / "ran", folder / "weights.pth"
    torch.save(_Code(mark), file)
    arguments = json.loads(json.dumps({**SMALL, **extra}).replace("PICKLE", str(file)))
    rewrite(folder, arguments=arguments)
    for load in (load_model, load_trained):
        with pytest.raises(CheckpointError, match=said):
            load(folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"name": "hf-hub:somebody/model"},
            "'hf-hub:somebody/model' is not the name of a timm model",
        ),
        ({"name": "local-dir:/tmp"}, "is not the name of a timm model"),
        ({"name": "../model"}, "is not the name of a timm model"),
        ({"name": 3}, "expected a timm model's name and arguments"),
        ({"name": "no_such_model"}, "describes no model that can be built"),
        ({"arguments": [1]}, "expected a timm model's name and arguments"),
        ({"mean": [0.5, "x", 0.5]}, "expected mean as three numbers"),
        ({"mean": None}, "expected mean as three numbers, got None"),
        ({"std": [0.5, 0.0, 0.5]}, "expected std as three numbers"),
        ({"variant": "sharp"}, "describes no model that can be built: unknown variant 'sharp'"),
        ({"variant": 3}, "unknown variant '3'"),
        ({"recipe": "cifar100"}, "its recipe or class_names are not what train writes"),
        ({"class_names": "cat"}, "its recipe or class_names are not what train writes"),
        ({"schema": "unsmooth-model/9"}, "expected schema 'unsmooth-model/1', got 'unsmooth-model/9'"),
    ],
)
def test_a_configuration_of_another_kind_is_one_message(changes: dict[str, Any], said: str, folder: Path) -> None:
    rewrite(folder, **changes)
    with pytest.raises(CheckpointError, match=said):
        load_model(folder)


def test_a_flipped_bit_is_noticed(folder: Path) -> None:
    load_model(folder)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-5] ^= 1
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"model.safetensors was changed after it was written: its SHA-256"):
        load_model(folder)
    config = json.loads((folder / "config.json").read_text())
    del config["weights"]  # folders of version 0.1 do not know it
    (folder / "config.json").write_text(json.dumps(config))
    load_model(folder)


@pytest.mark.parametrize("variant", [*FIXES, "attnscale@:1"])
def test_a_model_with_a_published_fix_loads_and_is_measured(variant: str, tmp_path: Path) -> None:
    model, x = build(variant), torch.randn(2, 3, 32, 32)
    save_trained(model, tmp_path, {**CONFIG, "variant": variant, "fix": variant}, half=False)
    loaded = load_model(tmp_path)
    torch.testing.assert_close(loaded.model(x), model(x), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(loaded.model(x), build()(x), rtol=1e-3, atol=1e-3)
    with torch.no_grad():
        assert unsmooth.measure(loaded.model, [x]).samples == 2


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    (tmp_path / "previous.safetensors").write_bytes(b"")
    for load in (load_model, load_trained, trained_folder):
        with pytest.raises(CheckpointError, match="is not finished: run its command again, it goes on by itself"):
            load(tmp_path)


def test_a_hugging_face_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    for load in (load_model, load_trained):
        with pytest.raises(OptionError, match=f"give it as hf:{tmp_path}"):
            load(tmp_path)
