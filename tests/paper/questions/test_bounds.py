"""What γ says of bounded models comes from explanations of several of them."""

from __future__ import annotations

from pathlib import Path

import torch
from paper.answers import findings, write
from paper.records import record

from unsmooth.training.tasks.images import RECIPES


def test_how_often_the_exponent_is_right_is_a_mean_over_the_models_that_were_explained(tmp_path: Path) -> None:
    from unsmooth.analysis import Origin, explain
    from unsmooth.paper.explains import rows_of
    from unsmooth.training.tasks.images import build_model

    recipe = RECIPES["cifar100"].override(["depth=2", "width=24", "heads=2", "image_size=8", "patch_size=4"])
    shares = []
    for seed in range(3):
        for variant in ("sharpening", "sharpening-bounded"):
            run = f"cifar100-small-10pct-{variant}-std1-seed{seed}"
            about = {"recipe": RECIPES["cifar100-small"].as_dict()}
            write(tmp_path, record("plain", seed, 0.1, 0.3, run=f"plain{seed}", **about))
            gain = 0.01 + 0.001 * seed if variant == "sharpening" else 0.0
            write(tmp_path, record(variant, seed, 0.1, 0.3 + gain, run=run, std=1.0, **about))
        if seed < 2:
            model = build_model(recipe, seed)
            origin = Origin(run, "", "noise", "images", "")
            explanation = explain(model, [torch.randn(2, 3, 8, 8)], origin=origin)
            (tmp_path / run).mkdir()
            explanation.save(tmp_path / run / "explanation.json")
            rows = rows_of("", explanation)
            shares += [row for row in rows if (row["candidate"], row["tokens"]) == ("exponent", "all")]
    found = next(f for q, f in findings(tmp_path).items() if q.startswith("Does a bound on λ"))
    assert "of the same start, in points: sharpening-bounded (ψ's std 1) -1.10 (-1.35 to -0.85)" in found["answer"]
    steps = [explanation.frame()[column] > 0 for column in ("exponent", "measured_ratio")]
    assert [shares[-1]["up"], shares[-1]["rises"]] == [share.mean() for share in steps]
    up, rises, right = (round(100 * sum(row[key] for row in shares) / 2) for key in ("up", "rises", "right"))
    assert f"share of attention's steps: where ψ starts at 1, in {up} % with sharpening-bounded." in found["answer"]
    assert found["tables"][-1]["rows"] == [["sharpening-bounded", 1.0, 2, up, rises, right]]
