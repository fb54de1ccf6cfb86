"""Every figure, drawn once from results: the page, papers and documents show the same drawings in the same colours.

A function takes results (a `Measurement`, an `Explanation`, a `TokenView`, curves) and returns a `Drawing`, which
shows itself in a notebook and saves itself as SVG, PNG or PDF: `figures.depth(measurement).save("depth.pdf")`.
"""

from unsmooth.figures.by_carrier import carriers
from unsmooth.figures.by_depth import depth
from unsmooth.figures.by_head import heads, shares
from unsmooth.figures.by_part import parts
from unsmooth.figures.by_step import steps
from unsmooth.figures.by_strength import prices
from unsmooth.figures.by_token import tokens
from unsmooth.figures.differences import difference
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.eigenvalues import histograms, spectra
from unsmooth.figures.export import check_figure, check_folder, explanation_figures, save_figures, subject_figures
from unsmooth.figures.prediction import agreement, exponents
from unsmooth.figures.simulated import norm_impact, phase
from unsmooth.figures.trained import Run, runs_figure

__all__ = [
    "Drawing", "Run", "agreement", "carriers", "check_figure", "check_folder", "depth", "difference",
    "explanation_figures", "exponents", "heads", "histograms", "norm_impact", "parts", "phase", "prices",
    "runs_figure", "save_figures", "shares", "spectra", "steps", "subject_figures", "tokens",
]  # fmt: skip
