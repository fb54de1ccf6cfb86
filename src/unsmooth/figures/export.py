"""Every figure about some models as files for a paper: SVG, PNG and PDF."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from unsmooth.analysis import Explanation
from unsmooth.analysis.subject import Subject
from unsmooth.errors import OptionError, OutputError
from unsmooth.figures.by_depth import depth
from unsmooth.figures.by_head import heads, shares, type_shares
from unsmooth.figures.by_step import steps
from unsmooth.figures.by_token import tokens
from unsmooth.figures.drawing import FORMATS, Drawing
from unsmooth.figures.eigenvalues import histograms, spectra
from unsmooth.figures.prediction import agreement, exponents
from unsmooth.metrics.registry import by_panel
from unsmooth.sources.files import check_writable, write_atomically


def subject_figures(subjects: Sequence[Subject]) -> Iterator[tuple[str, Drawing]]:
    """What the page shows of some models, by the names of the files."""
    named = {subject.name: subject.measurement for subject in subjects}
    have = [measurement.about.settings.metrics for measurement in named.values()]
    shared = by_panel(set.intersection(*map(set, have)))
    yield "depth", depth(named, metrics=[names[0] for names in shared.values()])
    for subject, name in zip(subjects, file_names([s.name for s in subjects]), strict=True):
        yield f"steps-{name}", steps(subject.measurement, name=subject.name)
        if subject.tokens is not None:
            yield f"tokens-{name}", tokens(subject.tokens, name=subject.name)
    yield from explanation_figures({s.name: s.explanation for s in subjects if s.explanation is not None})


def explanation_figures(explanations: Mapping[str, Explanation]) -> Iterator[tuple[str, Drawing]]:
    """What explanations alone tell, by the names of the files."""
    if not explanations:
        return
    for (name, explanation), file in zip(explanations.items(), file_names(list(explanations)), strict=True):
        yield f"spectra-{file}", spectra(explanation, name=name)
    yield "histograms", histograms(explanations)
    yield "exponents", exponents(explanations)
    yield "agreement", agreement(explanations)
    yield "heads-exponent", heads(explanations, "exponent")
    yield "heads-entropy", heads(explanations, "entropy")
    if all(type_shares(explanation) for explanation in explanations.values()):
        yield "shares", shares(explanations)


def save_figures(
    drawings: Mapping[str, Drawing] | Iterator[tuple[str, Drawing]], folder: str | Path,
    formats: Sequence[str] = FORMATS,
) -> list[Path]:  # fmt: skip
    """Write drawings into a folder, each in every format, and return the files."""
    for kind in formats:
        if kind not in FORMATS:
            raise OptionError.unknown("figure format", kind, FORMATS)
    return [
        write_atomically(Path(folder) / f"{name}.{kind}", drawing.render(kind))
        for name, drawing in dict(drawings).items()
        for kind in formats
    ]


def check_folder(folder: str | Path, formats: Sequence[str] = FORMATS) -> None:
    """An error now, before hours of work, where `save_figures` would fail in the end: no such place, or no extra."""
    if Path(folder).exists() and not Path(folder).is_dir():
        raise OutputError(f"{folder} is a file: expected the name of a folder for the figures")
    for kind in formats:
        check_figure(Path(folder) / f"figure.{kind}")


def check_figure(path: str | Path) -> None:
    """`check_folder` for the one file of `Drawing.save`."""
    check_writable(path)
    kind = Path(path).suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise OptionError(f"{path} names no figure: expected a name that ends in .{', .'.join(FORMATS)}")
    if kind != "svg":
        from unsmooth.figures.printing import require_matplotlib

        require_matplotlib(kind.upper())


def file_names(names: Sequence[str]) -> list[str]:
    """Names that are safe in a path, and differ.

    >>> file_names(["a/b", "a b", "<script>"])
    ['a-b', 'a-b-2', 'script']
    """
    found: list[str] = []
    for name in names:
        base = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")[:80] or "model"  # file systems stop at 255
        number, candidate = 1, base
        while candidate in found:
            number += 1
            candidate = f"{base}-{number}"
        found.append(candidate)
    return found
