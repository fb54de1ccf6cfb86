"""The command line as a user runs it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import Program
from safetensors.torch import save_file

import unsmooth

pytest.importorskip("timm")
TINY = ["timm:vit_tiny_patch16_224", "--random-init", "--model-option", "depth=2", "--model-option", "img_size=64"]


def test_tables_and_file_agree_with_json(cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    shown = cli(
        "measure", *TINY, "--data", "bundled", "--limit", "4", "--tokens", "all,patches", "--out", str(out)
    ).stdout
    measurement = unsmooth.load_measurement(out)
    assert measurement.samples == 4
    assert measurement.about.model.reference == TINY[0]
    assert measurement.about.data.reference == "bundled"
    frame = measurement.frame().set_index(["point", "metric", "tokens"])
    assert f"{frame.loc[('blocks.1.post', 'effective_rank', 'patches'), 'mean']:#.4g}" in shown
    assert "Change by kind of layer, chain reading" in shown
    assert "LayerNorm" in shown
    assert "per sample, then mean over samples" in shown


def test_json_is_all_that_is_printed(cli: Callable[..., Any]) -> None:
    done = cli("measure", *TINY, "--data", "random", "--limit", "2", "--json", "--points", "blocks.*.attn,embed")
    found = json.loads(done.stdout)
    assert found["schema"] == "unsmooth.measurement/1"
    assert {c["point"] for c in found["cells"]} == {"embed", "blocks.0.attn", "blocks.1.attn"}


def test_more_samples_than_a_machine_counts_are_all_there_are(cli: Callable[..., Any]) -> None:
    huge = str(10**30)
    shown = cli("measure", *TINY, "--data", "bundled", "--samples", huge, "--batch-size", huge).stdout
    assert "\n8 samples;" in shown


def test_one_sample_has_no_deviation_and_the_tables_show_none(cli: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    shown = cli("measure", *TINY, "--data", "bundled", "--limit", "1", "--out", out).stdout
    assert "nan" not in shown
    assert "\n1 sample\n" in shown
    other = tmp_path / "other.json"
    cli("measure", *TINY, "--model-option", "patch_size=32", "--data", "bundled", "--limit", "1", "--out", other)
    compared = cli("compare", out, other).stdout
    assert "nan" not in compared
    assert compared.count("Whether they differ cannot be said: 5 points without an interval") == 3
    explained = cli("explain", *TINY, "--data", "bundled", "--limit", "1").stdout
    assert "nan" not in explained
    assert "on bundled, 1 input " in explained


@pytest.mark.parametrize(
    "verb", [["measure", *TINY, "--data", "none"], ["explain", *TINY, "--data", "none"], ["reproduce", "fig5"]]
)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    cli: Callable[..., Any], tmp_path: Path, verb: list[str]
) -> None:
    failed = cli(*verb, "--out", tmp_path, code=1)
    assert "is a folder: expected the name of a file" in failed.stderr


def test_a_warning_is_one_line_without_code(cli: Callable[..., Any]) -> None:
    cli("--version")
    assert warnings.formatwarning(UserWarning("mind"), UserWarning, "here.py", 1) == "warning: mind\n"


def test_of_saved_features_too_only_means_can_be_kept(cli: Callable[..., Any], tmp_path: Path) -> None:
    save_file({"layer0": torch.randn(2, 4, 3)}, tmp_path / "states.safetensors")
    cli("measure", "--features", tmp_path / "states.safetensors", "--means-only", "--out", tmp_path / "run.json")
    assert unsmooth.load_measurement(tmp_path / "run.json").per_sample is None


def test_chosen_points_are_shown_one_by_one(cli: Callable[..., Any]) -> None:
    assert (
        "blocks.1.mlp" in cli("measure", *TINY, "--data", "random", "--limit", "2", "--points", "blocks.1.mlp").stdout
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TINY, "--data", "nowhere"], "no data at nowhere"),
        ([*TINY, "--data", "bundled", "--metrics", "x"], "unknown metric"),
        ([*TINY, "--data", "bundled", "--tokens", "x"], "unknown token policy"),
        ([*TINY, "--data", "bundled", "--points", "blocks.7.post"], "blocks.7.post"),
        ([*TINY, "--data", "bundled", "--dtype", "int8"], "unknown dtype 'int8'"),
        ([*TINY, "--data", "bundled", "--device", "cuda:99"], "cannot be used here"),
        ([*TINY, "--data", "bundled", "--model-option", "depth"], "expected an option as KEY=VALUE"),
        ([*TINY, "--data", "bundled", "--layer-ids", "1"], "--layer-ids names the layers of --features FILE"),
        ([*TINY, "--data", "bundled", "--rank-budget", "lots"], "or 'exact', got 'lots'"),
        (TINY, "expected a model and --data PATH, or --features PATH"),
        (["--features", "x.safetensors", "--samples", "2"], "features that are saved are measured as they are"),
        (["vit_tiny", "--data", "bundled"], "zoo:"),
        (["timm:vit_tinny", "--random-init", "--data", "bundled"], "vit_tinny"),
    ],
)
def test_errors_are_one_message_and_exit_code_1(
    cli: Callable[..., Any], tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = tmp_path / "run.json"
    done = cli("measure", *arguments, "--out", str(out), code=1)
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


# Presses Ctrl-C (a real signal) while the third batch is being measured.
INTERRUPTED = """
import os, signal, sys
from unsmooth.analysis import Measurer
update, seen = Measurer.update, []
def interrupted(self, batch):
    seen.append(batch)
    if len(seen) == 3:
        os.kill(os.getpid(), signal.SIGINT)
    update(self, batch)
Measurer.update = interrupted
import unsmooth.cli
unsmooth.cli.main()
"""


def test_control_c_writes_what_was_measured_so_far(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    arguments = ["measure", *TINY, "--data", "random", "--limit", "1000", "--batch-size", "2", "--out", str(out)]
    done = Program(INTERRUPTED, arguments, tmp_path, {"COLUMNS": "160"})
    assert done.wait() == 130, done.stdout + done.stderr
    assert "PARTIAL" in done.stdout
    assert "stopping after this batch, to keep what was done; Ctrl-C again stops at once" in done.stderr
    measurement = unsmooth.load_measurement(out)
    assert measurement.partial
    assert measurement.samples == 6
    assert {m.count for m in measurement.cells.values()} == {6}


def test_version_and_help(cli: Callable[..., Any]) -> None:
    assert cli("--version").stdout.strip() == f"unsmooth {unsmooth.__version__}"
    assert "measure" in cli("--help").stdout
