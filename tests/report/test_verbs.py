"""`unsmooth report` and `unsmooth demo` as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from report.conftest import tiny
from safetensors.torch import save_file

from unsmooth.cli import main
from unsmooth.cli.demo import shipped
from unsmooth.cli.report import page_names
from unsmooth.errors import OptionError

TINY = ["--random-init"]
for option in ("img_size=64", "depth=2", "embed_dim=24", "num_heads=2"):
    TINY += ["--model-option", option]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """The command with these arguments, in this process; the exit code must be `code`."""

    def call(*arguments: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.setattr("sys.argv", ["unsmooth", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        assert (stop.value.code or 0) == code, out + err
        return out, err

    return call


def zoo(folder: Path, name: str, variant: str, fraction: float = 1.0) -> None:
    """A trained model as `train` saves it, tiny and untrained."""
    arguments = {"img_size": 64, "depth": 2, "embed_dim": 24, "num_heads": 2, "patch_size": 16}
    config = {
        "schema": "unsmooth-model/1", "library": "timm", "name": "vit_tiny_patch16_224", "arguments": arguments,
        "mean": [0.5] * 3, "std": [0.5] * 3, "variant": variant, "fraction": fraction,
    }  # fmt: skip
    (folder / name).mkdir(parents=True)
    (folder / name / "config.json").write_text(json.dumps(config))
    from unsmooth.models.load_timm import create

    save_file(dict(create("vit_tiny_patch16_224", arguments).state_dict()), folder / name / "model.safetensors")


def test_report_writes_a_page_and_its_figures(run: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    pytest.importorskip("timm")
    page, figures = tmp_path / "a" / "report.html", tmp_path / "figures"
    out, _ = run(
        "report", "timm:vit_tiny_patch16_224", "timm:deit_tiny_patch16_224", *TINY, "--data", "bundled", "--limit", "2",
        "--explain-inputs", "1", "--out", str(page), "--figures", str(figures), "--json",
    )  # fmt: skip
    said = json.loads(out)
    assert said["page"] == str(page)
    assert said["bytes"] == page.stat().st_size
    assert [model["name"] for model in said["models"]] == ["vit_tiny_patch16_224", "deit_tiny_patch16_224"]
    assert all(Path(path).is_file() for path in said["figures"])
    assert "unsmooth report timm:vit_tiny_patch16_224" in page.read_text()


def test_a_refused_report_leaves_nothing_behind(run: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    _, err = run(
        "report", "timm:vit_tiny_patch16_224", *TINY, "--data", str(tmp_path / "nowhere"), "--out", str(page), code=1
    )
    assert "no data at" in err
    assert not list(tmp_path.iterdir())


def test_weights_for_several_models_are_refused(run: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    _, err = run(
        "report", "timm:vit_tiny_patch16_224", "timm:vit_small_patch16_224", "--data", "bundled",
        "--weights", str(tmp_path / "w.safetensors"), code=1,
    )  # fmt: skip
    assert "--weights is for one model, got 2" in err


def test_models_are_called_by_the_end_of_their_reference_when_that_tells_them_apart() -> None:
    assert page_names(["zoo:plain", "hf:a/b/mpnet/", "runs/mine"], None) == ["plain", "mpnet", "runs/mine"]
    assert page_names(["hf:a/vit", "timm:vit"], None) == ["hf:a/vit", "timm:vit"]
    assert page_names(["a", "b"], "x, y") == ["x", "y"]
    with pytest.raises(OptionError, match="expected 2 names, got 1"):
        page_names(["a", "b"], "x")


def test_demo_shows_the_three_variants_of_the_larger_share(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    folder = tmp_path / "zoo"
    for variant in ("smoothing-symmetric", "plain", "sharpening-symmetric"):
        zoo(folder, f"c-{variant}", variant)
    zoo(folder, "a-plain-10pct", "plain", 0.1)
    assert shipped(folder) == ["c-plain", "c-sharpening-symmetric", "c-smoothing-symmetric", "a-plain-10pct"]
    monkeypatch.setenv("UNSMOOTH_ZOO", str(folder))
    page = tmp_path / "demo.html"
    out, _ = run("demo", "--out", str(page))
    assert str(page) in out
    assert "Change by kind of layer" in out
    text = page.read_text()
    for name in ("c-plain", "c-sharpening-symmetric", "c-smoothing-symmetric"):
        assert name in text
    assert "a-plain-10pct" not in text


def test_demo_without_a_zoo_stands_in_with_random_weights(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path / "none"))
    monkeypatch.setattr("unsmooth.models.load_model", lambda reference, random_init: tiny(0))
    page = tmp_path / "demo.html"
    out, _ = run("demo", "--out", str(page))
    assert "no model ships with this copy" in out
    assert "random ViT-Ti" in page.read_text()
