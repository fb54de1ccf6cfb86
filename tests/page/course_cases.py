"""Models whose course is known by construction, by what is special about them."""

from __future__ import annotations

from typing import Any

from page.courses import Known, plain

from unsmooth.analysis import Subject
from unsmooth.page.words.findings import findings


def sharp(curve: list[float], **others: Any) -> dict[str, dict[str, list[float]]]:
    """HFC/LFC as given, and the other metrics telling the same course."""
    return {"all": {"hfc_lfc": curve, "cosine_similarity": [0.9 - 0.1 * v for v in curve],
                    "effective_rank": [10 + v for v in curve]}, **others}  # fmt: skip


def only(curve: list[float], metric: str = "hfc_lfc") -> dict[str, dict[str, list[float]]]:
    return {"all": {metric: curve}}


def line(start: float, end: float, layers: int) -> list[float]:
    return [start + (end - start) * k / layers for k in range(layers + 1)]


FALL, RISE = line(4.0, 1.0, 6), line(1.0, 4.0, 6)
PEAK = [1.0, 2.5, 4.0, 3.5, 3.0, 2.0, 1.5]
VALLEY = [4.0, 2.0, 1.0, 1.5, 2.5, 3.0, 3.5]
WIGGLE = [1.0, 1.003, 0.998, 1.002, 0.997, 1.001, 1.0]
SINK = {"embed": (1.1, 0, 0.0), "blocks.0.mid": (1.2, 0, 0.0), "blocks.0.post": (1.3, 0, 0.0),
        "blocks.1.mid": (1.4, 0, 0.0), "blocks.1.post": (300.0, 0, 1.0), "blocks.2.mid": (280.0, 0, 1.0),
        "blocks.2.post": (260.0, 0, 1.0)}  # fmt: skip


def outlier_made(**more: Any) -> dict[str, Any]:
    """With the sink HFC/LFC leaps in layer 1; without it, it falls all the way."""
    return {"curves": {"all": {"hfc_lfc": [2.0, 1.8, 9.0, 8.0]}, "no-outliers": {"hfc_lfc": [2.0, 1.7, 1.2, 1.0]}},
            "extremes": SINK, **more}  # fmt: skip


# name: (the model, its course as (way, last layer) of each stretch, and a word of what must be said)
CASES: dict[str, tuple[Known, list[tuple[int, int]], str]] = {
    "rising": (Known("m", sharp(RISE)), [(-1, 5)], "in every layer"),
    "falling": (Known("m", sharp(FALL)), [(1, 5)], "in every layer"),
    "flat": (Known("m", sharp(WIGGLE), noise=3.0), [(0, 5)], "does not clearly change"),
    "constant": (Known("m", only([2.0] * 5), noise=0.0), [(0, 3)], "does not clearly change"),
    "zeros": (Known("m", only([0.0] * 5), noise=0.0, offset=0.0), [(0, 3)], "does not clearly change"),
    "rounding": (Known("m", only([2.0, 2.0 + 1e-14, 2.0 + 3e-14]), noise=0.0), [(0, 1)], "does not clearly change"),
    "peak": (Known("m", sharp(PEAK)), [(-1, 1), (1, 5)], "through layer 1"),
    "valley": (Known("m", sharp(VALLEY)), [(1, 1), (-1, 5)], "through layer 1"),
    "down, up, down": (Known("m", sharp([4.0, 2.0, 3.5, 3.9, 2.0, 1.0])), [(1, 0), (-1, 2), (1, 4)], "in layer 0"),
    "up, down, up": (Known("m", sharp([1.0, 2.0, 4.0, 3.0, 1.5, 3.5])), [(-1, 1), (1, 3), (-1, 4)], "in layer 4"),
    "many turns": (
        Known("m", sharp([1.0, 5.0, 3.9, 5.0, 2.0, 3.2, 1.0])), [(-1, 2), (1, 5)], "most in layer 0"),
    "a small way back": (Known("m", sharp([4.0, 3.0, 2.0, 2.4, 1.5, 1.0])), [(1, 4)], "from its first layer"),
    "a way back that samples do not show": (
        Known("m", sharp([4.0, 2.0, 3.0, 1.0]), noise=0.35, samples=8), [(1, 2)], "from its first layer"),
    "rises, then nothing clear": (
        Known("m", only([1.0, 3.0, 5.0, 4.0]), noise=0.35, samples=16), [(-1, 1), (0, 2)], "no clear change"),
    "nothing clear, then falls": (
        Known("m", only([4.0, 5.0, 3.0, 1.0]), noise=0.35, samples=16), [(0, 0), (1, 2)], "no clear change"),
    "a rise before a small way back at the end": (
        Known("m", sharp([4.1, 1.9, 1.6, 1.85, 2.35, 2.0])), [(1, 1), (-1, 4)], "then sharpens them to the last layer"),
    "a hill that samples do not show": (
        Known("m", only([0.8, 2.3, 1.0]), noise=0.9, samples=4), [(0, 1)], "(HFC/LFC 0.800 → 2.30 → 1.00)"),
    "eleven of twelve smooth": (
        Known("m", sharp([1.2, 4.0, *(4.0 - 0.27 * k for k in range(1, 12))])), [(-1, 0), (1, 11)], "in layer 0"),
    "the last layer alone": (
        Known("m", sharp([1.1, 1.3, 1.6, 1.7, 1.65, 0.9])), [(-1, 2), (1, 4)], "most in layer 4"),
    "one layer": (Known("m", sharp([2.0, 1.0])), [(1, 0)], "in its one layer"),
    "one layer that does nothing": (Known("m", sharp([2.0, 2.001]), noise=9.0), [(0, 0)], "in its one layer"),
    "two layers": (Known("m", sharp([1.0, 2.0, 0.5])), [(-1, 0), (1, 1)], "in layer 1, the last"),
    "one sample": (Known("m", sharp(PEAK), samples=1), [(-1, 1), (1, 5)], "then"),
    "two samples": (Known("m", sharp(PEAK), samples=2, noise=0.02), [(0, 5)], "does not clearly change"),
    "many samples": (Known("m", sharp(PEAK), samples=200, noise=0.5), [(-1, 1), (1, 5)], "then"),
    "no samples kept": (Known("m", sharp(PEAK), kept=False, offset=0.0), [(-1, 1), (1, 5)], "then"),
    "no samples kept, both ends uncertain": (
        Known("m", sharp(PEAK), kept=False, offset=0.8), [(0, 5)], "does not clearly"),
    "no samples kept, far apart": (Known("m", sharp(PEAK), kept=False, offset=4.0), [(0, 5)], "does not clearly"),
    "a cosine alone": (Known("m", only([0.1, 0.3, 0.6, 0.8], "cosine_similarity")), [(1, 2)], "cosine similarity 0.1"),
    "negative cosines": (Known("m", only([0.2, -0.1, -0.3], "cosine_similarity")), [(-1, 1)], "→ −0.3"),
    "huge": (Known("m", only([4e150, 3e150, 1e150], "effective_rank")), [(1, 1)], "in every layer"),
    "tiny": (Known("m", only([4e-300, 3e-300, 1e-300], "effective_rank")), [(1, 1)], "in every layer"),
    "tokens that are alike up to rounding": (
        Known("m", only([1e-8, 1.6e-7, 2.1e-7]), offset=0.0), [(0, 1)], "does not clearly change"),
    "more turns than are told": (
        Known("m", only([4.0, 11.1, 6.7, 15.3, 11.0])), [(-1, 0), (1, 1), (-1, 3)],
        "then on the whole sharpens them to the last layer"),
    "metrics that disagree": (
        Known("m", {"all": {"hfc_lfc": FALL, "cosine_similarity": FALL[::-1], "effective_rank": PEAK}}),
        [(1, 5)], "by effective rank it first sharpens, then smooths"),
    "attention against the MLP": (
        Known("m", sharp(FALL), parts=[1.8, -0.8]), [(1, 5)], "while the MLP works against it"),
    "the MLP alone": (Known("m", sharp(RISE), parts=[0.01, 0.99]), [(-1, 5)], "comes from the MLP"),
    "every stretch made by the MLP": (
        Known("m", sharp([1.0, 2.0, 4.0, 3.0, 1.5, 3.5]), parts=[-0.5, 1.5]), [(-1, 1), (1, 3), (-1, 4)],
        "The first sharpening, the smoothing and the second sharpening come from the MLP, while attention works "
        "against them"),
    "post-norm": (
        Known("m", sharp(FALL), placement="post", parts=[0.42, 0.5, 0.04, 0.04]), [(1, 5)],
        "comes from the normalisation and attention"),
    "post-norm, the norm against attention": (
        Known("m", sharp(FALL), placement="post", parts=[2.0, -1.0, 0.0, 0.0]), [(1, 5)],
        "comes from attention, while the normalisation works against it"),
    "parallel": (Known("m", sharp(FALL), placement="parallel-shared"), [(1, 5)], "in one sum"),
    "a decoder with a sink": (Known("m", **outlier_made()), [(1, 2)], "in every layer"),
    "a sink that is not measured": (
        Known("m", only([2.0, 1.8, 9.0, 8.0]), extremes=SINK), [(-1, 2)], "from its first layer"),
    "outliers of a file that does not say which": (Known("m", **outlier_made(extremes={})), [(1, 2)], "every layer"),
    "outliers at changing positions": (
        Known("m", **outlier_made(extremes={p: (r, None, n) for p, (r, _, n) in SINK.items()})), [(1, 2)], "every"),
    "an outlier from the start": (
        Known("m", **outlier_made(extremes=dict.fromkeys(SINK, (40.0, 3, 1.0)))), [(1, 2)], "every"),
    "a vanished token": (
        Known("m", **outlier_made(extremes={p: (1 / r, 5, n) for p, (r, _, n) in SINK.items()})), [(1, 2)], "every"),
    "outliers that carry nothing": (
        Known("m", {"all": {"hfc_lfc": FALL}, "no-outliers": {"hfc_lfc": [v * 1.1 for v in FALL]}}, extremes={
            f"blocks.{i}.post": (30.0, 0, 1.0) for i in range(6)}), [(1, 5)], "in every layer"),
}  # fmt: skip


def said(subjects: list[Subject]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in findings(subjects):
        found.setdefault(finding.about, []).append(plain(finding.html()))
    return found
