"""Lists of blocks in a model that was run: modules, or lists of parts that the model's own forward calls in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from unsmooth.models.taps import Tap, Taps
from unsmooth.models.trace import Call, same, within
from unsmooth.models.view import is_called


@dataclass(frozen=True, eq=False)
class Block:
    """One block's calls, with paths below it, and the states before and after it."""

    path: str
    module: nn.Module
    entered: str  # the module that is called first: itself, or the first of its parts
    pre: Tensor
    post: Tensor
    calls: list[Call]

    @property
    def forms_matrices(self) -> bool:
        """Whether a matrix over all tokens was seen in it, as softmax attention has one."""
        tokens = set(self.pre.shape[:2])
        given = (x for c in self.calls for x in (c.given, *c.gave) if x is not None and x.dim() > 2)
        return any(c.matrices for c in self.calls) or any(x.shape[-1] == x.shape[-2] in tokens for x in given)

    def ends(self, state: str, added: Tap) -> dict[str, Taps]:
        """Where `pre` and `post` are seen in a list of parts; `added`, to what goes into `state`, leads to `post`."""
        if is_called(self.module):
            return {}
        first = next(c for c in self.calls if "." not in c.path)
        last = next((c for c in reversed(self.calls) if same(c.gave[0], self.post)), None)
        return {"pre": first.tap("in"), "post": replace(added, plus=state) if last is None else last.tap("out")}


@dataclass(frozen=True, eq=False)
class Stack:
    """A list of blocks, each of which gives features of the shape that it is given. The last one has every norm."""

    path: str
    blocks: tuple[Block, ...]

    @property
    def first(self) -> Block:
        return self.blocks[0]

    @property
    def last(self) -> Block:
        return self.blocks[-1]

    @property
    def classes(self) -> tuple[type, ...]:
        """Of all blocks."""
        return tuple(dict.fromkeys(type(block.module) for block in self.blocks))

    def kinds(self) -> tuple[Block, ...]:
        """The last block that forms matrices over tokens, and the first that does not: one of them, where all agree."""
        with_matrices = [block for block in self.blocks if block.forms_matrices][-1:]
        return (*with_matrices, *[block for block in self.blocks if not block.forms_matrices][:1])


def stacks(model: nn.Module, calls: list[Call]) -> Iterator[Stack]:
    """Lists whose entries each run once and lead from features to features of that shape."""
    every = [*within(calls), calls[-1]]
    for path, part in model.named_modules():
        if isinstance(part, nn.ModuleList | nn.Sequential):
            entries = [(f"{path}.{name}".lstrip("."), entry) for name, entry in part.named_children()]
            blocks = [block for at, entry in entries if (block := _block(at, entry, calls, every)) is not None]
            if blocks and len(blocks) == len(entries) and len({x.shape for b in blocks for x in (b.pre, b.post)}) == 1:
                yield Stack(path, tuple(blocks))


def repeated(model: nn.Module, calls: list[Call]) -> str:
    """A list whose entries run several times in one pass of the model; empty if there is none."""
    times = {c.path: c.of for c in within(calls) if c.given is not None and c.given.dim() == 3}
    for path, part in model.named_modules():
        runs = [times.get(f"{path}.{name}".lstrip("."), 0) for name, _ in part.named_children()]
        if isinstance(part, nn.ModuleList | nn.Sequential) and runs and min(runs) > 1:
            return path
    return ""


def _block(path: str, module: nn.Module, calls: list[Call], every: list[Call]) -> Block | None:
    """What ran at this path, if it ran once."""
    its = [i for i, c in enumerate(every) if (c.path if is_called(module) else c.path.rpartition(".")[0]) == path]
    if not its or any(every[i].of != 1 for i in its):
        return None
    first, last = every[its[0]], every[its[-1]]
    pre = first.given
    if pre is None or pre.dim() != 3:
        return None
    post = last.gave[0] if is_called(module) else _after(every[its[-1] + 1 :], path, pre.shape)
    return (
        None
        if post is None
        else Block(path, module, first.path, pre, post, [_unflattened(c, pre) for c in within(calls, path)])
    )


def _after(later: list[Call], path: str, shape: torch.Size) -> Tensor | None:
    """The state after a list of parts: what the next module is given, or what the module around the list gives."""
    for c in later:
        x = c.gave[0] if f"{path}.".startswith(f"{c.path}." if c.path else "") else c.given
        if x is not None and x.shape == shape:
            return x
    return None


def _unflattened(c: Call, pre: Tensor) -> Call:
    """With batch and token axes again, where a block works on a list of tokens (OPT's MLP)."""

    def whole(x: Tensor | None) -> Tensor | None:
        flat = x is not None and x.dim() == 2 and len(x) == pre.shape[:-1].numel()
        return x.unflatten(0, pre.shape[:-1]) if x is not None and flat else x

    return replace(c, given=whole(c.given), gave=tuple(map(whole, c.gave)))
