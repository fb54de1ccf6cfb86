"""Keys of samples: the same for the same input whatever its batch, dtype of the model or memory layout."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unsmooth.analysis.measuring import fingerprint
from unsmooth.analysis.measuring.fingerprint import in_chunks, sample_keys
from unsmooth.models.forward import to_model


def keys(batch: Any) -> list[int]:
    """The keys of a batch that the model takes as it is."""
    found = sample_keys(batch, batch)
    assert found is not None
    return found.tolist()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(-5, 5), min_size=3, max_size=3), min_size=2, max_size=20), st.data())
def test_keys_agree_exactly_where_rows_do_in_any_order_and_split(rows: list[list[int]], data: Any) -> None:
    x = torch.tensor(rows, dtype=torch.float32) + 0.1
    whole = keys(x)
    assert len(set(whole)) == len({tuple(row) for row in rows})
    order = data.draw(st.permutations(range(len(rows))))
    assert keys(x[list(order)]) == [whole[i] for i in order]
    cut = data.draw(st.integers(1, len(rows) - 1))
    assert keys(x[:cut]) + keys(x[cut:]) == whole


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_every_dtype_and_size_has_keys_and_one_changed_number_changes_them(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, 5, 7).to(dtype)
    one, two = keys(x)
    assert one == two
    for place in ((0, 0, 0), (2, 4, 6), (1, 2, 3)):
        y = x.clone()
        y[1][place] = 0
        assert keys(y)[0] == one
        assert keys(y)[1] != one


def test_neither_shape_nor_dtype_is_forgotten_but_memory_layout_is() -> None:
    x = torch.randn(2, 3, 4, 4)
    assert keys(x.to(memory_format=torch.channels_last)) == keys(x)
    assert keys(x.reshape(2, 4, 4, 3)) != keys(x)
    assert keys(torch.zeros(1, 4)) != keys(torch.zeros(1, 4, dtype=torch.int32))
    assert keys(torch.zeros(1, 0)) != keys(torch.zeros(1, 1))


def test_rows_may_begin_anywhere_in_memory() -> None:
    wide = torch.randn(5, 9)
    x = wide[:, 1:8]
    whole = keys(x.clone())
    assert keys(x) == whole
    assert [keys(x[i : i + 1]) for i in range(5)] == [[key] for key in whole]
    assert keys(x.clone()[1:]) == whole[1:]
    assert keys(torch.stack([x.clone(), x.clone()])[1, 3:]) == whole[3:]


def split_mix(index: int) -> int:
    """SplitMix64 of a small number, made odd, as Python's own integers give it."""
    z = index * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) | 1


def test_keys_are_those_of_files_that_were_saved_before() -> None:
    ids, mask = torch.tensor([[3, -4, 5]]), torch.tensor([[1, 1, 1]])
    shape = zlib.crc32(b"torch.int64(3,)")
    one, two = (sum(split_mix(i) * x for i, x in enumerate(row[0].tolist(), 1)) + shape for row in (mask, ids))
    expected = (one * 0x5851F42D4C957F2D + two) % 2**64
    assert keys({"input_ids": ids, "attention_mask": mask}) == [expected - (expected >> 63 << 64)]


def test_a_model_in_half_precision_sees_the_same_samples() -> None:
    given_batch = torch.randn(3, 3, 8, 8)
    found = [
        sample_keys(given_batch, to_model(given_batch, torch.nn.Linear(2, 2).to(dtype)))
        for dtype in (torch.float32, torch.bfloat16)
    ]
    assert torch.equal(*found)


def test_what_the_model_does_not_get_does_not_count_and_padding_does() -> None:
    ids, mask = torch.tensor([[4, 5, 6], [4, 5, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    plain = {"input_ids": ids, "attention_mask": mask}
    assert keys({**plain, "special_tokens_mask": 1 - mask, "labels": torch.tensor([0, 1])}) == keys(plain)
    assert keys({"attention_mask": mask, "input_ids": ids}) == keys(plain)
    assert keys({**plain, "position_ids": torch.arange(3)[None], "scale": torch.tensor(2.0)}) == keys(plain)
    assert keys({**plain, "attention_mask": torch.ones_like(mask)})[1] != keys(plain)[1]
    assert keys({"input_ids": ids}) == keys((ids, "label")) == keys(ids)


def test_inputs_that_cannot_be_read_have_no_keys() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    for batch in (torch.randn(2, 2, dtype=torch.complex64), torch.eye(2).to_sparse(), nested, {"inputs": "text"}):
        assert sample_keys(batch, batch) is None


@pytest.mark.parametrize("chunk", [1, 25, 1000])
def test_a_device_multiplies_in_chunks_what_the_processor_does_at_once(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(fingerprint, "CHUNK", chunk)
    words, weights = (torch.randint(-(2**63), 2**63 - 1, shape) for shape in ((7, 10), (10,)))
    assert torch.equal(in_chunks(words, weights), words @ weights)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_gpu_finds_the_same_keys() -> None:
    x = torch.randn(300, 3, 224, 224)
    found = sample_keys(x, x.cuda())
    assert found is not None
    assert found.is_cuda
    assert found.tolist() == keys(x)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_the_same_record_has_the_same_key_beside_longer_ones(side: str, dtype: torch.dtype) -> None:
    def padded(records: list[torch.Tensor], fill: int) -> dict[str, torch.Tensor]:
        longest = max(map(len, records))
        rows, masks = [], []
        for row in records:
            more = longest - len(row)
            width = (0, more) if side == "right" else (more, 0)
            rows.append(torch.nn.functional.pad(row, width, value=fill))
            masks.append(torch.nn.functional.pad(torch.ones(len(row), dtype=torch.int64), width))
        return {"input_ids": torch.stack(rows).to(dtype), "attention_mask": torch.stack(masks)}

    records = [torch.randint(1, 99, (n,)) for n in (5, 9, 2, 9, 7)] + [torch.tensor([3, 0, 0]), torch.tensor([3])]
    alone = [keys(padded([record], 0))[0] for record in records]
    assert len(set(alone)) == len(records)
    assert keys(padded(records, 0)) == alone
    assert keys(padded(records, 77)) == alone
    # without padding they are what they were in version 0.1
    assert (
        alone[0]
        == keys({"input_ids": padded(records[:1], 0)["input_ids"], "attention_mask": torch.ones(1, 5).long()})[0]
    )


def test_a_model_that_writes_to_its_inputs_does_not_change_their_keys() -> None:
    batch = torch.randn(2, 3)
    inputs = to_model(batch, torch.nn.Linear(3, 3))
    inputs.mul_(2)
    assert sample_keys(batch, inputs).tolist() == keys(batch)  # type: ignore[union-attr]
