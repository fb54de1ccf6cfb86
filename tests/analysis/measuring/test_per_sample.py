"""Values per sample: what is kept, in memory and in the file, and when it is let go."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import bert, images, vit, words
from torch import nn

import unsmooth
from unsmooth.analysis.measuring import per_sample
from unsmooth.analysis.measuring.per_sample import MOST_VALUES, PerSample, Recorder
from unsmooth.errors import CheckpointError


def test_the_values_kept_are_those_behind_the_means() -> None:
    measurement = unsmooth.measure(bert(), words(3), tokens="content,no-outliers", special_ids=[])
    kept = measurement.per_sample
    assert kept is not None
    assert kept.addresses == tuple(measurement.cells)
    for cell, moments in measurement.cells.items():
        assert len(kept[cell]) == moments.count == len(kept)
        assert kept[cell].mean() == pytest.approx(moments.mean, rel=1e-12)
        assert kept[cell].std(ddof=1) == pytest.approx(moments.std, rel=1e-9)


def test_merging_appends_samples_whatever_the_order_of_the_cells() -> None:
    model, data = vit(), images(2)
    whole = unsmooth.measure(model, data, "hfc_lfc,effective_rank")
    second = unsmooth.measure(model, data[1:], "effective_rank,hfc_lfc")
    merged = unsmooth.measure(model, data[:1], "hfc_lfc,effective_rank").merge(second)
    assert whole.per_sample is not None
    assert merged.per_sample is not None
    assert (merged.per_sample.keys == whole.per_sample.keys).all()
    for cell in whole.cells:
        assert merged.per_sample[cell] == pytest.approx(whole.per_sample[cell], rel=1e-6)
    second.per_sample = None
    assert whole.merge(second).per_sample is None


def test_a_file_holds_them_bit_for_bit_and_only_where_wanted(tmp_path: Path) -> None:
    measurement = unsmooth.measure(vit(), images())
    kept = measurement.per_sample
    assert kept is not None
    kept.table[0, 0], kept.table[0, 1] = np.nan, -np.inf
    loaded = unsmooth.load_measurement(measurement.save(tmp_path / "run.json"))
    assert loaded.per_sample is not None
    assert loaded.per_sample.addresses == kept.addresses
    assert (loaded.per_sample.keys == kept.keys).all()
    assert loaded.per_sample.table.tobytes() == kept.table.tobytes()
    assert "per_sample" not in measurement.to_json()
    assert unsmooth.load_measurement(measurement.save(tmp_path / "small.json", per_sample=False)).per_sample is None


@pytest.mark.parametrize("damage", [{"keys": "AAAA"}, {"values": "not base64!"}, {"values": None}])
def test_damaged_values_are_an_error_that_says_what_to_do(tmp_path: Path, damage: dict[str, str]) -> None:
    path = unsmooth.measure(vit(), images()).save(tmp_path / "run.json")
    found = json.loads(path.read_text())
    found["per_sample"] |= damage
    path.write_text(json.dumps(found))
    with pytest.raises(CheckpointError, match=r"values per sample are damaged .*remove 'per_sample' from the file"):
        unsmooth.load_measurement(path)


def test_too_many_values_are_let_go_and_the_means_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = vit(), images(3)
    whole = unsmooth.measure(model, data)
    monkeypatch.setattr(per_sample, "MOST_VALUES", 5 * len(whole.cells))
    parts = [unsmooth.measure(model, part) for part in (data[:2], data[2:])]
    assert all(part.per_sample is not None for part in parts)
    assert parts[0].merge(parts[1]).per_sample is None
    many = unsmooth.measure(model, data)
    assert many.per_sample is None
    assert many.cells == whole.cells
    monkeypatch.setattr(per_sample, "MOST_VALUES", 6 * len(whole.cells))  # just as many as there are
    assert unsmooth.measure(model, data).per_sample is not None
    assert parts[0].merge(parts[1]).per_sample is not None


def test_samples_without_keys_are_not_kept_even_if_later_ones_have_them() -> None:
    known = torch.tensor([1, 2])
    for strange in (None, torch.tensor([1, 2, 3])):
        recorder = Recorder()
        for keys in (known, strange, known):
            recorder.add(keys, [("p", "m", "all")], np.zeros((1, 2)))
        assert recorder.result() is None


def test_values_that_unpack_to_more_than_a_measurement_keeps_are_not_unpacked() -> None:
    """A file of 8 MB took 13 GB: zeros pack a thousandfold."""
    bomb = base64.b64encode(zlib.compress(bytes(8 * MOST_VALUES + 8))).decode()
    with pytest.raises(CheckpointError, match=r"damaged \(expected a whole stream of at most 16,777,216 bytes\)"):
        PerSample.from_json({"keys": bomb, "values": bomb}, [("a",)])


def test_as_many_values_as_a_measurement_keeps_are_unpacked() -> None:
    addresses = [("a", str(i)) for i in range(2)]
    most = PerSample(tuple(addresses), np.arange(MOST_VALUES // 2), np.zeros((2, MOST_VALUES // 2)))
    assert len(PerSample.from_json(most.to_json(), addresses)) == MOST_VALUES // 2


def test_samples_of_a_model_whose_tokens_come_first_are_kept_and_paired() -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False).eval()
    batches = [torch.randn(5, 3, 8), torch.randn(4, 2, 8)]  # (token, batch, dim)
    found = [unsmooth.measure(encoder, given, "hfc_lfc") for given in (batches, batches, batches[1:], batches[:1] * 2)]
    kept = [m.per_sample for m in found]
    assert [0 if each is None else len(each) for each in kept] == [5, 5, 2, 6]
    assert set(unsmooth.compare(found[0], found[1])["interval"]) == {"paired"}
    assert unsmooth.compare(found[0], found[2])["pairs"].tolist() == [2] * len(found[0].cells)
    assert set(unsmooth.compare(found[1], found[3])["interval"]) == {"Welch"}
    x = batches[0][:, 1].double()
    ratio = unsmooth.hfc_lfc_ratio(x)
    assert kept[0] is not None
    assert kept[0][next(iter(found[0].cells))][1] == pytest.approx(float(ratio))
