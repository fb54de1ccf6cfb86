"""The map of layers and heads: its words beside each other."""

from __future__ import annotations

import numpy as np
import pytest
from figures.marks import flat

from unsmooth.figures.by_head import LETTER, heads_panel
from unsmooth.figures.marks import Words

PARTS = ["mean", "n 1", "MLP", "n 2"]


@pytest.mark.parametrize("wide", [346.0, 430.0, 643.0, 1072.0])
@pytest.mark.parametrize("heads", [3, 12, 16])
def test_words_under_columns_do_not_touch(heads: int, wide: float) -> None:
    labels = [*map(str, range(heads)), *PARTS]
    drawing = heads_panel(np.zeros((12, heads + 4)), "exponent", 1.0, labels=labels, wide=wide, numbers=False)
    words = [(mark, x + mark.x) for mark, x, _ in flat(drawing.marks) if isinstance(mark, Words)]
    named = [(mark, x) for mark, x in words if mark.said in PARTS]
    assert [mark.said for mark, _ in named] == PARTS
    half = [(mark.size if mark.turn else LETTER * len(mark.said)) / 2 for mark, _ in named]
    for k in range(3):
        assert named[k + 1][1] - named[k][1] >= half[k] + half[k + 1], (heads, wide)
    assert all(mark.y + (LETTER * len(mark.said) if mark.turn else 0) <= drawing.height for mark, _ in named)
