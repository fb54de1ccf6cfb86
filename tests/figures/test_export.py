"""Every figure as a file, from results alone."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from unsmooth.analysis import Subject
from unsmooth.errors import MissingExtraError, OptionError, OutputError
from unsmooth.figures import (
    check_figure,
    check_folder,
    save_figures,
    subject_figures,
)

SVG = "{http://www.w3.org/2000/svg}"


def test_every_figure_is_a_well_formed_svg_with_escaped_names(subjects: list[Subject], tmp_path: Path) -> None:
    written = save_figures(subject_figures(subjects), tmp_path, ["svg"])
    names = {path.stem for path in written}
    assert {"depth", "histograms", "exponents", "agreement", "heads-exponent", "heads-entropy", "shares"} <= names
    assert {"steps-plain", "spectra-plain", "tokens-plain"} <= names
    for path in written:
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert root.find(f".//{SVG}script") is None
        assert float(root.attrib["width"]) > 100
        assert "nan" not in path.read_text(), path.name


def test_every_figure_is_printed_without_a_browser(
    subjects: list[Subject],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("PATH", "")
    drawings = dict(subject_figures(subjects[:1]))
    written = {path.name: path for path in save_figures(drawings, tmp_path, ["png", "pdf"])}
    assert len(written) == 2 * len(drawings)
    for name, drawing in drawings.items():
        found = image.open(written[f"{name}.png"])
        assert np.abs(np.array(found.size) - 2 * np.array([drawing.width, drawing.height])).max() <= 1
        assert len(np.unique(np.asarray(found.convert("L")))) > 20  # something is drawn


def test_a_model_that_was_only_measured_has_fewer_figures(unexplained: Subject, tmp_path: Path) -> None:
    written = save_figures(subject_figures([unexplained]), tmp_path, ["svg"])
    assert {path.name for path in written} == {"depth.svg", "steps-plain.svg"}


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="is a file"):
        check_folder(tmp_path / "file", ["svg"])
    with pytest.raises(OutputError, match="cannot be written"):
        check_folder(tmp_path / "file" / "folder", ["svg"])
    check_folder(tmp_path / "new", ["svg"])
    with pytest.raises(OptionError, match=r"a\.gif names no figure: expected a name that ends in \.svg, \.png, \.pdf"):
        check_figure(tmp_path / "a.gif")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(OptionError, match="unknown figure format 'gif'"):
        save_figures({}, tmp_path, ["gif"])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"unsmooth\[report\]"):
        check_folder(tmp_path / "new")
