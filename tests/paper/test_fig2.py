"""Figure 2 from the records of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from paper.records import CURVES, record, write

from unsmooth.metrics.registry import METRICS
from unsmooth.paper import Context, find_item


def test_figure_2_comes_from_the_records_and_marks_the_wrong_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unsmooth.paper.fig2.runs_figure", lambda panels, *_: panels)
    higher = {name: [1.5 * v for v in values] for name, values in CURVES.items()}
    write(
        tmp_path,
        record("plain", 0, 0.1, 0.3),
        record("plain", 1, 0.1, 0.3),
        record("sharpening", 0, 0.1, 0.3, epochs=[{"epoch": 300, "smoothing": higher}]),
    )
    result = find_item("fig2").run(Context(runs=tmp_path))
    rows = {(row[0], row[1]): row[2:] for row in result.tables[0].rows}
    assert rows["HFC/LFC", "ViT-Ti"] == [
        "1.000 ± 0.000 (n=2)", "2.000 ± 0.000 (n=2)", "3.000 ± 0.000 (n=2)", "+2.000 ± 0.000 (n=2)", None,
    ]  # fmt: skip
    assert rows["HFC/LFC", "ViT-Ti⁻ (sharpening)"][4] is None
    assert rows["cosine similarity", "ViT-Ti⁻ (sharpening)"][4] == "order differs from ViT-Ti"
    assert result.tables[0].title.endswith("trained on 10 % of the data")
    assert any("no model of the variant smoothing" in note for note in result.notes)
    panels = list(result.figures["fig2"].values())
    assert [[run.variant for run in panel] for panel in panels] == [["plain", "sharpening"]] * 3
    for panel, plain, sharper in zip(panels, CURVES.values(), higher.values(), strict=True):
        assert [(list(at), values) for at, values in panel.values()] == [
            ([1, 2, 3], [plain, plain]),
            ([1, 2, 3], [sharper]),
        ]
    assert set(result.about) == {"plain-0.1-0", "plain-0.1-1", "sharpening-0.1-0"}


def test_figure_2_expects_smoothing_models_to_be_smoother_than_plain(tmp_path: Path) -> None:
    """As long as ten blocks: the middle is the fifth."""
    plain = {name: [float(block) for block in range(10)] for name in CURVES}
    above, below = ({name: [v + by for v in values] for name, values in plain.items()} for by in (1.0, -1.0))
    for variant, expected in (("smoothing", ("cosine_similarity",)), ("sharpening", ("effective_rank", "hfc_lfc"))):
        for curves, right in ((above, expected), (below, sorted(set(CURVES) - set(expected)))):
            write(
                tmp_path,
                record("plain", 0, 1.0, 0.3, epochs=[{"epoch": 300, "smoothing": plain}]),
                record(variant, 0, 1.0, 0.3, epochs=[{"epoch": 300, "smoothing": curves}]),
            )
            rows = find_item("fig2").run(Context(runs=tmp_path)).tables[0].rows
            unmarked = {row[0] for row in rows if row[1] != "ViT-Ti" and row[-1] is None}
            assert unmarked == {METRICS[name].title for name in right}
            assert [row[2:6] for row in rows if row[1] == "ViT-Ti"] == [
                ["0.000 (n=1)", "4.000 (n=1)", "9.000 (n=1)", "+9.000 (n=1)"]
            ] * 3
