"""A pickle whose reader fails in an unforeseen way is an error with the file's name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from unsmooth.errors import CheckpointError
from unsmooth.sources.state_files import read_state


def test_any_failure_of_the_reader_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.ones(2)}, path)
    assert torch.equal(read_state(path)["w"], torch.ones(2))

    def fails(*_: object, **__: object) -> None:
        raise TypeError("unhashable type: 'collections.OrderedDict'")

    monkeypatch.setattr(torch, "load", fails)
    with pytest.raises(CheckpointError, match=r"weights\.pt is truncated, of another kind"):
        read_state(path)
