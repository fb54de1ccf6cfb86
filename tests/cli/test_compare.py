"""`unsmooth compare`: two runs or two models, as table, JSON and page."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.conftest import measured, small

import unsmooth
from unsmooth.cli.compare import _notes

pytest.importorskip("timm")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return measured().save(folder / "a.json"), measured(depth=3, seed=1, samples=5).save(folder / "b.json")


def test_one_point_that_a_side_lacks_is_one_point() -> None:
    a, b = measured(points=["embed", "blocks.0.post"]), measured(points=["embed"])
    assert _notes(a, b, ("a", "b")) == ["1 point is in a only and left out"]


def test_table_shows_the_differences_of_compare(cli: Callable[..., Any], files: tuple[Path, Path]) -> None:
    shown = cli("compare", *files).stdout
    frame = unsmooth.compare(*map(unsmooth.load_measurement, files)).set_index(["point", "metric"])
    row = frame.loc[("blocks.1.post", "effective_rank")]
    half = f"{(row['high'] - row['low']) / 2:#.2g}"
    assert f"{row['difference']:+.{len(half.partition('.')[2])}f} ± {half}" in shown
    assert "blocks.1.mid" in shown
    assert "blocks.1.attn" not in shown
    assert "blocks.1.pre" not in shown
    assert "7 points are in b only and left out" in shown
    assert "Welch" in shown


def test_it_says_how_many_differences_survive_the_correction(cli: Callable[..., Any], twins: tuple[Path, Path]) -> None:
    from scipy.stats import false_discovery_control  # a milder correction: Holm keeps no more than this

    shown = " ".join(cli("compare", *twins).stdout.split())
    frame = unsmooth.compare(*map(unsmooth.load_measurement, twins))
    rows = frame[(frame["kind"] == "residual") & ~frame["point"].str.endswith(".pre")]
    marked, p = int(rows["differs"].sum()), rows["p"].dropna().to_numpy()
    said = next(k for k in range(marked + 1) if f"{k} of {marked} still do when all {len(rows)} numbers" in shown)
    assert said <= int((false_discovery_control(p) < 0.05).sum())
    assert said >= int((p < 0.05 / len(p)).sum())  # Bonferroni keeps no more


def test_the_interval_is_welchs_for_few_and_unequal_samples() -> None:
    from scipy import stats

    from unsmooth.analysis.measuring.comparison import welch_half_width
    from unsmooth.metrics.moments import Moments

    values = torch.randn(12, dtype=torch.float64), 3 * torch.randn(4, dtype=torch.float64) + 1
    a, b = Moments(), Moments()
    a.update(values[0])
    b.update(values[1])
    expected = stats.ttest_ind(values[1], values[0], equal_var=False).confidence_interval(0.95)
    half = welch_half_width(a, b)
    assert (b.mean - a.mean - half, b.mean - a.mean + half) == pytest.approx((expected.low, expected.high), rel=1e-4)


def test_the_same_inputs_are_paired_and_it_is_said(cli: Callable[..., Any], twins: tuple[Path, Path]) -> None:
    shown = cli("compare", *twins).stdout
    assert "paired (Student's t): the same 6 inputs in both" in shown
    assert "Welch" not in shown
    found = json.loads(cli("compare", *twins, "--json").stdout)
    assert found["interval"].endswith("paired (Student's t): the same 6 inputs in both")
    assert {(row["interval"], row["pairs"]) for row in found["rows"]} == {("paired", 6)}


def test_a_file_of_means_is_not_paired_and_it_is_said(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    model, *options = tiny
    for name, kept in (("a", "--per-sample"), ("b", "--means-only")):
        out = ("--out", tmp_path / f"{name}.json")
        cli("measure", model, *options, "--data", "bundled", "--limit", 2, "--points", "residual", kept, *out)
    page = tmp_path / "page.html"
    shown = cli("compare", tmp_path / "a.json", tmp_path / "b.json", "--out", page).stdout
    said = "not paired (Welch): b holds means only, no values per sample"
    assert said in shown
    assert said in page.read_text()


def test_samples_that_are_left_out_are_noted(cli: Callable[..., Any], twins: tuple[Path, Path], tmp_path: Path) -> None:
    a = unsmooth.load_measurement(twins[0])
    assert a.per_sample is not None
    cell = next(iter(a.cells))
    a.per_sample[cell][:2] = float("nan")
    page = tmp_path / "page.html"
    shown = cli("compare", a.save(tmp_path / "a.json"), twins[1], "--points", "embed", "--out", page).stdout
    said = "1 of 3 numbers leave out samples without a finite value on one side, up to 2 of 6"
    assert f"note: {said}" in shown
    assert said in page.read_text()


def test_points_choose_what_is_shown(cli: Callable[..., Any], files: tuple[Path, Path]) -> None:
    found = json.loads(cli("compare", *files, "--points", "blocks.*.attn,embed", "--json").stdout)
    assert {row["point"] for row in found["rows"]} == {"embed", "blocks.0.attn", "blocks.1.attn"}
    assert (found["a"]["name"], found["b"]["name"], found["b"]["samples"]) == ("a", "b", 5)
    everything = json.loads(cli("compare", *files, "--points", "all", "--json").stdout)
    assert len(everything["rows"]) == len(unsmooth.load_measurement(files[0]).cells)


def test_models_are_measured_first(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    model, *options = tiny
    page = tmp_path / "page.html"
    done = cli("compare", model, model, *options, "--data", "bundled", "--limit", 3, "--out", page)
    assert f"written to {page}" in done.stdout
    assert "vit_tiny_patch16_224 against timm:vit_tiny" in page.read_text()


def test_what_to_read_reaches_the_data_of_both(
    cli: Callable[..., Any], tiny: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, *options = tiny
    seen = []

    def opened(path: str, loaded: Any, **wanted: Any) -> Any:
        seen.append((path, wanted))
        return opens(path, loaded, **wanted)

    opens = unsmooth.sources.open_data
    monkeypatch.setattr("unsmooth.sources.open_data", opened)
    wanted = ("--limit", 2, "--batch-size", 1, "--column", "picture", "--max-length", 9, "--whole-records")
    cli("compare", model, model, *options, "--data", "bundled", *wanted, "--json")
    asked = {"samples": 2, "batch_size": 1, "column": "picture", "max_length": 9, "whole_records": True}
    assert seen == 2 * [("bundled", asked)]


def test_a_page_that_cannot_be_written_is_refused_first(cli: Callable[..., Any], tmp_path: Path) -> None:
    failed = cli("compare", "no.json", "none.json", "--out", tmp_path, code=1)
    assert "is a folder: expected the name of a file" in failed.stderr


@pytest.mark.parametrize("samples", [1, 4])
def test_a_run_against_itself_is_equal_and_nothing_is_tested(
    cli: Callable[..., Any], tmp_path: Path, samples: int
) -> None:
    file, page = measured(samples=samples).save(tmp_path / "a.json"), tmp_path / "page.html"
    copy = unsmooth.load_measurement(file).save(tmp_path / "b.json")
    shown = cli("compare", file, copy, "--out", page).stdout
    assert shown.count("b equals a at all 5 points.") == 3
    for said in (shown, page.read_text()):
        flat = " ".join(said.split())
        assert "ll numbers are equal, so nothing is tested: the same " in flat
        assert "a and b are the same run: their model, data and time agree" in flat
        assert not any(word in flat for word in ("leaves out zero", "Holm", "95 % interval of", "0 ± 0", "0 … 0"))
    again = replace(unsmooth.load_measurement(file).about, created="2001-01-01T00:00:00+00:00")
    later = unsmooth.load_measurement(file)
    later.about = again
    assert "the same run" not in cli("compare", file, later.save(tmp_path / "c.json")).stdout


def test_differing_data_and_partial_runs_are_noted(cli: Callable[..., Any], tmp_path: Path) -> None:
    a, b = measured(), measured()
    for found, reference in ((a, "x"), (b, "y")):
        found.about = replace(found.about, data=replace(found.about.data, reference=reference))
    b.partial = True
    shown = cli("compare", a.save(tmp_path / "a.json"), b.save(tmp_path / "b.json")).stdout
    assert "the data differ: a on x, b on y" in shown
    assert "b is partial" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{a}", "timm:vit_tiny_patch16_224"], "timm:vit_tiny_patch16_224 is a model, not a measurement"),
        (["{a}", "nowhere.json"], "no file at nowhere.json"),
        (["{a}", "{b}", "--points", "blocks.9.post"], "no point that both hold matches 'blocks.9.post'"),
    ],
)
def test_errors_are_one_message_and_nothing_is_written(
    cli: Callable[..., Any], files: tuple[Path, Path], tmp_path: Path, arguments: list[str], message: str
) -> None:
    page = tmp_path / "page.html"
    given = [text.format(a=files[0], b=files[1]) for text in arguments]
    done = cli("compare", *given, "--out", page, code=1)
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert not page.exists()


def test_two_files_of_weights_of_one_model_are_compared(cli: Callable[..., Any], tmp_path: Path) -> None:
    from safetensors.torch import save_file

    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_heads": 2, "depth": 2}
    settings = [word for key, value in sizes.items() for word in ("--model-option", f"{key}={value}")]
    files = [tmp_path / "before.safetensors", tmp_path / "after.safetensors"]
    for seed, path in enumerate(files):
        save_file(small(depth=2, seed=seed).state_dict(), path)
    model = "timm:vit_tiny_patch16_224"
    weights = [word for path in files for word in ("--weights", path)]
    arguments = ("compare", model, model, *weights, *settings, "--data", "bundled", "--limit", 3, "--json")
    found = json.loads(cli(*arguments).stdout)
    assert [found[side]["name"] for side in "ab"] == [f"{model} (before)", f"{model} (after)"]
    one, other = (
        unsmooth.measure(small(depth=2, seed=seed), [bundled(model, sizes, 3)], points="residual") for seed in range(2)
    )
    expected = unsmooth.compare(one, other).set_index(["point", "metric"])["difference"]
    for row in found["rows"]:
        assert row["difference"] == pytest.approx(expected[row["point"], row["metric"]], rel=1e-6, abs=1e-9)


def bundled(model: str, sizes: dict[str, int], limit: int) -> torch.Tensor:
    from unsmooth.sources import load_model, open_data

    loaded = load_model(model, random_init=True, options=dict(sizes))
    (batch,) = open_data("bundled", loaded, samples=limit)
    assert isinstance(batch, torch.Tensor)
    return batch


def test_one_file_of_weights_goes_with_one_model(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = "timm:vit_tiny_patch16_224"
    said = cli("compare", model, model, "--weights", tmp_path / "w.safetensors", "--data", "bundled", code=1).stderr
    assert "--weights is given 1 times for 2 models" in said


def test_a_page_in_the_place_of_a_measurement_says_so(cli: Callable[..., Any], twins: tuple[Path, Path]) -> None:
    page = twins[0].with_name("page.html")
    said = cli("compare", twins[0], page, code=1).stderr
    assert "page.html is a page, which cannot be compared" in said
    assert f"To write a page about the difference: --out {page}" in said.replace("\n", "")
    assert not page.exists()


def test_another_file_in_the_place_of_a_measurement_is_named(
    cli: Callable[..., Any], twins: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "values.csv").write_text("1,2\n")
    said = cli("compare", twins[0], tmp_path / "values.csv", code=1).stderr
    assert "values.csv is no measurement: expected a .json file" in said
