"""The poster's Table 1: shares of dominating types of ours beside the published ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from unsmooth.errors import OptionError
from unsmooth.paper import Context, find_item, poster_table1


@pytest.fixture(autouse=True)
def little_zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two small untrained models under names that tell their variant, and a small one with random weights."""
    from unsmooth.control.variant import Variant
    from unsmooth.training.tasks.images import RECIPES, build_model, save_model

    recipe = RECIPES["cifar100"].override(["depth=2", "width=24", "heads=2", "patch_size=8"])
    for variant in ("plain", "sharpening"):
        what = Variant.parse(variant)
        model = what.bake(what.apply(build_model(recipe, 0)))
        save_model(model, tmp_path / f"cifar100-{variant}", recipe, {"variant": variant}, half=False)
    monkeypatch.setenv("UNSMOOTH_ZOO", str(tmp_path))
    monkeypatch.setattr(poster_table1, "RANDOM", "ViT, random weights=timm:test_vit")
    return tmp_path


def test_shares_are_those_of_explain_beside_the_published_column_of_the_variant() -> None:
    from unsmooth.analysis.explaining.dominating_types import dominating_types
    from unsmooth.analysis.explaining.tables import type_shares
    from unsmooth.sources import load_model, open_data

    result = find_item("poster-table1").run(Context(samples=2))
    rows = {str(row[0]): row[1:] for row in result.tables[0].rows}
    ours, alone = list(rows)[:3], list(rows)[3:]
    assert ours == ["ViT, random weights", "cifar100-plain", "cifar100-sharpening"]
    assert alone == ["ViT-B/16, ImageNet", "DeiT-B/16, ImageNet", "ViT-Ti+, CIFAR-100"]  # published, no model here
    assert [rows[name][-2:] for name in ours] == [[100.0, 0.0], [98.92, 1.08], [0.0, 100.0]]
    assert [rows[name][-2:] for name in alone] == [[70.27, 29.73], [57.82, 42.18], [100.0, 0.0]]
    assert all(cell is None for name in alone for cell in rows[name][:-2])
    loaded = load_model("zoo:cifar100-plain")
    shares = type_shares(dominating_types(loaded.model, open_data("bundled", loaded, samples=2))).set_index("kind")
    first, second = (100 * shares.loc[kind, "share"] for kind in ("smoothing", "sharpening"))
    assert rows["cifar100-plain"][0] == pytest.approx(first)
    assert rows["cifar100-plain"][2] == pytest.approx(second)
    low, high = shares.loc["smoothing", ["low", "high"]]
    assert rows["cifar100-plain"][1] == f"{low:.1%} – {high:.1%}"
    assert rows["cifar100-plain"][4:6] == [100 * shares.loc["sharpening", "neither"], 0]
    assert rows["cifar100-plain"][6] == 2 * 2 * 2  # layers, heads, inputs
    assert rows["cifar100-sharpening"][:3:2] == [0.0, 100.0]  # negative eigenvalues alone never smooth
    assert result.label.startswith("2 inputs of bundled per model")


def test_a_head_whose_largest_value_is_one_whatever_attention_does_is_a_tie(little_zoo: Path) -> None:
    from safetensors.torch import load_file, save_file

    file = little_zoo / "cifar100-plain" / "model.safetensors"
    weights = load_file(file)
    weights["blocks.1.attn.proj.weight"].zero_()  # H = 0: attention of one layer in two adds nothing
    save_file(weights, file, {"format": "pt"})
    config = json.loads((file.parent / "config.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    changed = {key: digest if isinstance(value, str) and len(value) == 64 else value for key, value in config.items()}
    (file.parent / "config.json").write_text(json.dumps(changed), encoding="utf-8")
    row = next(
        row for row in find_item("poster-table1").run(Context(samples=1)).tables[0].rows if "plain" in str(row[0])
    )
    assert row[6] == 50.0
    assert row[1] + row[3] == 50.0
    assert row[5] <= row[3]  # ties are not counted here


def test_a_model_without_a_name_goes_by_its_reference() -> None:
    result = find_item("poster-table1").run(Context(models=("zoo:cifar100-sharpening",), samples=1))
    assert [(row[0], row[-1]) for row in result.tables[0].rows[1:2]] == [("zoo:cifar100-sharpening", 100.0)]


def test_as_many_data_as_models_or_one_for_all() -> None:
    with pytest.raises(OptionError, match="one --data for all models or one for each of 1, got 2"):
        find_item("poster-table1").run(Context(models=("zoo:cifar100-plain",), data=("a", "b")))
