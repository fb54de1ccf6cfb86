"""Which mode each controlled layer has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unsmooth.control.bounds import SIGNS
from unsmooth.errors import OptionError

#: `mode=`: one for all, one per selected layer, or by layer index; "plain" leaves a layer alone.
Mode = str | Sequence[str] | Mapping[int, str]

PLAIN = "plain"


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
