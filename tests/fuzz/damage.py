"""Damage to files, drawn from a seed: bytes flipped, cut and moved, JSON with other values in other places."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

#: What a file may say where something else is expected.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**31, 10**30, -0.0, 0.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"),
    "", " ", "0", "nan", "inf", "-inf", "None", "true", "../../x", "/dev/null", "hf-hub:a/b", "a" * 300, "é", "\x00",
    "\x1b[2J", "\ud800", "<script>", "=1+1", "%s%n", "blocks.9.post", "blocks.x.post", "blocks.1.2.3", "embed",
    [], [None], [1, 2, 3], [[1.0, 2.0]], [[]], ["a"], {}, {"a": 1}, {"": None}, [[[[[[]]]]]], {"a": {"a": {"a": {}}}},
)  # fmt: skip


def damaged_json(draw: random.Random, found: Any) -> str:
    """The text of an object with one to three values missing, moved or replaced; now and then cut off."""
    found = copy.deepcopy(found)
    for _ in range(draw.choice((1, 1, 2, 3))):
        found = _mutate(draw, found)
    text = json.dumps(found)
    if draw.random() < 0.1:
        return damaged_bytes(draw, text.encode()).decode("utf-8", "replace")
    return text


def damaged_bytes(draw: random.Random, content: bytes) -> bytes:
    """Bytes flipped, cut, repeated or replaced by zeros."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, length = draw.randrange(len(data) + 1), draw.choice((1, 2, 4, 16, 200))
        how = draw.randrange(5)
        if how == 0 and data:
            data[at % len(data)] = draw.randrange(256)
        elif how == 1:
            del data[at:]
        elif how == 2:
            del data[at : at + length]
        elif how == 3:
            data[at:at] = data[:length]
        else:
            data[at : at + length] = bytes(min(length, len(data) - at))
    return bytes(data)


def _mutate(draw: random.Random, root: Any) -> Any:
    places = list(_places(root))
    if not places or draw.random() < 0.01:
        return copy.deepcopy(draw.choice(ODD))
    # By depth first: the few values at the top matter as much as the thousands below.
    depth = draw.choice(sorted({len(place) for place in places}))
    *path, key = draw.choice([place for place in places if len(place) == depth])
    owner = root
    for step in path:
        owner = owner[step]
    how = draw.randrange(6)
    if how == 0:
        del owner[key]
    elif how == 1 and isinstance(owner, dict):
        owner[draw.choice(("", "x", key.upper(), f"{key} "))] = owner.pop(key)
    elif how == 2 and isinstance(owner, list):
        owner.append(copy.deepcopy(owner[key]))
    elif how == 3:
        *elsewhere, last = draw.choice(places)
        other = root
        for step in elsewhere:
            other = other[step]
        owner[key] = copy.deepcopy(other[last])
    else:
        owner[key] = copy.deepcopy(draw.choice(ODD))
    return root


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items)[:200]:
        yield (*path, key)
        yield from _places(item, (*path, key))
