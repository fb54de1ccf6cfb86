"""Results in, one self-contained HTML file out; no model is run here."""

from unsmooth.page.build import build_report

__all__ = ["build_report"]
