"""Tokens on disk: what is written comes back, and what was cut or changed is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unsmooth.errors import CheckpointError, DataError
from unsmooth.sources.shards import open_shards, write_shards


def pieces(lengths: list[int], vocabulary: int = 50) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(vocabulary, size=length) for length in lengths]


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12), length=st.integers(1, 9), rows=st.integers(1, 4))
def test_sequences_are_the_pieces_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], length: int, rows: int
) -> None:
    folder, ids = tmp_path_factory.mktemp("tokens") / "train", pieces(lengths)
    whole = np.concatenate(ids)
    if len(whole) < length:
        with pytest.raises(DataError, match=f"no sequence of {length} tokens"):
            write_shards(ids, folder, length=length, vocabulary=50, key="k")
        assert not folder.exists()
        return
    shards = write_shards(ids, folder, length=length, vocabulary=50, key="k", shard_bytes=2 * length * rows)
    expected = torch.from_numpy(whole[: len(whole) // length * length].reshape(-1, length))
    assert torch.equal(shards.rows(torch.arange(len(shards))), expected)
    turned = torch.arange(len(shards)).flip(0)
    assert torch.equal(open_shards(folder).rows(turned), expected.flip(0))


def test_large_vocabularies_keep_their_ids(tmp_path: Path) -> None:
    shards = write_shards([np.array([70_000, 1])], tmp_path / "t", length=2, vocabulary=80_000, key="k")
    assert shards.rows(torch.tensor([0])).tolist() == [[70_000, 1]]


def test_an_id_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="id of 9 came from a tokenizer of 9 tokens"):
        write_shards([np.array([9, 1])], tmp_path / "t", length=2, vocabulary=9, key="k")


@pytest.mark.parametrize("damage", ["cut", "changed", "missing"])
def test_a_damaged_shard_is_named(tmp_path: Path, damage: str) -> None:
    write_shards(pieces([40]), tmp_path / "t", length=4, vocabulary=50, key="k")
    path = tmp_path / "t" / "00000.bin"
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            data[:-2] if damage == "cut" else b"\x01\x00" + data[2:] if data[0] != 1 else b"\x02" + data[1:]
        )
    with pytest.raises(CheckpointError, match=r"00000\.bin was cut short or changed .*: delete .*made anew"):
        open_shards(tmp_path / "t")


def test_rows_that_are_not_there_are_refused(tmp_path: Path) -> None:
    shards = write_shards(pieces([8]), tmp_path / "t", length=4, vocabulary=50, key="k")
    with pytest.raises(DataError, match=r"among 0 … 1, got 0 … 2"):
        shards.rows(torch.tensor([0, 2]))


def test_an_interrupted_write_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    def broken() -> object:
        yield np.arange(8)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(broken(), tmp_path / "t", length=2, vocabulary=50, key="k", shard_bytes=4)  # type: ignore[arg-type]
    assert not (tmp_path / "t").exists()
    assert len(write_shards([np.arange(8)], tmp_path / "t", length=2, vocabulary=50, key="k")) == 4
