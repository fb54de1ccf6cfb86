"""Change by kind of layer: the paper's Tables 1–3, in both readings of "change".

`chain`: from each module's own input to the state after it. `residual`: from the residual stream before
the sub-layer to the stream after it. A change is averaged over the layers of one sample, then over samples.
A step is credited to the one module that made it: no step spans a sub-layer and the LayerNorm behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from unsmooth.analysis.measuring.cells import same_state
from unsmooth.errors import OptionError, PointError

READINGS: Mapping[str, str] = {
    "chain": "state after the module minus the module's own input, mean over layers",
    "residual": "residual stream after the sub-layer minus before it, mean over layers",
}
TOGETHER = "Attention + MLP"  # a parallel block adds both in one sum: the stream never passes between them
KINDS = ("LayerNorm", "Attention", "MLP", TOGETHER)

# (reading, placement of the normalisation) -> (from, to, what made the step) within one block, in the order of the
# forward pass. A post-norm block normalises the stream itself: a step of attention ends before the LayerNorm, which
# has its own, and both readings are one.
_POST_NORM = (
    ("pre", "attn_sum", "Attention"),
    ("attn_sum", "mid", "LayerNorm"),
    ("mid", "mlp_sum", "MLP"),
    ("mlp_sum", "post", "LayerNorm"),
)
BLOCK_STEPS: Mapping[tuple[str, str], Sequence[tuple[str, str, str]]] = {
    ("chain", "pre"): (
        ("pre", "norm1", "LayerNorm"),
        ("norm1", "mid", "Attention"),
        ("mid", "norm2", "LayerNorm"),
        ("norm2", "post", "MLP"),
    ),
    ("chain", "post"): _POST_NORM,
    ("chain", "parallel"): (
        ("pre", "norm1", "LayerNorm"),
        ("norm1", "post", TOGETHER),
        ("pre", "norm2", "LayerNorm"),
        ("norm2", "post", TOGETHER),
    ),
    ("chain", "parallel-shared"): (("pre", "norm1", "LayerNorm"), ("norm1", "post", TOGETHER)),
    ("residual", "pre"): (("pre", "mid", "Attention"), ("mid", "post", "MLP")),
    ("residual", "post"): _POST_NORM,
    ("residual", "parallel"): (("pre", "post", TOGETHER),),
    ("residual", "parallel-shared"): (("pre", "post", TOGETHER),),
}


def steps(
    reading: str, placement: str, layers: int, have: Collection[str] | None = None
) -> dict[str, list[tuple[str, str]]]:
    """For each kind, the pairs of points whose difference is a change.

    `have` are the points of the model. A block may lack a norm (ModernBERT's first has none before its attention): it
    then has no step of a LayerNorm there, and the module's own input is the stream.
    """
    if reading not in READINGS:
        raise OptionError.unknown("reading of change", reading, READINGS)
    found: dict[str, list[tuple[str, str]]] = {}
    for i in range(layers):
        lacking: dict[str, str] = {}  # a norm's output -> what stands in its place
        for before, after, kind in BLOCK_STEPS[reading, placement]:
            if kind == "LayerNorm" and have is not None and f"blocks.{i}.{after}" not in have:
                lacking[after] = before
            else:
                pair = (f"blocks.{i}.{lacking.get(before, before)}", f"blocks.{i}.{after}")
                found.setdefault(kind, []).append(pair)
    return found


def change(
    values: Mapping[str, Float[Tensor, " sample"]], pairs: Sequence[tuple[str, str]]
) -> Float[Tensor, " sample"] | None:
    """Per sample, the mean over layers of `after − before`; None when a point was not measured."""
    pairs = measured_pairs(pairs, values)
    if not pairs:
        return None
    total = sum(
        (values[after] - values[before] for before, after in pairs[1:]),
        values[pairs[0][1]] - values[pairs[0][0]],
    )
    return total / len(pairs)


def measured_pairs(pairs: Sequence[tuple[str, str]], points: Collection[str]) -> list[tuple[str, str]]:
    """The pairs by the points that were measured; [] when one was not."""
    found = [(before if before in points else same_state(before), after) for before, after in pairs]
    return found if all(point in points for pair in found for point in pair) else []


def missing(reading: str, placement: str, layers: int, points: Sequence[str]) -> PointError:
    """Why a change cannot be told from the points that were measured."""
    needed = {point for pairs in steps(reading, placement, layers).values() for pair in pairs for point in pair}
    absent = sorted(point for point in needed if point not in points and same_state(point) not in points)
    told = [
        f", or take change_by_kind({other!r}), which these points tell"
        for other in READINGS
        if any(measured_pairs(pairs, points) for pairs in steps(other, placement, layers).values())
    ]
    return PointError(
        f"the {reading!r} change needs points that were not measured, such as {', '.join(absent[:3])}: "
        f"measure with points='all'{''.join(told)}"
    )
