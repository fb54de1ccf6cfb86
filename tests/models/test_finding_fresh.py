"""Rows found of fresh models, whose norms and LayerScales are all alike, and norms under names of one's own."""

from __future__ import annotations

import pytest
import torch
from handwritten import VOCAB, D, Mixer, Words, random_weights
from torch import Tensor, nn

import unsmooth
from unsmooth.errors import WeightsError
from unsmooth.models import find_family, register_family, unregister_family, view
from unsmooth.models.weights import norm_kind, norm_parameters


class Rms(nn.Module):
    """An RMSNorm whose name and weight are its author's own, and whose epsilon is not to be read."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.g


class Annotated(nn.Module):
    """A LayerNorm with the Annotated Transformer's names."""

    def __init__(self) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.a_2 * centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-6) + self.b_2


class RMSNorm(Rms):
    """By its name a normalisation, by its values none."""

    def forward(self, x: Tensor) -> Tensor:
        return x / x.abs().amax(-1, keepdim=True) * self.g


class Scaled(nn.Module):
    """Two LayerScales that are equal at the start, the second one declared first."""

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.second, self.first = (nn.Parameter(torch.full((D,), 1e-5)) for _ in range(2))
        self.mix, self.n1, self.n2 = Mixer(True, False), norm(), norm()
        self.think = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first * self.mix(self.n1(x))
        return x + self.second * self.think(self.n2(x))


def fresh(norm: type[nn.Module]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = Words(lambda: Mixer(True, False), layers=(Scaled(norm) for _ in range(3)))
    return model.eval(), torch.randint(VOCAB, (2, 9))


class Named(Rms):
    """Gives its features by name."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {"x": super().forward(x)}


@pytest.mark.parametrize("norm", [Rms, Annotated])
def test_a_row_of_a_fresh_model_holds_for_the_trained_one(norm: type[nn.Module]) -> None:
    model, ids = fresh(norm)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    row = find_family(model, ids)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    try:
        register_family(row)
        random_weights(model)
        v = view(model)
        assert [getattr(row.points[point], "times", "") for point in ("attn", "mlp")] == ["first", "second"]
        assert {p.rpartition(".")[2] for p in v.points if p.startswith("blocks.1.")} >= {"norm1", "norm2", "mid"}
        for layer in v.layers:
            (weight, *_), folded = layer.block.n1.parameters(), layer.weights().norm
            assert folded is not None
            assert folded.weight is not None
            torch.testing.assert_close(folded.weight, weight, rtol=0, atol=0)
        frame = unsmooth.explain(model, [ids]).frame()
        assert frame["frozen_hfc"].to_numpy() == pytest.approx(frame["measured_hfc"].to_numpy(), abs=1e-6)
    finally:
        unregister_family("found")


def test_what_only_calls_itself_a_norm_is_not_folded() -> None:
    model, ids = fresh(RMSNorm)
    assert find_family(model, ids).attention is None
    row = find_family(fresh(Rms)[0], ids)  # as somebody might write it for both
    try:
        register_family(row)
        with pytest.raises(WeightsError, match=r"RMSNorm gives something else than the rms norm .* \(off by 0\.\d+\)"):
            unsmooth.explain(model, [ids])
    finally:
        unregister_family("found")


@pytest.mark.parametrize(
    ("forgotten", "told"),
    [
        (
            "norm",
            "what attention works on is not the block's input .off by .*name what stands between them .* .norm of",
        ),
        ("scale", "what is added is not what attention gives .off by .*out_norm or scale of AttentionRow"),
    ],
)
def test_what_a_row_forgets_around_attention_is_not_left_out_of_h(forgotten: str, told: str) -> None:
    model, ids = fresh(Rms)
    row = find_family(random_weights(model), ids)
    assert row.attention is not None
    assert getattr(row.attention, forgotten)
    try:
        register_family(row.like("found", attention={forgotten: ()}))
        unsmooth.measure(model, [ids])
        with pytest.raises(WeightsError, match=told):
            unsmooth.explain(model, [ids])
    finally:
        unregister_family("found")


def test_values_tell_what_a_name_does_not() -> None:
    assert [norm_kind(norm()) for norm in (Rms, Annotated)] == ["rms", "layer"]
    others = (nn.Linear(D, D), nn.PReLU(D), nn.BatchNorm1d(D), nn.BatchNorm2d(D), nn.GroupNorm(1, D), Named())
    assert [norm_kind(part) for part in others] == [None] * 6


def test_a_norm_with_more_parameters_than_two_is_refused() -> None:
    norm = Annotated()
    norm.tilt = nn.Parameter(torch.ones(D))
    with pytest.raises(WeightsError, match=r"Annotated has tilt, expected a weight \(weight, gamma.*cannot be folded"):
        norm_parameters(norm)
