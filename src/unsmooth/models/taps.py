"""Where a tensor is taken: a module's input or output, found by candidate names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from unsmooth.models.wrappers import unwrapped

Side = Literal["in", "out"]
Paths = str | tuple[str, ...]


@dataclass(frozen=True)
class Tap:
    """One side of the module at `path` (relative to a block or backbone; "" is that module itself).

    A module that a block calls several times (one dropout for attention and MLP) is tapped at its
    `call`-th of `of` calls. `item` picks from a tuple of outputs. `needs` is an attribute without which the
    module does not carry the tensor (Gemma's embedding, in releases that scale it outside). `times` is an attribute
    of the block by which it multiplies the tensor before the sum, where no module does. `copied`: the block adds to
    the tensor in place afterwards. `plus` is a module of the block whose input is added: the sum is written outside,
    in the forward of the model, and no module is given it in the same block.
    """

    path: str
    side: Side = "out"
    call: int = 1
    of: int = 1
    item: int = 0
    needs: str = ""
    times: str = ""
    copied: bool = False
    plus: str = ""


Taps = Tap | tuple[Tap, ...]


def into(path: str, call: int = 1, of: int = 1) -> Tap:
    """What goes into a module."""
    return Tap(path, "in", call, of)


def out(
    path: str, call: int = 1, of: int = 1, item: int = 0, needs: str = "", times: str = "", copied: bool = False
) -> Tap:
    """What comes out of a module."""
    return Tap(path, "out", call, of, item, needs, times, copied)


@dataclass(frozen=True, eq=False)
class Spot:
    """A tap whose module was found."""

    module: nn.Module
    tap: Tap
    factor: Tensor | float | None = None
    plus: nn.Module | None = None

    @property
    def key(self) -> tuple[int, Side]:
        return id(self.module), self.tap.side

    def finished(self, x: Tensor | None, plus: Tensor | None = None) -> Tensor | None:
        """The tensor that was asked for, from the one that passes here and the one that is added to it."""
        if x is None:
            return None
        y = x if self.factor is None else x * self.factor
        y = y if plus is None else y + plus
        return x.clone() if y is x and self.tap.copied else y

    def unfinished(self, y: Tensor, plus: Tensor | None = None) -> Tensor:
        """The tensor that must pass here for `y` to be the one that is asked for."""
        y = y if plus is None else y - plus
        return y if self.factor is None else y / self.factor


def find(root: object, paths: Paths) -> Any:
    """The first of the candidate attribute paths that leads somewhere, else None.

    >>> find(nn.Sequential(nn.Linear(2, 3)), ("layers.0", "0.weight")).shape
    torch.Size([3, 2])
    """
    for path in candidates(paths):
        value: Any = root
        for name in filter(None, path.split(".")):
            value = unwrapped(getattr(value, name, None))
            if value is None:
                break
        if value is not None:
            return value
    return None


def find_spot(root: nn.Module, taps: Taps) -> Spot | None:
    """The first candidate tap whose module exists."""
    for tap in (taps,) if isinstance(taps, Tap) else taps:
        module = find(root, tap.path)
        if isinstance(module, nn.Module) and find(module, tap.needs) is not None:
            return Spot(
                module, tap, find(root, tap.times) if tap.times else None, find(root, tap.plus) if tap.plus else None
            )
    return None


def candidates(paths: Paths) -> tuple[str, ...]:
    """One path or several, as several."""
    return (paths,) if isinstance(paths, str) else paths


def tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Tensor]:
    """The tensors among a call's arguments, in order; the first is the features in every family."""
    return (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))


def tensor_out(output: Any, item: int) -> Tensor | None:
    """The features (item 0) or another item of a module's output; None when it gives no such tensor."""
    if isinstance(output, Tensor):
        return output if item == 0 else None
    if isinstance(output, tuple | list) and len(output) > item and isinstance(output[item], Tensor):
        return output[item]
    return None


def with_tensor_in(
    args: tuple[Any, ...], kwargs: dict[str, Any], new: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments with their first tensor replaced."""
    for i, value in enumerate(args):
        if isinstance(value, Tensor):
            return (*args[:i], new, *args[i + 1 :]), kwargs
    name = next(name for name, value in kwargs.items() if isinstance(value, Tensor))
    return args, {**kwargs, name: new}


def with_tensor_out(output: Any, item: int, new: Tensor) -> Any:
    """A module's output with one of its items replaced.

    >>> with_tensor_out((1, 2, 3), 1, 5)
    (1, 5, 3)
    """
    if isinstance(output, Tensor):
        return new
    changed = [*output[:item], new, *output[item + 1 :]]
    return type(output)(changed) if type(output) in (tuple, list) else type(output)(*changed)
