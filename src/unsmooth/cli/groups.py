"""Options in groups: a verb names a dataclass, whose fields become options of the command line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


def ungrouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclasses as parameters, in their place; their values are put together.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Colour:
    ...     red: int = 1
    ...     blue: int = 2
    >>> def paint(name: str, colour: Colour = Colour(blue=3)) -> None:
    ...     print(name, colour.red, colour.blue)
    >>> list(inspect.signature(ungrouped(paint)).parameters), ungrouped(paint)(name="sky", red=0, blue=9)
    sky 0 9
    (['name', 'red', 'blue'], None)
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {p.name: p.annotation for p in signature.parameters.values() if is_dataclass(p.annotation)}
    flat: list[inspect.Parameter] = []
    for given in signature.parameters.values():
        if given.name not in groups:
            flat.append(given)
            continue
        hints = get_type_hints(groups[given.name], include_extras=True)
        flat += [
            given.replace(name=field.name, annotation=hints[field.name], default=getattr(given.default, field.name))
            for field in fields(groups[given.name])
        ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    run.__signature__ = signature.replace(parameters=flat)  # type: ignore[attr-defined]
    run.__annotations__ = {}  # which would be read instead
    return run
