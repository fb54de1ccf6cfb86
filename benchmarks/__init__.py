"""Ratios against the obvious alternative, each measured in one run: `python -m benchmarks` or `-m benchmarks.NAME`."""
