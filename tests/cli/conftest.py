"""Running the command in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

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
