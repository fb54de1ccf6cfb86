"""Sentences on the weights and on theory."""

from __future__ import annotations

import torch
from page.test_findings import SMOOTHER, measured
from results import about_explained

from unsmooth.analysis import Explanation, Subject
from unsmooth.page.findings import findings


def test_a_step_too_long_for_a_negative_eigenvalue_is_named() -> None:
    rows = [{"layer": i, "input": 0, "step": 2.0, "exponent": -1.0, "measured_ratio": 1.0} for i in range(3)]
    spectra = [
        {"layer": i, "folded": True, "layer_values": torch.tensor([low, 0.1 + 0j]), "head_values": torch.zeros(1, 2)}
        for i, low in enumerate((-1.2, -1.6, -0.4))
    ]
    subject = Subject("x", measured({"hfc_lfc": 1.0}, layers=3), Explanation(rows, [], [], spectra, about_explained()))
    (found,) = (f for f in findings([subject]) if "s·λ" in f.html)
    assert found.section == "spectra"
    assert "2 of 3 layers (down to −3.2)" in found.html


def test_what_theory_says_is_counted_beside_what_guessing_would_score() -> None:
    signs = [(1.0, 1.0), (1.0, -1.0), (1.0, -1.0), (-1.0, -1.0), (-1.0, -1.0)]
    rows = [
        {"layer": i, "input": 0, "step": 1.0, "exponent": predicted, "measured_ratio": measured_}
        for i, (predicted, measured_) in enumerate(signs)
    ]
    kinds = ["sharpening", "smoothing", "mixed", "sharpening", "sharpening"]
    heads = [
        {"layer": 0, "head": h, "input": 0, "paper_kind": k, "paper_endpoint": "largest", "endpoint": "largest",
         "kind": "smoothing" if h else k}
        for h, k in enumerate(kinds)
    ]  # fmt: skip
    values = {False: torch.full((4,), -1 + 0j), True: torch.tensor([-1.0 + 0j, 1.0, 1.0, 1.0])}
    spectra = [
        {"layer": i, "folded": folded, "layer_values": v, "head_values": v[None]}
        for i in range(5)
        for folded, v in values.items()
    ]
    subject = Subject("x", measured(SMOOTHER), Explanation(rows, heads, [], spectra, about_explained()))
    said = {finding.section: finding.html.replace("\N{NO-BREAK SPACE}", " ") for finding in findings([subject])}
    assert said["histograms"].endswith("the sharpening side, is 25 %.")
    assert said["shares"] == (
        "Head by head, the sharpening type dominates in 20 % of cases (95 % interval 1 % to 87 %) as H acts and in "
        "60 % of cases (95 % interval 8 % to 96 %) as the paper counts."
    )
    assert said["exponents"].endswith("in 60 % of 5 cases (the commoner sign alone: 80 %).")
    assert "spectra" not in said


def test_counts_that_agree_are_said_once() -> None:
    rows = [{"layer": 0, "input": 0, "step": 1.0, "exponent": 1.0, "measured_ratio": 1.0}]
    heads = [
        {
            "layer": 0,
            "head": h,
            "input": 0,
            "paper_kind": k,
            "paper_endpoint": "largest",
            "endpoint": "largest",
            "kind": k,
        }
        for h, k in enumerate(["sharpening", "smoothing"])
    ]
    spectra = [{"layer": 0, "folded": False, "layer_values": torch.ones(2) + 0j, "head_values": torch.ones(1, 2) + 0j}]
    subject = Subject("x", measured(SMOOTHER), Explanation(rows, heads, [], spectra, about_explained()))
    (found,) = (f.html.replace("\N{NO-BREAK SPACE}", " ") for f in findings([subject]) if f.section == "shares")
    assert found.startswith("Head by head, the sharpening type dominates in 50 % of cases (95 % interval ")
    assert found.endswith(") as H acts and as the paper counts.")
    assert found.count("50 %") == 1
