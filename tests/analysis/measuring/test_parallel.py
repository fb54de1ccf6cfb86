"""Parallel residuals are measured: one change for attention and MLP, because the stream never passes between them."""

from __future__ import annotations

from io import StringIO

import pytest
import torch
from model_cases import CASES
from rich.console import Console

import unsmooth
from unsmooth.analysis import Measurement
from unsmooth.analysis.measuring.changes import READINGS, TOGETHER
from unsmooth.cli.tables.measured import by_kind, by_layer

NORMS = {
    "gpt-neox": ("norm1", "norm2"),
    "phi": ("norm1",),
    "falcon-40b": ("norm1", "norm2"),
    "timm-parallel": ("norm1",),
}


def measured(name: str, points: str = "all") -> Measurement:
    case = next(case for case in CASES if case.name == name)
    inputs = case.inputs()
    batch = {"input_ids": inputs["input_ids"]} if isinstance(inputs, dict) else inputs
    return unsmooth.measure(case.model(), [batch], points=points)


@pytest.mark.parametrize("name", NORMS)
def test_the_sum_of_attention_and_mlp_has_one_change_in_both_readings(name: str) -> None:
    found = measured(name)
    mean = found.frame().set_index(["point", "metric"])["mean"]
    tables = {reading: found.change_by_kind(reading).set_index(["kind", "metric"])["mean"] for reading in READINGS}

    def step(metric: str, *pairs: tuple[str, str]) -> float:
        values = [mean[f"blocks.{i}.{b}", metric] - mean[f"blocks.{i}.{a}", metric] for i in range(3) for a, b in pairs]
        return sum(values) / len(values)

    assert set(tables["chain"].index.get_level_values("kind")) == {"LayerNorm", TOGETHER}
    assert set(tables["residual"].index.get_level_values("kind")) == {TOGETHER}
    for metric in ("hfc_lfc", "cosine_similarity", "effective_rank"):
        assert tables["residual"][TOGETHER, metric] == pytest.approx(step(metric, ("pre", "post")), abs=1e-9)
        norms = step(metric, *(("pre", norm) for norm in NORMS[name]))
        assert tables["chain"]["LayerNorm", metric] == pytest.approx(norms, abs=1e-9)
        both = step(metric, *((norm, "post") for norm in NORMS[name]))
        assert tables["chain"][TOGETHER, metric] == pytest.approx(both, abs=1e-9)


def test_the_tables_have_a_row_for_every_layer_and_no_column_that_needs_a_mid() -> None:
    found = measured("gpt-neox", "residual")
    shown = StringIO()
    console = Console(width=200, file=shown)
    console.print(by_layer(found, "all"))
    layers = shown.getvalue()
    assert [line.split()[1] for line in layers.splitlines() if "±" in line] == ["embed", "0", "1", "2"]
    assert "mlp" not in layers
    console.print(by_kind(measured("gpt-neox"), "residual"))
    assert TOGETHER in shown.getvalue()


def test_it_is_kept_and_merged_like_any_other(tmp_path: object) -> None:
    found = measured("phi")
    found.save(f"{tmp_path}/run.json")
    again = unsmooth.load_measurement(f"{tmp_path}/run.json")
    assert again.about.model.placement == "parallel-shared"
    assert again.merge(found).samples == 2 * found.samples
    assert torch.tensor([m.mean for m in again.changes.values()]).isfinite().all()
