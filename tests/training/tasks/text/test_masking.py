"""Masks: as many in every sequence, in the stated shares, anywhere."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from unsmooth.training.tasks.text.masking import draw_hidden, hide


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(rows=st.integers(1, 5), length=st.integers(4, 64), share=st.sampled_from([0.15, 0.25, 0.5]))
def test_every_sequence_hides_as_many_and_targets_are_what_stood_there(rows: int, length: int, share: float) -> None:
    ids = torch.randint(10, 100, (rows, length))
    hidden = draw_hidden(rows, length, share, 100, rng())
    inputs, targets = hide(ids, hidden, mask_id=4)
    count = round(share * length)
    assert targets.shape == (rows, count)
    for row, places in enumerate(hidden.positions.tolist()):
        assert len(set(places)) == count
        assert ids[row, places].tolist() == targets[row].tolist()
        others = [i for i in range(length) if i not in places]
        assert torch.equal(inputs[row, others], ids[row, others])
    masked = (inputs.gather(1, hidden.positions) == 4).sum(1)
    assert (masked >= round(0.8 * count)).all()
    assert (masked <= count).all()


def test_the_shares_are_eighty_ten_and_ten() -> None:
    ids = torch.full((4, 400), 7)
    hidden = draw_hidden(4, 400, 0.25, 1_000_000, rng())
    became = hide(ids, hidden, mask_id=4)[0].gather(1, hidden.positions)
    assert ((became == 4).sum(1) == 80).all()
    assert ((became == 7).sum(1) == 10).all()  # a random token is 7 once in a million


def test_every_position_is_hidden_equally_often() -> None:
    counts = torch.zeros(8)
    counts.index_add_(0, draw_hidden(4_000, 8, 0.25, 10, rng()).positions.flatten(), torch.ones(8_000))
    assert (counts - 1_000).abs().max() < 200  # seven standard deviations of 27


def test_a_seed_repeats_the_draws_and_another_does_not() -> None:
    one, two, other = (draw_hidden(3, 20, 0.25, 100, rng(seed)).positions for seed in (5, 5, 6))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
