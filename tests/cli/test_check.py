"""`unsmooth check`: bounds in CI."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import unsmooth

pytest.importorskip("timm")


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import timm

    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=32, num_heads=2, depth=2)
    return unsmooth.measure(model, [torch.randn(3, 3, 32, 32)], tokens="all,patches").save(
        tmp_path_factory.mktemp("run") / "run.json"
    )


def value(run_file: Path, metric: str, point: str, tokens: str = "all") -> float:
    frame = unsmooth.load_measurement(run_file).frame().set_index(["metric", "point", "tokens"])
    return float(frame.loc[(metric, point, tokens), "mean"])


def low_at(run_file: Path) -> int:
    return min(range(2), key=lambda i: value(run_file, "effective_rank", f"blocks.{i}.post"))


def test_within_is_exit_code_0(cli: Callable[..., Any], run_file: Path) -> None:
    high = value(run_file, "cosine_similarity", "blocks.1.post")
    done = cli(
        "check", run_file, "--tokens", "all", "--max", f"cosine_similarity={high + 1e-6}@blocks.1.post",
        "--min", "effective_rank=1@blocks.*.post",
    )  # fmt: skip
    low = min(value(run_file, "effective_rank", f"blocks.{i}.post") for i in range(2))
    assert done.stdout.splitlines() == [
        f"within: cosine_similarity at blocks.1.post (all tokens) is {high:.4g}, at most {high + 1e-6:g}",
        f"within: effective_rank at blocks.{low_at(run_file)}.post (all tokens) is {low:.4g}, at least 1; "
        "nearest of 2 numbers",
        "2 of 2 bounds kept (3 samples)",
    ]


def test_one_bound_and_one_sample_are_no_plural(cli: Callable[..., Any], run_file: Path, tmp_path: Path) -> None:
    assert cli("check", run_file, "--min", "effective_rank=1").stdout.endswith("1 of 1 bound kept (3 samples)\n")
    measurement = unsmooth.load_measurement(run_file)
    for moments in measurement.cells.values():
        moments.count = 1
    path = dataclasses.replace(measurement, per_sample=None).save(tmp_path / "one.json")
    assert cli("check", path, "--min", "effective_rank=1").stdout.endswith("1 of 1 bound kept (1 sample)\n")


def test_crossed_is_exit_code_1_and_lists_what_crossed(cli: Callable[..., Any], run_file: Path) -> None:
    high = value(run_file, "cosine_similarity", "blocks.1.post")
    done = cli(
        "check", run_file, "--tokens", "all", "--max", f"cosine_similarity={high - 1e-6}@blocks.1.post",
        "--min", "effective_rank=1e3@blocks.*.mlp", code=1,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0].startswith(
        f"crossed: cosine_similarity at blocks.1.post (all tokens) is {high:.4g}, above the bound "
    )
    assert [line.split()[3] for line in lines[:-1]] == ["blocks.1.post", "blocks.0.mlp", "blocks.1.mlp"]
    assert lines[-1] == "0 of 2 bounds kept (3 samples)"


def test_policies_are_checked_all_or_as_asked(cli: Callable[..., Any], run_file: Path) -> None:
    limit = ("--min", "effective_rank=1e3@embed")
    assert len(cli("check", run_file, *limit, code=1).stdout.splitlines()) == 3  # two that cross, and the count
    assert "(patches tokens)" in cli("check", run_file, *limit, "--tokens", "patches", code=1).stdout


def test_json_lists_bounds_and_crossings(cli: Callable[..., Any], run_file: Path) -> None:
    limit = ("--min", "effective_rank=1e3@embed", "--tokens", "all")
    found = json.loads(cli("check", run_file, *limit, "--json", code=1).stdout)
    assert found["within"] is False
    assert found["bounds"] == [{"side": "min", "metric": "effective_rank", "value": 1000.0, "points": "embed"}]
    assert found["crossed"][0]["value"] == value(run_file, "effective_rank", "embed")


def test_what_is_not_a_number_crosses_and_is_valid_json(
    cli: Callable[..., Any], run_file: Path, tmp_path: Path
) -> None:
    measurement = unsmooth.load_measurement(run_file)
    for cell, moments in measurement.cells.items():
        moments.mean = float("nan") if cell.point == "embed" else moments.mean
    path = measurement.save(tmp_path / "nan.json")
    done = cli("check", path, "--max", "hfc_lfc=inf@embed", "--tokens", "all", "--json", code=1)
    found = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert (found["crossed"][0]["value"], found["bounds"][0]["value"]) == ("nan", "inf")


def test_partial_runs_are_pointed_out(cli: Callable[..., Any], run_file: Path, tmp_path: Path) -> None:
    measurement = unsmooth.load_measurement(run_file)
    measurement.partial = True
    done = cli("check", measurement.save(tmp_path / "half.json"), "--min", "effective_rank=1")
    assert "is partial" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no bound was given"),
        (["--max", "cosine_similarity"], "expected METRIC=VALUE"),
        (["--max", "cosin=1"], "unknown metric 'cosin'"),
        (["--max", "rankme=1"], "unknown metric of this measurement 'rankme'"),
        (
            ["--max", "hfc_lfc=1@blocks.11.post"],
            "no measured point matches 'blocks.11.post': this measurement has embed",
        ),
        (["--max", "hfc_lfc=1", "--tokens", "content"], "unknown token policy of this measurement 'content'"),
        (["--max", "hfc_lfc=1", "--tokens", "some"], "unknown token policy 'some'"),
        (["--most", "hfc_lfc=1"], "No such option"),
    ],
)
def test_bad_usage_is_exit_code_2(cli: Callable[..., Any], run_file: Path, arguments: list[str], message: str) -> None:
    assert message in cli("check", run_file, *arguments, code=2).stderr


CUT = '{"schema": "unsmooth.measurement/1", "partial": false}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no file at"),
        ("{", "truncated"),
        ("{}", "is not ours"),
        (CUT, "x.json was cut or changed after it was written (model is missing)"),
    ],
)
def test_an_unreadable_file_is_exit_code_2(
    cli: Callable[..., Any], tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    assert message in cli("check", path, "--max", "hfc_lfc=1", code=2).stderr
