"""Figures and the page: what was measured and explained, in the form a researcher would send to a colleague."""

from unsmooth.report.collection import collect
from unsmooth.report.page import build_report
from unsmooth.report.subject import Subject
from unsmooth.report.tokens import TokenView

__all__ = ["Subject", "TokenView", "build_report", "collect"]
