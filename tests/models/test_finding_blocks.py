"""Blocks that are lists of parts, parallel sums, blocks that differ: found where a row can say it, else told why."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from handwritten import (
    HEADS,
    VOCAB,
    Beside,
    D,
    Layer,
    Mixer,
    Normalising,
    OnTokens,
    OwnNorm,
    Pairs,
    Words,
    random_weights,
    thinking,
)
from torch import Tensor, nn
from torch.nn import functional as F

import unsmooth
from unsmooth.errors import UnknownModelError
from unsmooth.models import find_family, hook_points, register_family, replace_points, unregister_family
from unsmooth.models.view import view_as

LISTS: dict[str, Callable[[], list[nn.Module]]] = {
    "norm-in-attention": lambda: [OwnNorm(), thinking(nn.LayerNorm(D))],
    "norm-around": lambda: [Normalising(Mixer(False, False)), Normalising(thinking())],
    "norms-in-the-list": lambda: [nn.LayerNorm(D), Mixer(True, False), nn.LayerNorm(D), thinking()],
}


def layer(cls: type[Layer], post: bool = False) -> nn.Module:
    return cls(Mixer(True, True), lambda: nn.LayerNorm(D), post, False)


def states(model: Pairs, x: Tensor) -> list[Tensor]:
    """The stream before and after every sub-layer, by hooks of our own."""
    found: list[Tensor] = []
    parts = [part for layer in model.layers for part in layer if len(layer) == 2 or isinstance(part, nn.LayerNorm)]
    handles = [part.register_forward_pre_hook(lambda _, args: found.append(args[0])) for part in (*parts, model.norm)]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("parts", LISTS.values(), ids=LISTS)
def test_a_list_of_parts_is_a_block(parts: Callable[[], list[nn.Module]]) -> None:
    torch.manual_seed(0)
    model, x = random_weights(Pairs(parts)), torch.randn(2, 5, D)
    assert isinstance(model, Pairs)
    expected = states(model, x)
    try:
        v = view_as(model, model, register_family(find_family(model, x)))
        seen: dict[str, Tensor] = {}
        with torch.no_grad(), hook_points(v, v.points, lambda point, y: seen.update({point: y})):
            model(x)
        stream = [f"blocks.{i}.{point}" for i in range(3) for point in ("pre", "mid")]
        for point, state in zip([*stream, "blocks.2.post"], expected, strict=True):
            torch.testing.assert_close(seen[point], state, rtol=1e-6, atol=1e-6)
        assert len(unsmooth.explain(model, [x]).frame())
        assert len(unsmooth.attribute(model, [x]).frame())
        sharper = unsmooth.reparametrize(model, "sharpening")
        assert not torch.equal(sharper(x), model.norm(expected[-1]))
    finally:
        unregister_family("found")


def test_what_takes_the_place_of_a_sum_outside_enters_the_next_block() -> None:
    torch.manual_seed(0)
    model, x = random_weights(Pairs(LISTS["norm-in-attention"])), torch.randn(2, 5, D)
    v = view_as(model, model, find_family(model, x))
    new, seen = torch.randn(2, 5, D), {}
    taken = replace_points(v, ["blocks.1.post"], lambda _, y: new)
    with torch.no_grad(), taken, hook_points(v, ["blocks.2.pre"], lambda point, y: seen.update({point: y})):
        model(x)
    torch.testing.assert_close(seen["blocks.2.pre"], new, rtol=0, atol=1e-5)


@pytest.mark.parametrize("random", [True, False], ids=["random", "norms-alike"])
@pytest.mark.parametrize(
    ("build", "placement", "norms"),
    [
        (lambda: Beside(), "parallel", {"norm1": "n1", "norm2": "n2"}),
        (lambda: Beside(think_first=True), "parallel", {"norm1": "n1", "norm2": "n2"}),
        (lambda: Beside(shared=True), "parallel-shared", {"norm1": "n1"}),
        (lambda: layer(OnTokens), "pre", {"norm1": "n1", "norm2": "n2"}),
    ],
    ids=["parallel", "mlp-called-first", "shared", "flattened"],
)  # fmt: skip
def test_sums_of_three_and_mlps_on_lists_of_tokens(
    build: Callable[[], nn.Module], placement: str, norms: dict[str, str], random: bool
) -> None:
    torch.manual_seed(0)
    model, ids = Words(lambda: nn.Identity(), layers=[build() for _ in range(3)]).eval(), torch.randint(VOCAB, (2, 9))
    row = find_family(random_weights(model) if random else model, ids)
    assert row.placement == placement
    taps = {point: taps.path for point, taps in row.points.items() if not isinstance(taps, tuple)}
    assert taps.items() >= {"attn": "mix", "mlp": "think", **norms}.items()
    assert {point for point in row.points if point.startswith("norm")} == norms.keys()
    assert row.causal
    assert row.attention is not None
    assert (row.attention.norm, row.attention.heads) == ("n1", "mix.n_head")
    assert view_as(model, model, row).layers[0].heads == HEADS


def test_a_norm_that_stands_elsewhere_in_some_blocks_is_not_folded() -> None:
    def parts(behind: bool) -> nn.Module:
        return nn.ModuleList([Normalising(Mixer(True, False), behind), thinking(nn.LayerNorm(D))])

    class Mixed(Pairs):
        def __init__(self, *behind: bool) -> None:
            super().__init__(list)
            self.layers = nn.ModuleList(map(parts, behind))

    torch.manual_seed(0)
    x = torch.randn(2, 5, D)
    rows = [find_family(random_weights(Mixed(*where)), x) for where in [(False, False), (True, False), (False, True)]]
    assert [row.attention is not None for row in rows] == [True, False, False]
    assert ["norm1" in row.points for row in rows] == [True, False, False]
    assert all("norm2" in row.points for row in rows)


class Hidden(Layer):
    """The norm in front of the MLP is no module."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.n1(x))
        return x + self.think(F.layer_norm(x, (D,)))


class Backwards(Layer):
    """The MLP comes first."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.think(self.n2(x))
        return x + self.mix(self.n1(x))


class Again(Words):
    """The stack runs twice."""

    def forward(self, ids: Tensor) -> tuple[Tensor, None]:
        x = self.parts["words"](ids)
        for layer in [*self.parts["stack"], *self.parts["stack"]]:
            x = layer(x)
        return self.head(x), None


class Convolved(nn.Module):
    """Tokens are mixed without attention."""

    def __init__(self) -> None:
        super().__init__()
        self.over = nn.Conv1d(D, D, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.over(x.mT).mT


class Sandwich(Layer):
    """With a norm behind the MLP."""

    def __init__(self) -> None:
        super().__init__(Mixer(True, True), lambda: nn.LayerNorm(D), False, False)
        self.behind = nn.LayerNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.n1(x))
        return x + self.behind(self.think(self.n2(x)))


def mixed(*mixers: nn.Module) -> nn.Module:
    layers = [Layer(mixer, lambda: nn.LayerNorm(D), False, False) for mixer in mixers]
    return Words(lambda: nn.Identity(), layers=layers)


def words(cls: type[Layer], *post: bool) -> nn.Module:
    return Words(lambda: nn.Identity(), layers=[layer(cls, where) for where in post])


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: words(Hidden, False, False), "if the MLP works on x \\+ attn.*call its norm as a module of its own"),
        (lambda: words(Backwards, False, False), "what is added first takes nothing from other tokens"),
        (lambda: words(Layer, False, True, False), r"its blocks differ\. In the last, parts\.stack\.2 \(Layer\), "
         r"states are x \+ attn\(norm.*not so \(blocks\.1\.pre \+ blocks\.1\.attn = blocks\.1\.mid does not hold"),
        (lambda: Words(lambda: nn.Identity(), layers=[layer(Layer), Sandwich()]),
         r"its blocks differ\. In the last, .*elsewhere not so \(layer 0 \(Layer\) lacks a part of it\)\. If all"),
        (lambda: mixed(Convolved(), Mixer(True, True), Mixer(True, True)), r"several kinds\. parts\.stack\.2 \(Layer\) "
         r"forms attention matrices over all tokens, parts\.stack\.0 \(Layer\) does not"),
        (lambda: mixed(Mixer(False, True), Convolved()), r"stack\.0 .Layer. forms .* parts\.stack\.1 .Layer. does not"),
        (lambda: Again(lambda: Mixer(True, True)), "modules of parts.stack run several times.*`passes`"),
    ],
    ids=["hidden-state", "mlp-first", "pre-and-post", "sandwich", "convolution", "convolution-last", "twice"],
)  # fmt: skip
def test_what_no_row_can_say_is_told_with_what_to_change(build: Callable[[], nn.Module], told: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(UnknownModelError, match=told):
        find_family(random_weights(build()), torch.randint(VOCAB, (2, 9)))
