"""What an installation without the clone can do, tried in its own environment: `python tests/installed.py EXTRA`.

Run by `make installed EXTRA=vision` on the built wheel. Every extra measures something; whatever it does not bring is
asked for all the same, and must be answered with the extra's name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HAS = {"lean": set(), "vision": {"vision"}, "text": {"text"}, "all": {"vision", "text", "data", "report", "train"}}
# What to ask for, by the extra that it needs.
ASKED = {
    "vision": ["measure", "zoo:cifar100-plain", "--data", "bundled", "--samples", "2", "--json"],
    "text": ["measure", "zoo:text-plain", "--data", "bundled", "--samples", "2", "--json"],
    "data": ["measure", "zoo:cifar100-plain", "--data", "some.parquet", "--json"],
    "report": ["simulate", "--seeds", "2", "--layers", "8", "--figure", "phase.png"],
}


def unsmooth(*words: str) -> subprocess.CompletedProcess[str]:
    """The installed command."""
    command = [str(Path(sys.executable).with_name("unsmooth")), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def in_python() -> None:
    """Measuring, explaining, controlling and reporting a model in memory needs nothing but torch."""
    import torch
    from torch import nn

    import unsmooth

    assert "site-packages" in unsmooth.__file__, f"not the installed package: {unsmooth.__file__}"
    layer = nn.TransformerEncoderLayer(16, 2, 32, norm_first=True, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    batches = [torch.randn(2, 6, 16)]
    measured = unsmooth.measure(model, batches)
    assert measured.samples == 2
    assert len(measured.frame()) > 10
    assert len(unsmooth.explain(model, batches).by_layer()) == 2
    assert unsmooth.report(model, batches, out="lean.html", explain_inputs=1).stat().st_size > 50_000
    measured.plot().save("depth.svg")


# A user's program, and what mypy must find wrong in it: nothing above the last three lines, each of those.
PROGRAM = """\
from pathlib import Path

import torch

import unsmooth


def use(model: torch.nn.Module, batches: list[torch.Tensor]) -> None:
    measured = unsmooth.measure(model, batches, tokens=["all", "patches"])
    samples: int = measured.samples
    page: Path = unsmooth.report(model, batches, out="page.html")
    ratio: torch.Tensor = unsmooth.hfc_lfc_ratio(batches[0])
    wrong: str = measured.samples
    unsmooth.measure(model, batches, tokens=3)
    unsmooth.measuer(model, batches)
"""
WRONG = [(13, "assignment"), (14, "arg-type"), (15, "attr-defined")]


def in_a_typed_program() -> None:
    """The package's types hold in a user's project: mypy neither takes them for Any nor complains of right use."""
    Path("program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--strict", "program.py"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.findall(r"^program\.py:(\d+): error: .*\[([\w-]+)\]$", said.stdout, re.MULTILINE)
    assert [(int(line), kind) for line, kind in found] == WRONG, said.stdout + said.stderr


def main(extra: str) -> None:
    """Everything, in a folder of its own."""
    brought = HAS[extra]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("some.parquet").write_bytes(b"PAR1 and no table PAR1")
        said = unsmooth("--help")
        assert said.returncode == 0, said.stderr
        assert "measure" in said.stdout
        in_python()
        in_a_typed_program()
        for needs, words in ASKED.items():
            said = unsmooth(*words)
            if needs not in brought:
                wanted = f"unsmooth[{needs}]" if needs != "data" or "vision" in brought else "unsmooth["
                assert said.returncode == 1, f"{words}: {said.stdout}"
                assert wanted in said.stderr, f"{words}: expected {wanted} to be named, got {said.stderr}"
                assert "Traceback" not in said.stderr
            elif needs == "data":  # which is no table: refused by the reader, not for want of one
                assert said.returncode == 1, said.stdout
                assert "some.parquet" in said.stderr, said.stderr
                assert "unsmooth[" not in said.stderr, said.stderr
            elif "--json" in words:
                assert said.returncode == 0, said.stderr
                assert json.loads(said.stdout)["cells"]
            elif needs == "report":
                assert said.returncode == 0, said.stderr
                assert Path("phase.png").stat().st_size > 1000
            print(f"{extra}: {needs:7} {'works' if needs in brought else 'is asked for by name'}")
        if "vision" in brought:
            said = unsmooth("demo", "--models", "1")
            assert said.returncode == 0, said.stderr
            assert Path("demo.html").stat().st_size > 300_000


if __name__ == "__main__":
    main(*sys.argv[1:])
