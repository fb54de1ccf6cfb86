"""The poster's Table 3: accuracies on corrupted images."""

from __future__ import annotations

from pathlib import Path

from paper.records import corrupted

from unsmooth.paper import Context, find_item


def test_corruption_results_are_read_by_severity(tmp_path: Path) -> None:
    corrupted(tmp_path, "m", fraction=1.0)
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    ours = [row[2] for row in result.tables[0].rows if row[1] == "ViT-Ti"]
    assert ours == ["66.00 (n=1)", *(f"{60 - 5 * s:.2f} (n=1)" for s in range(1, 6))]
    gaps = [row[4] for row in result.tables[0].rows if row[1] == "ViT-Ti"]
    assert gaps[:2] == ["-0.78", "-6.59"]  # the poster's 66.78 and 61.59
    assert "regenerated CIFAR-100-C" in result.label
    assert "difference" in result.tables[0].columns
    assert not any("bfloat16" in note for note in result.notes)


def test_accuracies_of_bfloat16_are_named(tmp_path: Path) -> None:
    corrupted(tmp_path, "m", fraction=1.0, precision="bf16")
    notes = find_item("poster-table3").run(Context(runs=tmp_path)).notes
    assert any(note.startswith("classified in bfloat16") for note in notes)


def test_what_is_beyond_the_gap_on_clean_images_is_said(tmp_path: Path) -> None:
    corrupted(tmp_path, "zoo:cifar100-plain")
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    (said,) = [note for note in result.notes if "less that on clean images" in note]
    ours, clean = [100 * (0.6 - 0.05 * s) for s in range(1, 6)], 66.0 - 66.78
    theirs = (61.59, 57.75, 53.12, 49.32, 39.17)
    expected = ", ".join(f"{a - b - clean:+.2f}" for a, b in zip(ours, theirs, strict=True))
    assert said == f"plain, ours minus the poster's, less that on clean images: {expected}"


def test_a_model_of_less_data_is_not_compared_with_the_posters_accuracies(tmp_path: Path) -> None:
    corrupted(tmp_path, "zoo:cifar100-10pct-plain")  # results from before the share was written down
    corrupted(tmp_path, "runs/cifar100-plain-seed0")
    clean = {"accuracy": 0.66, "loss": 1.5, "calibration_error": 0.05, "images": 200}
    corrupted(tmp_path, "mine", clean=clean)
    result = find_item("poster-table3").run(Context(runs=tmp_path))
    whole, part = result.tables
    assert whole.title.endswith("ours trained on 100 % of the data")
    assert "ours trained on 10 % of the data, the poster's on all of it" in part.title
    assert part.columns == ["intensity", "model", "ours (10 %)", "published (100 %)", "note"]
    assert any(note.endswith("how much data they were trained on: mine") for note in result.notes)
    assert any("points on 10,000 test images, ±6.9 on 200: smaller differences may be none" in n for n in result.notes)
