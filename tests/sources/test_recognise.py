"""Two models of one class whose configurations differ: each is read by its own row."""

from __future__ import annotations

import pytest
import torch
from handwritten import VOCAB, D, Layer, Mixer, Words, random_weights
from torch import Tensor, nn

import unsmooth
from unsmooth.models import registry
from unsmooth.sources.recognise import recognise


class Behind(Layer):
    """Attention with a norm on its output, or with nothing there, as an option says."""

    def __init__(self, normed: bool) -> None:
        super().__init__(Mixer(True, True), lambda: nn.LayerNorm(D), False, False)
        self.behind = nn.LayerNorm(D) if normed else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.behind(self.mix(self.n1(x)))
        return x + self.think(self.n2(x))


def model(normed: bool) -> nn.Module:
    torch.manual_seed(0)
    return random_weights(Words(lambda: nn.Identity(), layers=[Behind(normed) for _ in range(2)]))


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["normed-first", "normed-last"])
def test_each_model_is_explained_by_the_row_that_was_found_on_it(
    order: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_FAMILIES", [*registry.families()])
    ids = torch.randint(VOCAB, (2, 9))
    both = {normed: model(normed) for normed in order}
    rows = {normed: recognise(each, [ids]) for normed, each in both.items()}  # all of them before the first is read
    for normed, each in both.items():
        row = rows[normed]
        assert row is not None
        assert row.attention is not None
        assert row.attention.out_norm == ("behind" if normed else ())
        assert recognise(each, [ids]) is None
        frame = unsmooth.explain(each, [ids]).frame()
        assert frame["frozen_hfc"].to_numpy() == pytest.approx(frame["measured_hfc"].to_numpy(), abs=1e-6)


def test_a_row_that_was_found_before_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_FAMILIES", [*registry.families()])
    ids = torch.randint(VOCAB, (2, 9))
    assert [recognise(model(True), [ids]) is None for _ in range(3)] == [False, True, True]
