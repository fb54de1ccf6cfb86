"""Running the command in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import unsmooth
from unsmooth.cli import main


class Done(NamedTuple):
    stdout: str
    stderr: str


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`unsmooth` with these arguments; the exit code must be `code`."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object, code: int = 0) -> Done:
        monkeypatch.setattr("sys.argv", ["unsmooth", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        done = Done(*capsys.readouterr())
        assert (stop.value.code or 0) == code, done.stdout + done.stderr
        return done

    return call


@pytest.fixture(scope="session")
def tiny() -> list[str]:
    """A small random model as arguments."""
    return ["timm:vit_tiny_patch16_224", "--random-init", "--model-option", "depth=2", "--model-option", "img_size=64"]


def small(depth: int, seed: int) -> torch.nn.Module:
    import timm

    torch.manual_seed(seed)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_heads": 2, "depth": depth}
    return timm.create_model("vit_tiny_patch16_224", **sizes)


def measured(depth: int = 2, seed: int = 0, samples: int = 4, **options: Any) -> unsmooth.Measurement:
    return unsmooth.measure(small(depth, seed), [torch.randn(samples, 3, 32, 32)], **options)


@pytest.fixture(scope="session")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models on the same images, a long name of a point among them."""
    folder = tmp_path_factory.mktemp("twins")
    images = [torch.randn(6, 3, 32, 32)]
    a, b = (unsmooth.measure(small(depth=11, seed=seed), images) for seed in range(2))
    return a.save(folder / "a.json"), b.save(folder / "b.json")
