"""Change by kind of layer: the paper's Tables 1–3, in both readings of "change".

`chain`: from each module's own input to the state after it. `residual`: from the residual stream before
the sub-layer to the stream after it. A change is averaged over the layers of one sample, then over samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from unsmooth.errors import OptionError, PointError

READINGS: Mapping[str, str] = {
    "chain": "state after the module minus the module's own input, mean over layers",
    "residual": "residual stream after the sub-layer minus before it, mean over layers",
}
TOGETHER = "Attention + MLP"  # a parallel block adds both in one sum: the stream never passes between them
KINDS = ("LayerNorm", "Attention", "MLP", TOGETHER)

# (reading, placement of the normalisation) -> kind -> (from, to) within one block
_STEPS: Mapping[tuple[str, str], Mapping[str, Sequence[tuple[str, str]]]] = {
    ("chain", "pre"): {
        "LayerNorm": (("pre", "norm1"), ("mid", "norm2")),
        "Attention": (("norm1", "mid"),),
        "MLP": (("norm2", "post"),),
    },
    ("chain", "post"): {
        "LayerNorm": (("attn_sum", "mid"), ("mlp_sum", "post")),
        "Attention": (("pre", "attn_sum"),),
        "MLP": (("mid", "mlp_sum"),),
    },
    ("chain", "parallel"): {
        "LayerNorm": (("pre", "norm1"), ("pre", "norm2")),
        TOGETHER: (("norm1", "post"), ("norm2", "post")),
    },
    ("chain", "parallel-shared"): {"LayerNorm": (("pre", "norm1"),), TOGETHER: (("norm1", "post"),)},
    ("residual", "pre"): {"Attention": (("pre", "mid"),), "MLP": (("mid", "post"),)},
    ("residual", "post"): {"Attention": (("pre", "mid"),), "MLP": (("mid", "post"),)},
    ("residual", "parallel"): {TOGETHER: (("pre", "post"),)},
    ("residual", "parallel-shared"): {TOGETHER: (("pre", "post"),)},
}


def steps(reading: str, placement: str, layers: int) -> dict[str, list[tuple[str, str]]]:
    """For each kind, the pairs of points whose difference is a change."""
    if reading not in READINGS:
        raise OptionError.unknown("reading of change", reading, READINGS)
    return {
        kind: [(f"blocks.{i}.{a}", f"blocks.{i}.{b}") for i in range(layers) for a, b in pairs]
        for kind, pairs in _STEPS[reading, placement].items()
    }


def change(
    values: Mapping[str, Float[Tensor, " sample"]], pairs: Sequence[tuple[str, str]]
) -> Float[Tensor, " sample"] | None:
    """Per sample, the mean over layers of `after − before`; None when a point was not measured."""
    if any(point not in values for pair in pairs for point in pair):
        return None
    total = sum(
        (values[after] - values[before] for before, after in pairs[1:]),
        values[pairs[0][1]] - values[pairs[0][0]],
    )
    return total / len(pairs)


def missing(reading: str, placement: str, layers: int, points: Sequence[str]) -> PointError:
    """Why a change cannot be told from the points that were measured."""
    needed = {point for pairs in steps(reading, placement, layers).values() for pair in pairs for point in pair}
    absent = sorted(needed - set(points))
    return PointError(
        f"the {reading!r} change needs points that were not measured, such as {', '.join(absent[:3])}: "
        "measure with points='all'"
    )
