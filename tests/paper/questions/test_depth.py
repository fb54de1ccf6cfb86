"""Whether accuracy falls with depth is told by a line through all runs."""

from __future__ import annotations

import re
from pathlib import Path

from paper.answers import findings, log, read, runs, write
from paper.records import record

from unsmooth.paper import Context, find_item


def test_a_depth_at_which_accuracy_falls_is_said_to_be_one(tmp_path: Path) -> None:
    runs(tmp_path, 0.0, seeds=3)
    for seed in range(3):
        for variant, gain in (("plain", 0.1), ("smoothing", -0.1)):
            name = f"cifar100-10pct-{variant}-seed{seed}"
            (shallow,) = (r for r in map(read, tmp_path.iterdir()) if (r["variant"], r["seed"]) == (variant, seed))
            accuracy = shallow["final"]["accuracy"] + gain + 0.001 * seed
            deep = record(variant, seed, 0.1, accuracy, run=f"deep-{name}", epochs=[log(0.5, 0.4)])
            write(tmp_path, deep | {"recipe": {**deep["recipe"], "name": "cifar100-depth24", "depth": 24}})
    found = findings(tmp_path)["Does accuracy fall with depth where features smooth?"]
    assert found["status"] == "leaning"
    doubled = re.search(r"plain ([-+.0-9]+) \(.*?\); smoothing ([-+.0-9]+) \(", found["answer"])
    assert doubled is not None
    assert [float(slope) for slope in doubled.groups()] == [10.1, -9.9]  # 12 to 24 layers are one doubling
    assert "Of accuracy, that of smoothing falls and that of plain rises (Holm)" in found["answer"]
    assert "that of plain and smoothing falls (Holm). So both fall for smoothing. Accuracy minus" in found["answer"]
    assert found["n"] == "12 runs"
    figures = find_item("findings").run(Context(runs=tmp_path)).figures
    assert all(name in figures["findings-depth"].svg() for name in ("plain (n = 3)", "smoothing (n = 3)", "layers"))
    assert "sharpening" not in figures["findings-depth"].svg()  # it was run at one depth
