"""Words of the command line as values: devices, dtypes, numbers, arguments of a constructor."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from unsmooth.errors import OptionError, first_line

if TYPE_CHECKING:
    import torch

Number = TypeVar("Number", int, float)
_DTYPES = ("float32", "bfloat16", "float16", "float64", "stored")


def device_named(name: str) -> torch.device:
    """A torch device; `auto` takes the GPU when there is one."""
    import torch

    from unsmooth.sources.provenance import default_device

    if name == "auto":
        return torch.device(default_device())
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"device {name!r} cannot be used here ({first_line(error)}): try cpu") from error
    return device


def dtype_named(name: str) -> torch.dtype | None:
    """A floating dtype by its name; None for the one in which weights are stored."""
    import torch

    if name not in _DTYPES:
        raise OptionError.unknown("dtype", name, _DTYPES)
    if name == "stored":
        return None
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def numbers(option: str, text: str, number: Callable[[str], Number], example: str) -> list[Number]:
    """Numbers of one type, with commas.

    >>> numbers("--strengths", "0.5, 1", float, "0.25,0.5,1")
    [0.5, 1.0]
    """
    try:
        return [number(part) for part in text.split(",")]
    except ValueError:
        kind = "whole numbers" if number is int else "numbers"
        raise OptionError(f"{option} {text!r}: expected {kind} with commas, such as {example}") from None


def key_values(pairs: Sequence[str]) -> dict[str, Any]:
    """`["img_size=518", "name=x"]` as a dict; values are Python literals where they can be.

    >>> key_values(["img_size=518", "pool=token"])
    {'img_size': 518, 'pool': 'token'}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise OptionError(f"expected an option as KEY=VALUE (img_size=64), got {pair!r}")
        try:
            found[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[key] = value
    return found
