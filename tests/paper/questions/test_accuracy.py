"""Gains, spreads and robustness are claimed where they are there."""

from __future__ import annotations

import json
from pathlib import Path

from paper.answers import findings, runs


def test_a_gain_that_is_not_there_is_not_claimed_and_one_that_is_there_is(tmp_path: Path) -> None:
    asked = "Does sharpening help with little data?"
    runs(tmp_path / "none", 0.0)
    none = findings(tmp_path / "none")[asked]
    assert none["status"] in ("leaning", "open")
    assert "no difference of sharpening from plain can be claimed" in none["answer"]
    runs(tmp_path / "some", 0.03)
    some = findings(tmp_path / "some")[asked]
    assert some["status"] == "settled"
    assert "sharpening is above plain" in some["answer"]


def test_two_seeds_settle_nothing_about_spread(tmp_path: Path) -> None:
    runs(tmp_path, 0.0, seeds=2)
    assert findings(tmp_path)["Does sharpening make training less a matter of luck?"]["status"] == "open"


def test_robustness_is_what_is_beyond_the_gap_on_clean_images(tmp_path: Path) -> None:
    runs(tmp_path, 0.0)
    asked = "Does sharpening make models robust to corrupted images?"
    assert findings(tmp_path)[asked]["answer"] == "No run so far."
    for seed in range(4):
        for variant, clean, corrupted in (("plain", 0.3, 0.2), ("sharpening", 0.31, 0.23 + 0.001 * seed)):
            mean = {str(s): corrupted for s in range(1, 6)}
            about = {"variant": variant, "fraction": 0.1, "seed": seed, "clean": {"accuracy": clean}}
            path = tmp_path / f"{variant}{seed}.corruptions.json"
            path.write_text(json.dumps(about | {"corruptions": {"mean": mean}}), encoding="utf-8")
        found = findings(tmp_path)[asked]
        assert (found["status"], found["n"]) == (("leaning", f"{seed + 1} seeds") if seed else ("open", "1 seed"))
        assert ("one seed has no interval" in found["answer"]) == (seed == 0)
    assert "over all intensities, +2.15 (+1.94 to +2.36)." in found["answer"]
