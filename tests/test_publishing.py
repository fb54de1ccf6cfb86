"""`unsmooth push`, against a stand-in of the hub's client, and the way back by `zoo:NAME`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import unsmooth
from unsmooth.cli.app import app
from unsmooth.errors import CheckpointError, MissingExtraError, OptionError, UnknownModelError
from unsmooth.publishing import _read, card, front_matter, push
from unsmooth.sources.trained import load_trained, save_trained, trained_folder

yaml = pytest.importorskip("yaml")
ZOO = Path(__file__).parents[1] / "zoo"
CARDS = sorted(path.parent for path in ZOO.glob("*/config.json"))


class Hub:
    """What `push` asks of `huggingface_hub.HfApi`; keeps what was uploaded in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, {}

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.made[repo_id] = private

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> None:
        assert repo_id in self.made
        assert commit_message
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `train` leaves it, of a small untrained model."""
    pytest.importorskip("timm")
    from unsmooth.sources.load_timm import create

    folder = tmp_path_factory.mktemp("runs") / "cifar100-plain-seed7"
    arguments = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 10}
    config = {"name": "vit_tiny_patch16_224", "arguments": arguments, "mean": [0.5] * 3, "std": [0.5] * 3,
              "run": folder.name, "variant": "plain"}  # fmt: skip
    save_trained(create("vit_tiny_patch16_224", arguments), folder, config)
    record = json.loads((ZOO / "records" / "cifar100-10pct-plain-seed3.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, "run": folder.name}))
    return folder


def head(text: str) -> dict[str, Any]:
    """The front matter, as the hub reads it."""
    return yaml.safe_load(text.split("---\n")[1])


def test_what_is_pushed_can_be_loaded_from_the_hub(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path / "hub")
    done = push(trained, "someone/cifar100-mine", private=True, api=hub)
    assert hub.made == {"someone/cifar100-mine": True}
    uploaded = hub.folder / "someone" / "cifar100-mine"
    assert {path.name for path in uploaded.iterdir()} == set(done.files)
    assert {"README.md", "config.json", "model.safetensors", "record.json", "measurement.json"} <= set(done.files)
    text = (uploaded / "README.md").read_text(encoding="utf-8")
    assert text == done.card
    said = head(text)
    assert said["library_name"] == "unsmooth"
    assert said["datasets"] == ["cifar100"]
    accuracy = json.loads((trained / "record.json").read_text())["final"]["accuracy"]
    assert said["model-index"][0]["results"][0]["metrics"] == [{"type": "accuracy", "value": round(100 * accuracy, 2)}]
    assert "someone/cifar100-mine" in text.split("## Use")[1]
    (figure,) = (name for name in done.files if name.startswith("depth."))
    assert f"({figure})" in text
    assert "unsmooth train" in text  # the command
    assert unsmooth.load_measurement(uploaded / "measurement.json").samples == 8

    monkeypatch.setenv("UNSMOOTH_HUB", "someone")
    asked = []

    def snapshot_download(repository: str, allow_patterns: list[str]) -> str:
        asked.append(repository)
        assert not any("py" in pattern for pattern in allow_patterns)
        return str(hub.folder / repository)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    found = load_trained("zoo:cifar100-mine").model.state_dict()
    assert asked == ["someone/cifar100-mine"]
    for name, value in load_trained(trained).model.state_dict().items():
        assert torch.equal(found[name], value)


def test_a_dry_run_shows_all_and_uploads_nothing(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self) -> None:
            raise AssertionError("a dry run asks the hub for nothing")

    monkeypatch.setattr("huggingface_hub.HfApi", Refusing)
    done = CliRunner().invoke(app, ["push", str(trained), "someone/mine", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("---\nlicense: apache-2.0\n")
    assert "model.safetensors" in done.output
    assert done.output.rstrip().endswith("would go to https://huggingface.co/someone/mine")


def test_a_wrong_repository_or_folder_is_said_before_the_work(trained: Path, tmp_path: Path) -> None:
    for wrong in ("mine", "a/b/c", "../x", "a/", "a b/c"):
        with pytest.raises(OptionError, match="expected a repository as OWNER/NAME"):
            push(trained, wrong, dry_run=True)
    with pytest.raises(CheckpointError, match="no model at"):
        push(tmp_path, "a/b", dry_run=True)


def test_a_missing_client_is_named(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"needs huggingface_hub.*unsmooth\[hub\]"):
        push(trained, "a/b")
    with pytest.raises(UnknownModelError, match=r"no model zoo:nothing;.*unsmooth\[hub\]"):
        trained_folder("zoo:nothing")


def test_without_a_network_the_zoo_says_what_is_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    def offline(*_: Any, **__: Any) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(UnknownModelError, match=r"available: cifar100.*could not be asked for \w+/other"):
        trained_folder("zoo:other")
    with pytest.raises(UnknownModelError, match="no name of a repository"):
        trained_folder("zoo:../../etc")


def test_a_result_of_the_zoo_is_shipped_or_on_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shipped = ZOO / "results" / "models" / "small-text-plain" / "measurement.json"
    elsewhere = tmp_path / "someone" / "large-text"
    elsewhere.mkdir(parents=True)
    shutil.copyfile(shipped, elsewhere / "measurement.json")
    asked = []

    def snapshot_download(repository: str, allow_patterns: list[str]) -> str:
        asked.append((repository, *allow_patterns))
        return str(tmp_path / repository)

    monkeypatch.setenv("UNSMOOTH_HUB", "someone")
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    here = unsmooth.load("zoo:small-text-plain/measurement.json")
    assert asked == []
    there = unsmooth.load_measurement("zoo:large-text/measurement.json")
    assert asked == [("someone/large-text", "measurement.json")]
    assert there.to_json() == here.to_json() == unsmooth.load(shipped).to_json()
    with pytest.raises(
        CheckpointError, match=r"available: .*zoo:small-text-plain/.*someone/large-text .* has no explanation"
    ):
        unsmooth.load("zoo:large-text/explanation.json")
    compared = ["compare", "zoo:large-text/measurement.json", "zoo:small-text-plain/measurement.json", "--json"]
    done = CliRunner().invoke(app, compared)
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["a"]["name"] == "zoo:large-text/measurement.json"


def test_a_result_of_the_zoo_without_a_network_or_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> str:
        raise ConnectionError

    monkeypatch.setattr("huggingface_hub.snapshot_download", offline)
    with pytest.raises(CheckpointError, match=r"available: .*zoo:small-text-plain/.*could not be asked for \w+/other"):
        unsmooth.load("zoo:other/measurement.json")
    for wrong in (
        "zoo:small-text-plain",
        "zoo:../models/measurement.json",
        "zoo:a/../b.json",
        "zoo:a/b.py",
        "zoo:/a.json",
    ):
        with pytest.raises(OptionError, match="expected a result of the zoo as zoo:NAME/FILE.json"):
            unsmooth.load(wrong)


def test_a_card_says_what_a_run_scored_and_on_what(trained: Path) -> None:
    """That of a text model gave the share of hidden tokens as the accuracy on all images."""
    name = "small-text-plain"
    record = json.loads((ZOO / "results" / "models" / name / "record.json").read_text())
    text = card(name, {"run": name, "variant": "plain"}, record)
    assert "| result | held-out loss 2.693, 48.75 % of hidden tokens right (2,048 sequences) |" in text
    about, record = _read(trained)
    shown = f"{100 * record['final']['accuracy']:.2f}"
    assert f"| result | test accuracy {shown} % (10,000 images) |" in card("x", about, record)


def test_a_card_of_ones_own_is_kept() -> None:
    about, record = {"run": "cifar100-plain-seed0", "arguments": {}, "variant": "plain"}, {}
    text = card("x", about, record, "# Mine\n\nWords.\n", "depth.svg", 8)
    assert head(text)["tags"] == ["unsmooth", "oversmoothing", "timm", "plain"]
    assert "# Mine\n\nWords." in text
    again = card("x", about, record, text, "depth.svg", 8)
    assert again == text  # nothing twice
    with pytest.raises(CheckpointError, match="front matter"):
        card("x", about, record, "---\nlicense: mit\n")


@pytest.mark.parametrize("folder", CARDS, ids=lambda path: path.name)
def test_cards_of_the_zoo_have_the_front_matter_of_today(folder: Path) -> None:
    text = (folder / "README.md").read_text(encoding="utf-8")
    about, record = _read(folder)
    assert record
    assert text.startswith(front_matter(about, record)), (
        f"write {folder.name}'s card again: the head is not of its record"
    )
    quoted = head(text)
    if "model-index" in quoted:
        assert quoted["model-index"][0]["results"][0]["metrics"][0]["value"] == round(
            100 * record["final"]["accuracy"], 2
        )
