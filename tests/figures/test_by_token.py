"""One example's tokens in colours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from unsmooth.analysis import Subject
from unsmooth.figures.by_token import distance_scale, distance_shares


@pytest.mark.parametrize("own", [False, True], ids=["one-scale", "its-own"])
@pytest.mark.parametrize("count", [16, 128])
def test_a_token_that_is_an_outlier_leaves_colours_to_the_others(
    subjects: list[Subject], count: int, own: bool
) -> None:
    distances = np.stack([np.linspace(0.5, 1.5, count)] * 3).astype(np.float32)
    distances[1:, 0] = 40.0  # as the first token of a decoder
    assert subjects[0].tokens is not None
    view = replace(subjects[0].tokens, distance=distances)
    most = None if own else distance_scale([view])
    shares = distance_shares(view, 2, most)
    assert shares[0] == 1
    assert np.ptp(shares[1:]) > 0.5
    assert (np.diff(shares[1:]) >= 0).all()
