"""Tables for people, cell by cell."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import torch
from cli.tables.printed import rows, text
from results import about_measured
from rich.console import Console
from small_models import images, vit

from unsmooth.analysis import Measurement, measure
from unsmooth.analysis.measuring.cells import Cell, Change
from unsmooth.analysis.measuring.changes import READINGS
from unsmooth.cli.tables import measured as tables
from unsmooth.cli.tables.layout import written
from unsmooth.cli.tables.measured import by_kind, by_layer, definitions
from unsmooth.metrics.moments import Moments

METRIC = "effective_rank"


def moments(mean: float, half: float = 1.0) -> Moments:
    found = Moments()
    found.update(torch.tensor([mean - half, mean + half], dtype=torch.float64))
    return found


def measured(values: dict[str, float], layers: int = 2, placement: str = "pre", **about: Any) -> Measurement:
    cells = {Cell(point, METRIC, "all"): moments(value) for point, value in values.items()}
    known = {
        "model": {"layers": layers, "placement": placement, "class": "X"},
        "data": {},
        "settings": {"metrics": [METRIC], "tokens": ["all"]},
        "definitions": {"metrics": {METRIC: "a rank"}, "tokens": {"all": "each"}, "changes": dict(READINGS)},
    }
    return Measurement(cells, {}, about_measured(**{**known, **about}))


WHOLE = {
    "embed": 1.0, "blocks.0.pre": 1.5, "blocks.0.mid": 3.0, "blocks.0.post": 7.0, "blocks.1.pre": 7.0,
    "blocks.1.mid": 6.5, "blocks.1.post": 4.5, "final_norm": 9.0,
}  # fmt: skip


def test_a_row_has_the_layers_output_and_what_each_sub_layer_changed() -> None:
    assert rows(by_layer(measured(WHOLE), "all")) == [
        ["layer", "effective rank", "attn", "mlp"],
        ["embed", "1.000 ± 1.4", "", ""],
        ["0", "7.000 ± 1.4", "+1.50", "+4.00"],
        ["1", "4.500 ± 1.4", "-0.500", "-2.00"],
        ["final", "9.000 ± 1.4", "", ""],
    ]
    assert [row[1:] for row in rows(by_layer(measured(WHOLE), "all", steps=False))][2] == ["7.000 ± 1.4"]


def test_without_the_inputs_of_layers_the_output_before_stands_for_them() -> None:
    fewer = {point: value for point, value in WHOLE.items() if not point.endswith(".pre")}
    assert [row[2:] for row in rows(by_layer(measured(fewer), "all"))][2:4] == [["+2.00", "+4.00"], ["-0.500", "-2.00"]]
    del fewer["embed"], fewer["final_norm"]
    assert [row[0] for row in rows(by_layer(measured(fewer), "all"))] == ["layer", "0", "1"]
    assert rows(by_layer(measured(fewer), "all"))[1][2:] == ["", "+4.00"]


def test_where_the_stream_is_not_whole_every_point_has_a_row() -> None:
    fewer = {"blocks.0.attn": 2.0, "blocks.0.mid": 3.0, "blocks.0.post": 7.0, "blocks.1.post": 4.5}
    assert rows(by_layer(measured(fewer), "all")) == [
        ["point", "effective rank"],
        *([point, f"{value:.3f} ± 1.4"] for point, value in fewer.items()),
    ]


def test_a_post_norm_layer_shows_its_norms_apart_from_attention_and_mlp() -> None:
    inside = {"blocks.0.attn_sum": 2.0, "blocks.0.mlp_sum": 3.5, "blocks.1.attn_sum": 8.0, "blocks.1.mlp_sum": 4.0}
    found = rows(by_layer(measured(WHOLE | inside, placement="post"), "all"))
    assert found[0] == ["layer", "effective rank", "attn", "norm", "mlp", "norm"]
    steps = [["+0.500", "+1.00", "+0.500", "+3.50"], ["+1.00", "-1.50", "-2.50", "+0.500"]]
    assert [row[2:] for row in found[2:4]] == steps
    # without the sums nobody can tell who made which step
    assert rows(by_layer(measured(WHOLE, placement="post"), "all"))[0] == ["layer", "effective rank"]


def test_a_parallel_block_has_no_steps_and_still_a_row_for_each_layer() -> None:
    outputs = {"blocks.0.post": 7.0, "blocks.1.post": 4.5}
    found = rows(by_layer(measured(outputs, placement="parallel-shared"), "all"))
    assert found == [["layer", "effective rank"], ["0", "7.000 ± 1.4"], ["1", "4.500 ± 1.4"]]


def test_changes_by_kind_are_those_of_the_reading_and_the_policy() -> None:
    found = measured(WHOLE)
    found.about = replace(found.about, settings=replace(found.about.settings, tokens=("patches", "all")))
    for reading, shift in (("chain", 0.0), ("residual", 10.0)):
        for kind, mean in (("MLP", 2.0), ("Attention", 1.0)):
            for policy, more in (("all", 0.0), ("patches", 0.5)):
                found.changes[Change(reading, kind, METRIC, policy)] = moments(mean + shift + more)
    del found.changes[Change("chain", "MLP", METRIC, "all")]
    assert rows(by_kind(found, "chain")) == [
        ["kind", "tokens", "effective rank"],
        ["Attention", "patches", "+1.5000 ± 1.4142"],
        ["Attention", "all", "+1.0000 ± 1.4142"],
        ["MLP", "patches", "+2.5000 ± 1.4142"],
    ]


def test_what_is_shown_depends_on_the_terminal_and_on_what_was_measured() -> None:
    found = measured(WHOLE)
    for width, steps in ((tables.WIDE, True), (tables.WIDE - 1, False)):
        console = Console(file=io.StringIO(), width=width)
        tables.show(found, console)
        shown = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("attn" in shown) == steps
        assert "Change by kind" not in shown
        assert "X on data, tokens: all" in shown
        assert "effective_rank: a rank" in shown
    found.changes[Change("residual", "MLP", METRIC, "all")] = moments(1.0)
    console = Console(file=io.StringIO(), width=200)
    tables.show(found, console)
    shown = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "Change by kind of layer, residual reading" in shown
    assert "chain reading" not in shown


def test_notes_counts_and_interruptions_are_said() -> None:
    found = measured(WHOLE)
    found.notes, found.partial = ["mind this"], True
    shown = text(definitions(found))
    assert "2 samples; mean ± standard deviation over samples" in shown
    assert "note: mind this" in shown
    assert "PARTIAL" in shown
    found.partial = False
    assert "PARTIAL" not in text(definitions(found))


def test_what_is_not_defined_is_a_dash() -> None:
    assert written(math.nan, ".2f", 1.0, ".2f") == "–"
    assert written(1.0, ".2f", math.inf, ".2f") == "1.00 ± inf"


def test_the_end_says_in_words_what_the_curve_does_where_the_stream_was_measured() -> None:
    torch.manual_seed(0)
    model = vit(depth=2)
    with torch.no_grad():  # every block adds the same large row to all tokens
        for block in model.blocks:
            block.mlp.fc2.bias.fill_(9.0)
    found, *_, certainty = tables.found_in(measure(model, images(2, 4)))
    assert found.startswith("VisionTransformer smooths its features in every layer (HFC/LFC ")
    assert "<" not in found
    assert certainty.startswith("With 8 samples, treat this as a description of these inputs.")
    assert "is called clear" in tables.found_in(measure(model, images(1)))[-1]
    assert tables.found_in(measure(model, images(2), points=["blocks.0.attn"])) == []
