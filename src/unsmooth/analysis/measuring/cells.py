"""The addresses of numbers in a measurement: where, which metric, which tokens."""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """The address of one number: where, which metric, which tokens."""

    point: str
    metric: str
    tokens: str


class Change(NamedTuple):
    """The address of one change: which reading, which kind of layer, which metric, which tokens."""

    reading: str
    kind: str
    metric: str
    tokens: str


def layer_of(point: str) -> int | None:
    """The index of the block a point lies in.

    >>> layer_of("blocks.3.attn"), layer_of("embed")
    (3, None)
    """
    parts = point.split(".")
    return int(parts[1]) if len(parts) == 3 else None


def same_state(point: str) -> str:
    """What a block takes in is what the one before gave out: `residual` measures it once, under that name.

    >>> same_state("blocks.2.pre"), same_state("blocks.0.pre"), same_state("blocks.0.mid")
    ('blocks.1.post', 'embed', 'blocks.0.mid')
    """
    name, _, kind = point.rpartition(".")
    layer = int(name.rpartition(".")[2]) if kind == "pre" else None
    return point if layer is None else (f"blocks.{layer - 1}.post" if layer else "embed")


def kind_of(point: str) -> str:
    """What a point is: residual stream, a normalisation's output, or what a sub-layer adds."""
    return KINDS_OF_POINTS[point.rsplit(".", 1)[-1]]


KINDS_OF_POINTS = {
    **dict.fromkeys(("embed", "pre", "mid", "post"), "residual"),
    **dict.fromkeys(("attn_sum", "mlp_sum"), "sum"),
    **dict.fromkeys(("norm1", "norm2", "final_norm"), "norm"),
    "attn": "attention",
    "mlp": "mlp",
}
