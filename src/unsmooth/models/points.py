"""The names of points, and choosing among those that a model has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from unsmooth.errors import PointError

if TYPE_CHECKING:
    from unsmooth.models.view import ModelView

_STREAM = ("mid", "post")


def split_point(name: str) -> tuple[int | None, str]:
    """Layer and kind of a point.

    >>> split_point("blocks.3.attn"), split_point("final_norm")
    ((3, 'attn'), (None, 'final_norm'))
    """
    if not name.startswith("blocks."):
        return None, name
    _, index, point = name.split(".")
    return int(index), point


def select_points(v: ModelView, which: str | Iterable[str] = "residual") -> tuple[str, ...]:
    """Points by word, name or pattern, in the order of the forward pass.

    "residual" is every distinct state of the residual stream (embed, then mid and post of each block);
    "all" is every point; names and patterns ("blocks.*.attn") choose among them.
    """
    if not isinstance(which, Iterable):
        raise PointError(f"expected names or patterns of points, 'residual' or 'all', got {which!r}")
    wanted = (which,) if isinstance(which, str) else tuple(which)
    if not wanted:
        raise PointError("no point was asked for: expected at least one, for example 'residual'")
    chosen: set[str] = set()
    for pattern in wanted:
        if pattern == "all":
            found = set(v.points)
        elif pattern == "residual":
            found = _residual(v)
        else:
            found = {point for point in v.points if fnmatchcase(point, pattern)}
        if not found:
            raise PointError(_unknown(v, pattern))
        chosen |= found
    return tuple(point for point in v.points if point in chosen)


def check_points(v: ModelView, points: Iterable[str]) -> tuple[str, ...]:
    """The points as given, without repeats; PointError when the model lacks one or it is not exact now."""
    names = tuple(dict.fromkeys(points))
    have = set(v.points)
    for name in names:
        if name not in have:
            raise PointError(_unknown(v, name))
        if v.model.training and split_point(name)[1] in v.family.eval_only:
            raise PointError(
                f"point {name!r} is not what {v.family.name} adds to its stream in training mode (a functional "
                "dropout follows it): call model.eval() first"
            )
    return names


def _residual(v: ModelView) -> set[str]:
    start = "embed" if "embed" in v.points else "blocks.0.pre"
    return {p for p in v.points if p == start or (p.startswith("blocks.") and split_point(p)[1] in _STREAM)}


def _unknown(v: ModelView, name: str) -> str:
    near = difflib.get_close_matches(name, v.points, n=3)
    kinds = dict.fromkeys(split_point(p)[1] for p in v.points if p.startswith("blocks."))
    outside = [p for p in v.points if not p.startswith("blocks.")]
    shape = f"blocks.{{0..{len(v.layers) - 1}}}.{{{', '.join(kinds)}}}"
    return (
        f"{v.family.name} has no point {name!r}"
        + (f"; nearest: {', '.join(near)}" if near else "")
        + f". It has {', '.join([*outside, shape])}; 'residual' and 'all' choose groups of them"
    )
