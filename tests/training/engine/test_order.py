"""The order of sequences: each once a pass, and the same however it is cut into batches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unsmooth.errors import OptionError
from unsmooth.training.engine.order import Order


@given(sequences=st.integers(1, 30), cuts=st.lists(st.integers(0, 25), min_size=1, max_size=8))
def test_batches_of_any_sizes_walk_one_order(sequences: int, cuts: list[int]) -> None:
    order, position, taken = Order(sequences, seed=3), 0, []
    for count in cuts:
        taken.append(order.take(position, count))
        position += count
    assert torch.equal(torch.cat(taken), order.take(0, position))


def test_each_pass_holds_every_sequence_once_and_passes_differ() -> None:
    passes = Order(50, seed=0).take(0, 150).view(3, 50)
    assert torch.equal(passes.sort(1).values, torch.arange(50).expand(3, 50))
    assert len({tuple(p.tolist()) for p in passes}) == 3
    assert not torch.equal(Order(50, seed=1).take(0, 50), passes[0])


def test_nothing_to_order_is_refused() -> None:
    with pytest.raises(OptionError, match="at least one sample"):
        Order(0, 0)
