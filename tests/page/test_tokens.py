"""What the page shows of one example's tokens."""

from __future__ import annotations

import base64
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from page.conftest import tiny
from results import view_tokens

from unsmooth.analysis import load
from unsmooth.analysis import token_view as tokens
from unsmooth.analysis.token_view import TokenView, relative_distance, similarity
from unsmooth.errors import CheckpointError
from unsmooth.metrics import cosine_similarity, hfc_lfc_ratio
from unsmooth.models import hook_points, view
from unsmooth.sources import ImageInput, LoadedModel


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


def test_the_picture_is_what_the_model_saw_upright_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    colours = ImageInput(64, mean=(0.5, 0.4, 0.3), std=(0.2,) * 3)
    loaded = LoadedModel(torch.nn.Identity(), "x", "images", image_input=colours)
    seen = torch.zeros(1, 3, 400, 200)
    seen[:, :, 200:] = 9  # brighter than white
    address = tokens._picture(loaded, seen[0])
    assert address is not None
    shown = image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/jpeg;base64,"))))
    assert shown.size == (80, 160)
    assert np.abs(np.array(shown.getpixel((40, 20))) - 255 * np.array(colours.mean)).max() < 5
    assert min(shown.getpixel((40, 140))) > 250
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert tokens._picture(loaded, seen[0]) is None


def test_patches_that_fill_no_square_have_no_grid() -> None:
    assert [tokens._grid(count) for count in (1, 4, 8, 9)] == [None, (2, 2), None, (3, 3)]


def test_long_sequences_are_thinned_in_the_matrix_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_BUDGET", 200)  # 4 points: at most 10 tokens each
    found = view_tokens(tiny(0), torch.randn(1, 3, 64, 64))
    assert found.size == 9
    assert found.cosine.shape == (4, 45)
    assert found.distance.shape == (4, 17)
    assert found.cosine.nbytes <= 200


class Tokenizer:
    """Words that say their number."""

    def decode(self, ids: list[int]) -> str:
        return f"w{ids[0]}"


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
    loaded = LoadedModel(model, "hf:tiny", "text", tokenizer=Tokenizer())
    for example, kept in ((0, 5), (1, 7)):
        found = view_tokens(loaded, batch, example)
        assert found.distance.shape == (3, kept)
        assert found.labels == tuple(f"w{i}" for i in batch["input_ids"][example, :kept].tolist())
    assert view_tokens(LoadedModel(model, "hf:tiny", "text"), batch).labels is None
    assert found.grid is None
    assert found.picture is None


def test_a_view_is_saved_and_loaded_bit_for_bit(tmp_path: Path) -> None:
    found = view_tokens(tiny(0), torch.randn(2, 3, 64, 64), example=1)
    again = load(found.save(tmp_path / "tokens.json"))
    assert isinstance(again, TokenView)
    assert again.to_json() == found.to_json()
    assert again.distance.tobytes() == found.distance.tobytes()
    assert (again.about, again.grid, again.picture) == (found.about, found.grid, found.picture)
    assert again.about.settings.example == 1


def test_a_view_that_claims_more_bytes_than_its_arrays_have_is_refused(tmp_path: Path) -> None:
    plain = view_tokens(tiny(0), torch.randn(1, 3, 64, 64)).to_json()
    path = tmp_path / "tokens.json"
    for change in ({"size": 3}, {"tokens": 10**9}, {"cosine": "!"}, {"points": "x"}):
        path.write_text(json.dumps({**plain, **change}))
        with pytest.raises(CheckpointError, match="was cut or changed"):
            load(path)


def test_equal_tokens_have_distance_zero_and_cosine_one() -> None:
    x = torch.ones(4, 3, dtype=torch.float64)
    assert relative_distance(x).tolist() == [0.0] * 4
    torch.testing.assert_close(similarity(x), torch.ones(4, 4, dtype=torch.float64))
