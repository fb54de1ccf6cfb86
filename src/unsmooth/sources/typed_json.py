"""Frozen dataclasses as plain JSON and back, every value checked: what a file claims is not believed."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from unsmooth.errors import CheckpointError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """A dataclass as a dict without its empty fields; `key` in a field's metadata is its name in the file."""
    if dataclasses.is_dataclass(value):
        pairs = ((_key(field), getattr(value, field.name)) for field in dataclasses.fields(value))
        return {key: to_plain(part) for key, part in pairs if part is not None}
    if isinstance(value, Mapping):
        return {key: to_plain(part) for key, part in value.items()}
    return [to_plain(part) for part in value] if isinstance(value, list | tuple) else value


def from_plain(kind: type[T], found: Any, where: str = "", **types: type[Any]) -> T:
    """The dataclass that a dict describes; CheckpointError names the place of a value that is missing or wrong.

    What a later version wrote in addition is left out. `types` says what stands for a generic class's variables.
    """
    if not isinstance(found, Mapping):
        raise wrong_value(where or kind.__name__, "an object", found)
    hints, given = {**_hints(kind), **types}, {}  # type: ignore[arg-type]
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        place = f"{where}.{_key(field)}" if where else _key(field)
        if _key(field) in found:
            given[field.name] = _value(hints[field.name], found[_key(field)], place)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise CheckpointError(f"{place} is missing")
    return kind(**given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _key(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("key", field.name))


def _value(kind: Any, found: Any, place: str) -> Any:
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if found is None and type(None) in inside:
            return None
        (kind,) = (part for part in inside if part is not type(None))
        return _value(kind, found, place)
    if origin is tuple and isinstance(found, list):
        return tuple(_value(inside[0], part, f"{place}[{i}]") for i, part in enumerate(found))
    if origin is dict and isinstance(found, Mapping):
        return {str(key): _value(inside[1], part, f"{place}.{key}") for key, part in found.items()}
    if dataclasses.is_dataclass(kind):
        return from_plain(kind, found, place)  # type: ignore[arg-type]
    if origin is Literal:
        if found in inside:
            return found
        raise wrong_value(place, f"one of {', '.join(map(repr, inside))}", found)
    if origin is None and (type(found) is kind or (kind is float and type(found) is int)):
        return found
    raise wrong_value(place, getattr(kind, "__name__", str(kind)) if origin is None else f"{origin.__name__}", found)


def wrong_value(place: str, expected: str, found: Any) -> CheckpointError:
    """What stands at a place of a file, beside what should."""
    said = repr(found)
    return CheckpointError(f"{place} must be {expected}, got {said if len(said) < 60 else said[:57] + '…'}")
