"""Fixes are judged by their own papers' metrics, in any recipe that has runs."""

from __future__ import annotations

from pathlib import Path

from paper.answers import findings, short, write


def test_a_fix_is_judged_by_the_metric_of_its_own_paper(tmp_path: Path) -> None:
    for seed in range(4):
        wobble = 0.01 * (seed % 2)
        ends = {"hfc_lfc": 2.0, "cosine_similarity": 0.4, "effective_rank": 30.0 + wobble}
        write(
            tmp_path,
            short("plain", seed, 0.2 + wobble, ends),
            short("contranorm", seed, 0.2 + wobble, ends | {"effective_rank": 35.0}),
            short("gfsa", seed, 0.2 + wobble, ends | {"cosine_similarity": 0.5 + wobble}),
            short("featscale", seed, 0.2 + wobble, ends | {"hfc_lfc": 2.0 + wobble * (-1) ** (seed // 2)}),
        )
    answer = findings(tmp_path)["Do the fixes of other papers change what their papers say they change?"]["answer"]
    meant = answer.partition("means to change, ")[2]
    assert meant.startswith("as its paper says: contranorm (effective rank +4.99 (")
    assert "against it: gfsa (cosine similarity +0.10 (" in meant
    assert "no change that can be claimed: featscale (HFC/LFC" in meant


def test_records_of_the_short_recipe_alone_are_enough(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path, short("plain", seed, 0.2), short("neutreno", seed, 0.2 + 0.001 * seed))
    found = findings(tmp_path)
    assert found["Does sharpening help with little data?"]["answer"] == "No run so far."
    fixes = found["Do the fixes of other papers change what their papers say they change?"]
    assert fixes["answer"].startswith("In the short recipe, accuracy with neutreno cannot be told from plain's; ")
