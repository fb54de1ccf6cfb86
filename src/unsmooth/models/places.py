"""A row that names a place which is not in the model is wrong: it is refused, with what is there instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from unsmooth.errors import UnknownModelError
from unsmooth.models.family import Family
from unsmooth.models.taps import Paths, Tap, candidates, find

# What a model may lack although its row names it: LayerScale, grouped queries, a final norm. Everything else that a
# row names is there in every model of its family.
_OF_ATTENTION = ("module", "heads", "norm", "out_norm", "post_norm")


def check_places(family: Family, backbone: nn.Module, blocks: Sequence[nn.Module]) -> None:
    """UnknownModelError for the first named place that is missing."""
    for what, paths in _named(family):
        for index, block in enumerate(blocks):
            _check(family, what, paths, block, f"layer {index}")
    if family.embed:
        _check(family, "embed", _paths(family.embed), backbone, "the model")


def _named(family: Family) -> Iterator[tuple[str, tuple[str, ...]]]:
    for point, taps in family.points.items():
        yield f"the point {point!r}", _paths(taps)
    if family.attention is not None:
        for name in _OF_ATTENTION:
            paths: Paths = getattr(family.attention, name)
            if paths:
                yield f"the attention's {name}", candidates(paths)


def _paths(taps: Tap | tuple[Tap, ...]) -> tuple[str, ...]:
    return tuple(tap.path for tap in ((taps,) if isinstance(taps, Tap) else taps))


def _check(family: Family, what: str, paths: tuple[str, ...], root: nn.Module, name: str) -> None:
    if not paths or any(path == "" or find(root, path) is not None for path in paths):
        return
    tried = " or ".join(map(repr, paths))
    raise UnknownModelError(
        f"family {family.name!r}: its row takes {what} at {tried}, which {name} ({type(root).__name__}) does not have. "
        f"{_there(root, paths[0])}. Correct the row (register_family replaces one of the same name)"
    )


def _there(root: nn.Module, path: str) -> str:
    """What stands at the deepest part of the path that exists."""
    reached, owner = "", root
    for name in path.split("."):
        inner = getattr(owner, name, None)
        if not isinstance(inner, nn.Module):
            break
        reached, owner = f"{reached}.{name}".lstrip("."), inner
    names = [child for child, _ in owner.named_children()]
    where = f"{reached!r} ({type(owner).__name__})" if reached else type(owner).__name__
    return f"{where} has {', '.join(names) or 'no modules'}"
