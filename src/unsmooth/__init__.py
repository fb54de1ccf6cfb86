"""Measure, explain and control oversmoothing in Transformers."""

__version__ = "0.1.0"
