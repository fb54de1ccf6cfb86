"""Ctrl-C where there is nothing to keep: no traceback, and the exit code that shells use for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import unsmooth.analysis

SOURCE = Path(__file__).resolve().parents[2] / "src"
# torch takes its time; the library that stands for it here takes as long as the test needs, and swallows what it can.
SLOW = """
import time
print("loading", flush=True)
try:
    time.sleep(60)
except BaseException:
    pass
raise RuntimeError("half loaded")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of this kind are POSIX's")
def test_ctrl_c_while_libraries_load_ends_quietly(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(SLOW)
    process = subprocess.Popen(
        [sys.executable, "-m", "unsmooth.cli", "measure", "zoo:any", "--data", "bundled"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "loading\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=300)
    assert (process.returncode, *said) == (130, "", "")


def test_ctrl_c_while_a_model_loads_says_so(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("unsmooth.cli.options.ModelOptions.load", pressed)
    done = cli("measure", "zoo:any", "--data", "bundled", code=130)
    assert done.stderr == "interrupted: what was not finished is not written\n"


@pytest.mark.parametrize(
    ("verb", "listener"), [("measure", "Measurer"), ("explain", "Explainer"), ("attribute", "Attributor")]
)
def test_ctrl_c_before_the_first_batch_is_not_told_as_missing_data(
    verb: str, listener: str, cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = getattr(unsmooth.analysis, listener)
    enter = kind.__enter__

    def pressed(self: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return enter(self)

    monkeypatch.setattr(kind, "__enter__", pressed)
    done = cli(verb, "zoo:cifar100-plain", "--data", "bundled", "--samples", "1", code=130)
    assert done.stderr == "interrupted: what was not finished is not written\n"
