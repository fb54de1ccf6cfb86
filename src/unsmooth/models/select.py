"""Which layers: by word, index, slice, or the name of their attention module."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn

from unsmooth.errors import OptionError
from unsmooth.models.view import LayerView

#: `layers=`: a pattern, or a list of indices (negative ones count from the end) and patterns.
Layers = str | Sequence[int | str]

_WORDS: dict[str, Callable[[int], slice]] = {
    "all": lambda count: slice(None),
    "first-half": lambda count: slice(0, count // 2),
    "second-half": lambda count: slice(count // 2, None),
    "alternate": lambda count: slice(0, None, 2),
}


def attention_names(model: nn.Module, layers: Iterable[LayerView]) -> list[str]:
    """Where each layer's attention module is in the model; a shared one has the same name in each of its passes."""
    paths = {id(module): path for path, module in model.named_modules()}
    return [paths[id(layer.attention)] for layer in layers]


def select_layers(layers: Layers, names: Sequence[str]) -> list[int]:
    """Indices of the selected layers, in order; at least one.

    A pattern is a word (`all`, `first-half`, `second-half`, `alternate`), an index, a slice such as `"2:10:2"`, a shell
    pattern on the attention modules' names, or several of these with commas.

    >>> [select_layers(text, ["a", "b", "c", "d"]) for text in ("first-half", "1::2", "-1", "0, 2:")]
    [[0, 1], [1, 3], [3], [0, 2, 3]]
    """
    given = layers.split(",") if isinstance(layers, str) else layers
    if not isinstance(given, Iterable):
        raise OptionError(f"layers {layers!r}: expected a list such as [{layers!r}], or a pattern such as 'all'")
    chosen: set[int] = set()
    for entry in given:
        chosen.update(_matching(entry.strip(), names) if isinstance(entry, str) else [_index(entry, len(names))])
    if not chosen:
        raise OptionError(f"layers {layers!r} selects none of this model's layers 0 to {len(names) - 1}")
    return sorted(chosen)


def _matching(pattern: str, names: Sequence[str]) -> Sequence[int]:
    count = len(names)
    if pattern in _WORDS:
        return range(count)[_WORDS[pattern](count)]
    if ":" in pattern:
        return range(count)[_slice(pattern)]
    if pattern.removeprefix("-").isdecimal():
        return [_index(int(pattern), count)]
    chosen = [i for i, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not chosen:
        raise OptionError(
            f"layers pattern {pattern!r} matches no layer: expected {', '.join(map(repr, _WORDS))}, an index from 0 to "
            f"{count - 1}, a slice such as '0:6', or a shell pattern on names like {names[0]!r}"
        )
    return chosen


def _index(entry: object, count: int) -> int:
    # True and False are integers to Python, but a list of them is meant as a mask.
    if isinstance(entry, bool) or not hasattr(entry, "__index__"):
        raise OptionError(f"layers lists {entry!r}: expected indices 0 to {count - 1}, or names")
    index = operator.index(entry)
    if not -count <= index < count:
        raise OptionError(f"layer {index} does not exist: this model has layers 0 to {count - 1}")
    return index % count


def _slice(text: str) -> slice:
    try:
        found = slice(*(int(part) if part else None for part in text.split(":")))
        found.indices(1)  # refuses a step of 0
    except (ValueError, TypeError):
        raise OptionError(f"layers slice {text!r} is not of the form 'start:stop:step' with integers") from None
    return found
