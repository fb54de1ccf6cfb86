"""Tables of an explanation are means over the rows they are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import images, vit
from torch import nn

from unsmooth.analysis import Explanation, explain
from unsmooth.analysis.explaining.tables import ABOUT_CONSTANTS, COMPARED
from unsmooth.theory.normality import condition_number


@pytest.fixture(scope="module")
def found() -> Explanation:
    torch.manual_seed(0)
    model = vit(depth=2)
    for block in model.blocks:
        nn.init.normal_(block.norm1.weight)
        nn.init.normal_(block.attn.qkv.weight, std=0.3)
    made = explain(model, images(2), spectra=3)
    made.layers[0]["converged"] = False
    made.layers[1]["measured_ratio"] = 0.0  # an attention that adds nothing
    return made


def test_a_layer_has_the_means_of_its_inputs_and_heads(found: Explanation) -> None:
    rows, heads, table = found.frame(), found.head_frame(), found.by_layer(full=True).set_index("layer")
    for layer in (0, 1):
        mine, own = rows[rows["layer"] == layer], heads[heads["layer"] == layer]
        for name in ("exponent", "measured_ratio", "step", "alignment", "converged"):
            assert table.at[layer, name] == pytest.approx(mine[name].astype(float).mean())
        moved = mine[mine["measured_ratio"] != 0]
        right = (moved["exponent"] > 0) == (moved["measured_ratio"] > 0)
        assert table.at[layer, "agree"] == pytest.approx(right.mean())
        assert table.at[layer, "relative_entropy"] == pytest.approx(own["relative_entropy"].mean())
        judged = own[own["kind"].notna()]
        assert table.at[layer, "gap"] == pytest.approx(judged["gap"].mean())
        assert table.at[layer, "type1_heads"] == (judged["paper_kind"] == "smoothing").mean()
        assert table.at[layer, "type2_heads"] == (judged["paper_kind"] == "sharpening").mean()
    assert (rows[rows["measured_ratio"] == 0]["layer"] == 0).all()


def test_a_layers_eigenvalues_are_those_after_folding(found: Explanation) -> None:
    weights, table = found.weight_frame(), found.by_layer(full=True).set_index("layer")
    for layer in (0, 1):
        (row,) = (r for r in found.weights if (r["layer"], r["head"], r["folded"]) == (layer, -1, True))
        for name in ("re_negative", "re_positive", "re_outside", "departure", "condition"):
            assert table.at[layer, name] == row[name]
    assert weights["folded"].nunique() == 2


def test_every_predictor_stands_beside_what_it_predicts(found: Explanation) -> None:
    table, rows = found.predictions(full=True), found.frame()
    expected = [pair for pair in COMPARED if pair[0] not in ABOUT_CONSTANTS]  # this model has no biases
    assert list(zip(table["predictor"], table["measured"], strict=True)) == expected
    first = table.iloc[0]
    moved = rows[(rows[first["measured"]] != 0) & np.isfinite(rows[first["predictor"]])]
    right = (moved[first["predictor"]] > 0) == (moved[first["measured"]] > 0)
    assert first["count"] == len(moved)
    assert first["accuracy"] == pytest.approx(right.mean())


def test_the_condition_of_eigenvectors_ignores_their_lengths() -> None:
    vectors = torch.randn(4, 3, dtype=torch.complex128)
    expected = torch.linalg.cond(vectors / vectors.norm(dim=0))
    assert condition_number(vectors * torch.tensor([1.0, 5.0, 0.1])) == pytest.approx(float(expected))
    vectors[:, 1] = 0
    assert condition_number(vectors) == float("inf")
