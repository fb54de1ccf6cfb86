"""What a verdict rests on: changes sample by sample where both are known, else the two ends."""

from __future__ import annotations

from report.test_findings import measured, moments

from unsmooth.measure.measurement import Change
from unsmooth.report.verdict import vote


def test_clear_changes_decide_where_the_ends_overlap() -> None:
    found = measured({"hfc_lfc": -1.0}, spread=9.0)
    assert vote(found, "hfc_lfc", "all") == 0
    for kind, mean in (("Attention", 0.5), ("MLP", -0.9)):
        found.changes[Change("residual", kind, "hfc_lfc", "all")] = moments(mean, 0.25)
    assert vote(found, "hfc_lfc", "all") == 1


def test_without_both_changes_the_ends_decide() -> None:
    found = measured({"hfc_lfc": -1.0})
    found.changes.clear()
    found.changes[Change("residual", "Attention", "hfc_lfc", "all")] = moments(9.0, 0.01)
    assert vote(found, "hfc_lfc", "all") == 1
