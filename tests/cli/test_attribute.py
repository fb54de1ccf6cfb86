"""`unsmooth attribute` as a person types it, and the sentences that a report makes of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import images, vit
from torch import Tensor, nn

import unsmooth
from unsmooth.analysis import Subject
from unsmooth.analysis.policies import PADDED
from unsmooth.cli.tables.attributed import found_in
from unsmooth.page.words.attribution import _strongest, _with_outliers, who_found


def test_it_prints_tables_and_writes_a_file(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    pytest.importorskip("timm")
    out = tmp_path / "a.json"
    asked = ("--data", "bundled", "--samples", 2, "--spectrum", "--total", 2, "--top", 3, "--out", out)
    said = cli("attribute", *tiny, *asked).stdout
    for words in (
        "a change of",
        "others",
        "By layer",
        "Tokens that carry the most",
        "Direct and total effect",
        "λ < 0",
        "From the first block to the last, HFC/LFC (all tokens, geometric mean over inputs) goes from ",
    ):
        assert words in " ".join(said.split())
    assert "account: " not in said  # which was not asked for
    found = unsmooth.load(out)
    assert isinstance(found, unsmooth.Attribution)
    assert len(found.effects()) == 2
    assert found.about.command is not None
    plain = json.loads(cli("attribute", *tiny, "--data", "bundled", "--samples", 1, "--json").stdout)
    assert plain["schema"] == "unsmooth.attribution/1"


def test_a_part_whose_work_later_layers_make_up_for_is_said_to_be_so() -> None:
    found = unsmooth.attribute(vit(depth=2), images(2))
    row = {"layer": 0, "part": "MLP", "direct": math.log(2), "inputs": 2, "mode": "zero", "std": None, "tokens": "all"}
    found.totals = [{**row, "total": math.log(2)}]
    assert len(found_in(found)) == 1
    found.totals = [{**row, "total": -math.log(1.5)}]
    said = "Without the MLP of layer 0, HFC/LFC after the last block is multiplied by 1.5, where its share alone would"
    assert found_in(found)[1] == f"{said} give 0.5: what comes after more than makes up for it."
    for left, how in ((0.4, "makes up for most of it"), (0.01, "makes up for it"), (-0.01, "makes up for it")):
        found.totals = [{**row, "total": left * math.log(2)}]
        assert found_in(found)[1].endswith(f"what comes after {how}.")


def test_what_it_cannot_do_is_said_before_the_work(cli: Callable[..., Any], tiny: list[str], tmp_path: Path) -> None:
    assert "way to remove" in cli("attribute", *tiny, "--data", "bundled", "--remove", "badly", code=1).stderr
    assert "token policy" in cli("attribute", *tiny, "--data", "bundled", "--tokens", "lunch", code=1).stderr
    assert str(tmp_path) in cli("attribute", *tiny, "--data", "bundled", "--out", tmp_path, code=1).stderr


def test_the_part_that_writes_an_outlier_is_named_with_its_token_and_that_nothing_else_happens_there() -> None:
    torch.manual_seed(0)
    model, data = vit(class_token=False, global_pool="avg").eval(), images(1, 3)

    def explode(module: nn.Module, args: object, output: Tensor) -> Tensor:
        output = output.clone()
        output[:, 0] += 300 * torch.linspace(-1, 1, 24)
        return output

    model.blocks[1].mlp.register_forward_hook(explode)
    with torch.no_grad():
        model.blocks[1].attn.proj.weight *= 0.01
        model.blocks[1].attn.proj.bias.zero_()
    found = unsmooth.attribute(model, data, ("all", "no-outliers"))
    subject = Subject("mine", unsmooth.measure(model, data, "hfc_lfc", ("all", "no-outliers")), attribution=found)
    first, second = who_found(subject, "no-outliers")
    assert first.startswith("Split exactly into the single parts of every layer, HFC/LFC of <b>mine</b> is ")
    assert second == (
        "Counting every token, it is raised most by the MLP of layer 1, nearly all of it by what this writes to the "
        "first token; nothing else of note happens in that layer"
    )
    assert _with_outliers(found, "all", "raised most by the MLP of layer 12") == second
    assert _with_outliers(found, "all", "raised most by the MLP of layer 1 and") == second.replace(
        "token,", "token too,"
    )
    assert who_found(subject, "all")[1] == ""
    assert who_found(Subject("mine", subject.measurement), "all") == ("", "")
    subject.measurement.notes.append(f"{PADDED}, which tokens='all' counts as tokens")
    assert who_found(subject, "no-outliers") == (first, "")  # padding, not outliers, is why these tokens head the page


@pytest.mark.parametrize(("shares", "words"), [
    ({0: -1.3, 1: 0.08, 2: -0.8}, "lowered most by the MLP of layer 0, and no part raises it a tenth as much"),
    ({0: 0.5, 1: -0.06, 2: 0.1}, "raised most by the MLP of layer 0 and lowered most by the MLP of layer 1"),
    ({0: 0.5, 1: 0.3, 2: 0.1}, "raised most by the MLP of layer 0, and no part lowers it a tenth as much"),
    ({0: 5e-8, 1: -2e-8}, "changed by no part by as much as 1 %"),
    ({0: 0.0, 1: 0.0}, ""),
])  # fmt: skip
def test_parts_are_named_where_they_matter(shares: dict[int, float], words: str) -> None:
    import pandas as pd

    rows = pd.DataFrame([{"layer": k, "kind": "mlp", "head": None, "mean": share} for k, share in shares.items()])
    assert _strongest(rows) == words
