"""Fine-tuning is answered from its runs."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

from paper.answers import findings, runs

from unsmooth.paper.questions import QUESTIONS


def test_fine_tuning_is_answered_from_its_runs(tmp_path: Path) -> None:
    from unsmooth.training.finetuning import FineTuned
    from unsmooth.training.finetuning.study import SCHEMA

    records = tmp_path / "records"
    runs(records, 0.0, seeds=2)
    for data, gain in (("birds", 0.05), ("bees", 0.0)):
        for arm, more in (
            ("plain", 0.0), ("adapter-smoothing", gain), ("adapter-smoothing-strong", 0.0), ("featscale", 0.0)
        ):  # fmt: skip
            for seed in range(5):
                noise = 0.001 * ((7 * seed + len(arm)) % 5 - 2)
                after = 0.6 if arm == "plain" else 0.15 if arm.endswith("-strong") else 0.3
                scores = {"score": 0.5 + more + noise, "hfc_lfc_after": after}
                run = FineTuned("m", data, "accuracy", arm, seed, scores, 1.0, {})
                path = tmp_path / "finetuned" / run.file
                path.parent.mkdir(exist_ok=True)
                path.write_text(json.dumps({"schema": SCHEMA, **asdict(run)}))
    question = next(q.asked for q in QUESTIONS if "fine-tuned (adapters" in q.asked)
    found = findings(records)[question]
    assert found["status"] == "leaning"
    assert found["answer"].startswith("Of 6 comparisons with plain fine-tuning (5 pairs each, in points) 1 can be")
    assert "adapter-smoothing +5.0" in found["answer"]
    assert "(m on birds)" in found["answer"]
    assert "The other differences are" in found["answer"]
    assert "Plain reaches 50.0 (m on bees, n = 5); 50.0 (m on birds, n = 5)." in found["answer"]
    possible = r"an adapter or a penalty is at most \+0\.\d points \(m on bees\); \+5\.\d points \(m on birds\)"
    assert re.search(possible, found["answer"])
    doses = "0.50 with smoothing (0.50 to 0.50), 0.25 with smoothing in a larger dose (0.25 to 0.25)."
    assert found["answer"].endswith(f"plain's with the same seed, is {doses}")
    for path in (tmp_path / "finetuned").glob("birds-adapter*"):
        path.unlink()
    nothing = findings(records)[question]["answer"]
    assert nothing.startswith("No gain was found. Of 4 comparisons")
    assert "none can be claimed" in nothing
    assert "birds)" not in nothing[: nothing.index("Plain reaches")]
    for seed in range(5):
        scores = {"score": 0.9, "hfc_lfc_after": 9.0}
        run = FineTuned("m", "bees", "accuracy", "penalty-sharpening-bare", seed, scores, 1.0, {})
        (tmp_path / "finetuned" / run.file).write_text(json.dumps({"schema": SCHEMA, **asdict(run)}))
    told = findings(records)[question]["answer"]
    assert "Of m no penalty of the folded H was run: arms called `…-bare`" in told
    assert "with sharpening" not in told
    assert "+40" not in told[told.index("A gain of") : told.index("Plain reaches")]
