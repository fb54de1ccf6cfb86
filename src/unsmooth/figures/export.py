"""Every figure of the page as a file for a paper: SVG always, PNG where a Chromium is found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unsmooth.errors import OptionError
from unsmooth.figures.depth import depth_figure, steps_figure
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.heads import heads_figure, shares_figure
from unsmooth.figures.phase import phase_figure
from unsmooth.figures.spectra import agreement_figure, exponents_figure, histograms_figure, spectra_figure
from unsmooth.figures.tokens import tokens_figure
from unsmooth.page.data import page_data
from unsmooth.sources.files import write_atomically

if TYPE_CHECKING:
    from unsmooth.analysis.subject import Subject

FORMATS = ("svg", "png")


def save_figures(subjects: Sequence[Subject], folder: str | Path, formats: Sequence[str] = ("svg",)) -> list[Path]:
    """Write every figure into a folder and return the files; PNG needs a Chromium."""
    for name in formats:
        if name not in FORMATS:
            raise OptionError.unknown("figure format", name, FORMATS)
    drawings = dict(figures(subjects))
    written = []
    if "svg" in formats:
        written += [write_atomically(Path(folder) / f"{name}.svg", d.svg()) for name, d in drawings.items()]
    if "png" in formats:
        written += [
            write_atomically(Path(folder) / f"{name}.png", image) for name, image in _photographed(drawings).items()
        ]
    return written


def figures(subjects: Sequence[Subject]) -> Iterator[tuple[str, Drawing]]:
    """Every figure by its file's name, from the same numbers that the page draws."""
    data = page_data(subjects)
    models: list[dict[str, Any]] = data["models"]
    yield "depth", depth_figure(data)
    for model, name in zip(models, file_names([m["name"] for m in models]), strict=True):
        yield f"steps-{name}", steps_figure(model, data)
        if model["explain"]:
            yield f"spectra-{name}", spectra_figure(model)
        if model["tokens"]:
            yield f"tokens-{name}", tokens_figure(model)
    explained = [(i, model) for i, model in enumerate(models) if model["explain"]]
    if explained:
        yield "histograms", histograms_figure(explained)
        yield "exponents", exponents_figure(explained)
        yield "agreement", agreement_figure(explained)
        yield "heads-exponent", heads_figure(explained, "exponent")
        yield "heads-entropy", heads_figure(explained, "entropy")
        if all(model["explain"]["types"] for _, model in explained):
            yield "shares", shares_figure(explained)
        yield "phase", phase_figure()


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


def _photographed(drawings: dict[str, Drawing]) -> dict[str, bytes]:
    """Each drawing at twice its size in pixels."""
    from unsmooth.figures.browser import Browser

    found = {}
    with Browser() as browser:
        browser.send("Page.setDocumentContent", {"frameId": _frame(browser), "html": "<body style='margin:0'></body>"})
        for name, drawing in drawings.items():
            browser.resize(round(drawing.width), round(drawing.height), scale=2)
            html = f"<!doctype html><body style='margin:0;overflow:hidden'>{drawing.svg()}</body>"
            browser.send("Page.setDocumentContent", {"frameId": _frame(browser), "html": html})
            browser.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")
            found[name] = browser.screenshot()
    return found


def _frame(browser: Any) -> str:
    return str(browser.send("Page.getFrameTree")["frameTree"]["frame"]["id"])
