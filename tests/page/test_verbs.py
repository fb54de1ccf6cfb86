"""`unsmooth report` and `unsmooth demo` as a user runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from page.conftest import tiny
from safetensors.torch import save_file

from unsmooth.cli import main
from unsmooth.cli.demo import shipped
from unsmooth.cli.report import page_names
from unsmooth.errors import OptionError
from unsmooth.sources import PICTURES

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
    from unsmooth.sources.load_timm import create

    save_file(dict(create("vit_tiny_patch16_224", arguments).state_dict()), folder / name / "model.safetensors")


def test_report_writes_a_page_and_its_figures(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    # tests/figures prints every figure; a PDF takes half a second, for the letters in it
    monkeypatch.setattr("unsmooth.figures.printing.printed", lambda drawing, kind: kind.encode())
    page, figures = tmp_path / "a" / "report.html", tmp_path / "figures"
    out, _ = run(
        "report", "timm:vit_tiny_patch16_224", "timm:deit_tiny_patch16_224", *TINY, "--data", "bundled", "--limit", "2",
        "--explain-inputs", "1", "--out", str(page), "--figures", str(figures), "--json",
    )  # fmt: skip
    said = json.loads(out)
    assert said["page"] == str(page)
    assert {"model", "certainty", "advice"} <= {found["about"] for found in said["findings"]}
    assert not any("<" in found["text"] for found in said["findings"])
    assert said["bytes"] == page.stat().st_size
    assert [model["name"] for model in said["models"]] == ["vit_tiny_patch16_224", "deit_tiny_patch16_224"]
    assert {path.name for path in figures.iterdir()} == {Path(path).name for path in said["figures"]}
    assert {Path(path).suffix for path in said["figures"]} == {".svg", ".png", ".pdf"}
    assert all(Path(path).is_file() for path in said["figures"])
    assert "unsmooth report timm:vit_tiny_patch16_224" in page.read_text()


def test_a_refused_report_leaves_nothing_behind(run: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    _, err = run(
        "report", "timm:vit_tiny_patch16_224", *TINY, "--data", str(tmp_path / "nowhere"), "--out", str(page), code=1
    )
    assert "no data at" in err
    assert not list(tmp_path.iterdir())


def test_weights_are_given_once_for_each_model_that_takes_them(
    run: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    _, err = run(
        "report", "timm:vit_tiny_patch16_224", "timm:vit_small_patch16_224", "--data", "bundled",
        "--weights", str(tmp_path / "w.safetensors"), code=1,
    )  # fmt: skip
    assert "--weights is given 1 times for 2 models that could take it" in err


def test_models_are_called_by_the_end_of_their_reference_when_that_tells_them_apart() -> None:
    assert page_names(["zoo:plain", "hf:a/b/mpnet/", "runs/mine"], None) == ["plain", "mpnet", "mine"]
    assert page_names(["hf:a/vit", "timm:vit"], None) == ["a/vit", "timm/vit"]
    assert page_names(["a", "b"], "x, y") == ["x", "y"]
    with pytest.raises(OptionError, match="expected 2 names, got 1"):
        page_names(["a", "b"], "x")
    with pytest.raises(OptionError, match="need different names, got x, x: give them by --names"):
        page_names(["a", "b"], "x,x")
    with pytest.raises(OptionError, match="need different names"):
        page_names(["zoo:a", "zoo:a"], None)


def test_trained_models_lose_the_words_they_share_and_library_models_keep_them() -> None:
    runs = ["zoo:cifar100-10pct-plain", "/runs/cifar100-10pct-sharpening", "out/cifar100-10pct-smoothing/"]
    assert page_names(runs, None) == ["plain", "sharpening", "smoothing"]
    assert page_names(["zoo:vit", "zoo:vit-long"], None) == ["vit", "vit-long"]
    assert page_names(["runs/a/last", "runs/b/last"], None) == ["a/last", "b/last"]
    kept = ["vit_tiny_patch16_224", "vit_small_patch16_224"]
    assert page_names([f"timm:{name}" for name in kept], None) == kept


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsmooth.sources.load_model", lambda *_, **__: pytest.fail("work was begun"))
    (tmp_path / "file").write_text("")
    for out, said in ((tmp_path, "is a folder"), (tmp_path / "file" / "page.html", "cannot be written")):
        for verb in (["report", "zoo:x", "--data", "bundled"], ["demo"]):
            _, err = run(*verb, "--out", str(out), code=1)
            assert said in err


def test_data_that_do_not_fit_one_model_are_refused_before_any_is_measured(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    image, text = tiny(0), dataclasses.replace(tiny(0), modality="text", reference="hf:words")
    found = {"timm:a": image, "hf:words": text}
    monkeypatch.setattr("unsmooth.sources.load_model", lambda reference, **_: found[reference])
    monkeypatch.setattr("unsmooth.analysis.analyse", lambda *_, **__: pytest.fail("something was measured"))
    _, err = run("report", *found, "--data", str(PICTURES), "--out", str(tmp_path / "page.html"), code=1)
    assert "holds images, but hf:words takes text" in err


def test_control_c_says_that_no_page_was_written_and_keeps_the_old_one(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unsmooth.sources.load_model", lambda *_, **__: tiny(0))
    monkeypatch.setattr("unsmooth.analysis.analyse", interrupted)
    page = tmp_path / "page.html"
    for left in ("does not exist", "is as it was before"):
        _, err = run("report", "timm:x", "--data", "bundled", "--out", str(page), code=130)
        assert "interrupted: no page was written" in err
        assert left in err
        page.write_text("old")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert page.read_text() == "old"


def test_demo_shows_the_three_variants_of_the_larger_share(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    folder = tmp_path / "zoo"
    for variant in ("smoothing-symmetric", "plain", "sharpening-symmetric"):
        zoo(folder, f"c-{variant}", variant)
    zoo(folder, "a-plain-10pct", "plain", 0.1)
    monkeypatch.setenv("UNSMOOTH_ZOO", str(folder))
    assert shipped() == ["c-plain", "c-sharpening-symmetric", "c-smoothing-symmetric", "a-plain-10pct"]
    assert shipped(text=True) == []
    page = tmp_path / "demo.html"
    out, _ = run("demo", "--out", str(page))
    assert str(page) in out
    assert all(word in out for word in ("plain", "sharpening", "smoothing", "HFC/LFC"))
    text = page.read_text()
    assert "<h1>One ViT trained plain, sharpening-symmetric and smoothing-symmetric: how smooth" in text
    for name in ("c-plain", "c-sharpening-symmetric", "c-smoothing-symmetric"):
        assert f"zoo:{name}" in text
    assert "a-plain-10pct" not in text


def test_demo_without_a_zoo_stands_in_with_random_weights(
    run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path / "none"))
    monkeypatch.setattr("unsmooth.sources.load_model", lambda reference, random_init: tiny(0))
    page = tmp_path / "demo.html"
    out, _ = run("demo", "--out", str(page))
    assert "no model ships with this copy" in out
    assert "random ViT-Ti" in page.read_text()
