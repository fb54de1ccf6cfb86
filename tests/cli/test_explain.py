from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from unsmooth.analysis import load_explanation
from unsmooth.cli.explain import command as explain_command
from unsmooth.cli.report import command as report_command
from unsmooth.cli.reproduce import command as reproduce_command
from unsmooth.cli.simulate import command as simulate_command
from unsmooth.errors import OptionError, OutputError

TINY = ["timm:vit_tiny_patch16_224", "--random-init", "--model-option", "depth=1", "--model-option", "img_size=64"]


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command("explain")(explain_command)
    made.command("simulate")(simulate_command)
    made.command("reproduce")(reproduce_command)
    made.command("report")(report_command)
    return made


def invoke(app: typer.Typer, *arguments: object) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_explain_prints_tables_and_writes_a_file_and_figures(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("matplotlib")
    # tests/figures prints every figure; a PDF takes half a second, for the letters in it
    monkeypatch.setattr("unsmooth.figures.printing.printed", lambda drawing, kind: kind.encode())
    out, figures = tmp_path / "e.json", tmp_path / "figures"
    text = invoke(
        app, "explain", *TINY, "--data", "bundled", "--samples", 2, "--spectra", 1, "--out", out, "--figures", figures,
        "--full",
    )  # fmt: skip
    for words in ("Dominating eigenvalues", "log HFC gain, predicted and measured", "[−1, 0)", "2 inputs"):
        assert words in text
    saved = load_explanation(out)
    assert saved.about.model.reference == TINY[0]
    assert saved.about.data.reference == "bundled"
    names = {p.stem for p in figures.iterdir()}
    assert {"agreement", "exponents", "heads-exponent", "histograms", "spectra-timm-vit_tiny_patch16_224"} <= names
    assert {p.name for p in figures.iterdir()} == {f"{name}.{kind}" for name in names for kind in ("svg", "png", "pdf")}


def test_a_folder_that_cannot_hold_figures_is_refused_before_the_work(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for verb in (
        ["explain", *TINY, "--data", "bundled"],
        ["reproduce", "fig1"],
        ["report", *TINY, "--data", "bundled"],
    ):
        result = CliRunner().invoke(app, [*verb, "--figures", str(tmp_path / "file")])
        assert isinstance(result.exception, OutputError), verb
        assert "is a file: expected the name of a folder" in str(result.exception)


def test_a_terminal_of_80_columns_shows_every_number_whole(app: typer.Typer) -> None:
    pytest.importorskip("timm")
    arguments = ["explain", *TINY, "--data", "random", "--samples", "2", "--spectra", "1", "--full"]
    text = CliRunner(env={"COLUMNS": "80"}).invoke(app, arguments, catch_exceptions=False).output
    tables = text.partition("γ (exponent): ")[0]
    assert "γ, small step" in tables
    assert "departure" in tables
    assert "…" not in tables


def test_explain_gives_json(app: typer.Typer) -> None:
    pytest.importorskip("timm")
    text = invoke(app, "explain", *TINY, "--data", "random", "--samples", 1, "--spectra", 0, "--json")
    assert json.loads(text)["schema"] == "unsmooth.explanation/2"


def test_simulate_prints_one_curve_or_all_cells(app: typer.Typer, tmp_path: Path) -> None:
    small = ("--seeds", 2, "--layers", 4, "--tokens", 8, "--dim", 6)
    assert "general, pre" in invoke(app, "simulate", *small)
    assert "smoothing, LN weights −" in invoke(
        app, "simulate", "--form", "symmetric", "--norm", "post", "--mode", "smoothing", "--sign", -1, *small
    )
    found = json.loads(invoke(app, "simulate", "--json", "--out", tmp_path / "s.json", *small))
    assert len(found["cells"]) == 20
    assert json.loads((tmp_path / "s.json").read_text()) == found


@pytest.mark.parametrize("name", ["curves", "curves.gif", "file/curves.svg"])
def test_a_figure_that_cannot_be_written_is_refused_before_the_simulation(
    app: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delattr("unsmooth.theory.norm_impact.norm_impact_table")  # an ImportError, were it looked for
    with pytest.raises((OptionError, OutputError), match="names no figure|cannot be written"):
        invoke(app, "simulate", "--figure", tmp_path / name)


def test_unknown_values_are_listed(app: typer.Typer) -> None:
    with pytest.raises(OptionError, match="unknown norm 'mid': expected one of 'none', 'pre', 'post'"):
        invoke(app, "simulate", "--form", "general", "--norm", "mid")
    with pytest.raises(OptionError, match="layers pattern 'first' matches no layer: expected 'all', 'first-half'"):
        invoke(app, "explain", *TINY, "--data", "random", "--layers", "first")


@pytest.mark.parametrize("given", [("--norm", "pre"), ("--mode", "smoothing"), ("--sign", 1)])
def test_what_chooses_one_cell_is_refused_without_its_form(app: typer.Typer, given: tuple[str, str]) -> None:
    for beside in ((), ("--form", "general", "--table")):
        with pytest.raises(OptionError, match=f"{given[0]} can be used only with --form and without --table"):
            invoke(app, "simulate", *given, *beside, "--seeds", 1)


def test_seeds_are_counted_while_they_are_simulated(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int | None]] = []

    def watched(batches: Any, label: str, total: int | None) -> Any:
        seen.append((label, total))
        return batches

    monkeypatch.setattr("unsmooth.cli.progress.track", watched)
    small = ("--seeds", 2, "--layers", 2, "--tokens", 6, "--dim", 4)
    invoke(app, "simulate", *small)
    invoke(app, "simulate", "--form", "general", *small)
    assert seen == [("simulating seeds", 2)] * 2
