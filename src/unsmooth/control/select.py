"""Which layers are controlled, and in which mode."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from unsmooth.control.bounds import SIGNS
from unsmooth.errors import OptionError

#: `layers=`: a pattern, or a list of indices (negative ones count from the end) and patterns.
Layers = str | Sequence[int | str]
#: `mode=`: one for all, one per selected layer, or by layer index; "plain" leaves a layer alone.
Mode = str | Sequence[str] | Mapping[int, str]

PLAIN = "plain"
_WORDS: dict[str, Callable[[int], slice]] = {
    "all": lambda count: slice(None),
    "first-half": lambda count: slice(0, count // 2),
    "second-half": lambda count: slice(count // 2, None),
    "alternate": lambda count: slice(0, None, 2),
}


def select_layers(layers: Layers, names: Sequence[str]) -> list[int]:
    """Indices of the selected layers, in order.

    A pattern is a word (`all`, `first-half`, `second-half`, `alternate`), an index, a slice such as `"2:10:2"`, or a
    shell pattern on the attention modules' names.

    >>> [select_layers(text, ["a", "b", "c", "d"]) for text in ("first-half", "1::2", "-1")]
    [[0, 1], [1, 3], [3]]
    """
    count = len(names)
    if not isinstance(layers, str):
        return _listed(layers, names)
    if layers in _WORDS:
        return list(range(count))[_WORDS[layers](count)]
    if ":" in layers:
        return list(range(count))[_slice(layers)]
    if layers.removeprefix("-").isdecimal():
        return [_index(int(layers), count)]
    chosen = [i for i, name in enumerate(names) if fnmatchcase(name, layers)]
    if not chosen:
        raise OptionError(
            f"layers pattern {layers!r} matches no layer: expected {', '.join(map(repr, _WORDS))}, a slice such as "
            f"'0:6', or a shell pattern on names like {names[0]!r}"
        )
    return chosen


def _listed(layers: Sequence[int | str], names: Sequence[str]) -> list[int]:
    if not isinstance(layers, Iterable):
        raise OptionError(f"layers {layers!r}: expected a list such as [{layers!r}], or a pattern such as 'all'")
    chosen: set[int] = set()
    for entry in layers:
        chosen.update(select_layers(entry, names) if isinstance(entry, str) else [_index(entry, len(names))])
    return sorted(chosen)


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


def select_modes(mode: Mode, chosen: Sequence[int]) -> dict[int, str]:
    """Layer index -> mode of every layer that is controlled.

    >>> select_modes({0: "sharpening", 2: "plain"}, [0, 1, 2])
    {0: 'sharpening'}
    """
    if isinstance(mode, str):
        modes = dict.fromkeys(chosen, mode)
    elif isinstance(mode, Mapping):
        modes = dict(mode)
        strangers = sorted(set(modes) - set(chosen), key=repr)
        if strangers:
            raise OptionError(f"mode names layers {strangers}, which `layers` does not select: it selects {chosen}")
    elif not isinstance(mode, Sequence):
        raise OptionError.unknown("mode", mode, [*SIGNS, PLAIN, "a list of them", "{layer: mode}"])
    elif len(mode) != len(chosen):
        raise OptionError(f"mode lists {len(mode)} entries for {len(chosen)} selected layers: give one each")
    else:
        modes = dict(zip(chosen, mode, strict=True))
    for value in modes.values():
        if value not in SIGNS and value != PLAIN:
            raise OptionError.unknown("mode", value, [*SIGNS, PLAIN])
    return {index: modes[index] for index in chosen if modes.get(index, PLAIN) != PLAIN}
