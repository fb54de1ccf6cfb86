"""What the page shows of one example's tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from report.conftest import tiny

from unsmooth.measure import cosine_similarity, hfc_lfc_ratio
from unsmooth.models import LoadedModel, hook_points, view
from unsmooth.report import tokens
from unsmooth.report.tokens import relative_distance, similarity, view_tokens


def states(loaded: LoadedModel, batch: torch.Tensor) -> dict[str, torch.Tensor]:
    """The residual stream of a batch, kept whole."""
    found: dict[str, torch.Tensor] = {}
    v = view(loaded.model)
    with torch.no_grad(), hook_points(v, [p for p in v.points if p.endswith((".pre", ".post"))], found.__setitem__):
        loaded.model(batch)
    return found


def test_distances_and_cosines_are_those_of_the_residual_stream() -> None:
    loaded, batch = tiny(0), torch.randn(3, 3, 64, 64)
    found = view_tokens(loaded, batch, example=1)
    kept = states(loaded, batch)
    assert found.points == ("blocks.0.pre", *(f"blocks.{i}.post" for i in range(3)))
    for i, point in enumerate(found.points):
        x = kept[point][1].double()
        np.testing.assert_allclose(np.sqrt((found.distance[i] ** 2).mean()), float(hfc_lfc_ratio(x)), rtol=1e-4)
        rows, columns = np.tril_indices(17)
        cosines = found.cosine[i] / 127.5 - 1
        off = rows != columns
        expected = similarity(x).numpy()[rows, columns]
        assert np.abs(cosines - expected).max() <= 1 / 255 + 1e-9
        # one byte per pair: half a step of 2/255 at most
        assert abs(cosines[off].mean() - float(cosine_similarity(x))) < 1 / 255


def test_the_picture_and_its_grid_leave_out_the_class_token() -> None:
    found = view_tokens(tiny(0), torch.zeros(1, 3, 64, 64))
    assert found.grid == (4, 4)
    assert found.prefix == 1
    assert found.picture is not None
    assert found.picture.startswith("data:image/jpeg;base64,")


def test_long_sequences_are_thinned_in_the_matrix_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_BUDGET", 200)  # 4 points: at most 10 tokens each
    found = view_tokens(tiny(0), torch.randn(1, 3, 64, 64))
    assert found.size == 9
    assert found.cosine.shape == (4, 45)
    assert found.distance.shape == (4, 17)
    assert found.cosine.nbytes <= 200


def test_padding_is_no_token() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    model = transformers.BertModel(config).eval()
    batch = {
        "input_ids": torch.randint(40, (2, 7)),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0, 0], [1] * 7]),
    }
    found = view_tokens(LoadedModel(model, "hf:tiny", "text"), batch, example=0)
    assert found.distance.shape == (3, 5)
    assert found.grid is None
    assert found.picture is None


def test_equal_tokens_have_distance_zero_and_cosine_one() -> None:
    x = torch.ones(4, 3, dtype=torch.float64)
    assert relative_distance(x).tolist() == [0.0] * 4
    torch.testing.assert_close(similarity(x), torch.ones(4, 4, dtype=torch.float64))
