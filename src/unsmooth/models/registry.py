"""The rows, and finding the one that fits a model."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import torch
from torch import nn

from unsmooth.errors import NoRowError, UnknownModelError
from unsmooth.models.families import FAMILIES
from unsmooth.models.families.refusals import REFUSED
from unsmooth.models.family import Family, class_name, is_one_of
from unsmooth.models.taps import find
from unsmooth.models.wrappers import unwrapped

_ALIKE = 0.75  # names of classes that resemble each other so much are worth naming: GPT2ModelNew and GPT2Model
_FAMILIES: list[Family] = list(FAMILIES)
_OF_ONE: WeakKeyDictionary[nn.Module, Family] = WeakKeyDictionary()


def register_family(family: Family) -> Family:
    """Add a family, or replace the one of the same name; later ones are tried first. `Family` says what a row holds."""
    _FAMILIES[:] = [family, *(known for known in _FAMILIES if known.name != family.name)]
    return family


def keep_for(model: nn.Module, family: Family) -> None:
    """A row of this model alone: another one of its class may have its norms elsewhere."""
    _OF_ONE[model] = family


def kept_for(model: nn.Module) -> Family | None:
    """The row of this model alone."""
    return _OF_ONE.get(model)


def unregister_family(name: str) -> None:
    """Take a family out again."""
    _FAMILIES[:] = [known for known in _FAMILIES if known.name != name]


def families() -> tuple[Family, ...]:
    """All rows, in the order in which they are tried."""
    return tuple(_FAMILIES)


def is_own(family: Family) -> bool:
    """Whether somebody registered this row, or made it from another: it does not come with unsmooth."""
    return all(family is not known for known in FAMILIES)


def match(model: nn.Module) -> tuple[str, nn.Module, Family]:
    """The path of the backbone inside the model, the backbone, and its family."""
    if (own := kept_for(model)) is not None:
        return "", model, own
    found = list(_outermost(model))
    fitting = [(path, part, row) for path, part, rows in found for row in rows[:1]]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(f"{path or 'itself'} ({row.name})" for path, _, row in fitting)
        example = fitting[0][0]
        raise UnknownModelError(
            f"{type(model).__name__} holds {len(fitting)} transformers: {listed}. Expected one: pass the one to look "
            f"at, for example model.get_submodule({example!r}), on the command line hf:NAME#{example}"
        )
    _refuse_program(model)
    _refuse(model)
    if found:
        path, part, _ = found[0]
        raise _blocks_do_not_fit(path, part)
    raise _no_family(model)


def towers(model: nn.Module) -> list[str]:
    """Paths of the transformers inside a model, its own being empty.

    >>> towers(nn.ModuleDict({"text": nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 1)}))
    ['text']
    """
    return [path for path, _, rows in _outermost(model) if rows]


def _outermost(model: nn.Module) -> Iterator[tuple[str, nn.Module, list[Family]]]:
    """Modules whose class some row names, not looking inside one already found."""
    taken: list[str] = []
    for path, part in model.named_modules():
        if any(path.startswith(f"{above}.") or above == "" for above in taken):
            continue
        named = [row for row in _FAMILIES if is_one_of(part, row.classes)]
        if named:
            taken.append(path)
            yield path, part, [row for row in named if _blocks_fit(row, part)]


def _blocks_fit(row: Family, backbone: nn.Module) -> bool:
    return _classes_fit(row, backbone) and all(
        find(block, path) == value for block in blocks_of(row, backbone) for path, value in row.when.items()
    )


def _classes_fit(row: Family, backbone: nn.Module) -> bool:
    blocks = blocks_of(row, backbone)
    return bool(blocks) and all(not row.block_classes or is_one_of(block, row.block_classes) for block in blocks)


def blocks_of(row: Family, backbone: nn.Module) -> list[nn.Module]:
    """The blocks in execution order; one that is used again appears again."""
    listed = find(backbone, row.blocks)
    entries = [unwrapped(part) for part in listed] if isinstance(listed, nn.ModuleList | nn.Sequential) else []
    if row.passes is not None and entries:
        passes = int(find(backbone, row.passes) or 0)
        entries = [entries[int(i / (passes / len(entries)))] for i in range(passes)]
    if row.inner is None:
        return entries
    return [unwrapped(block) for entry in entries for block in find(entry, row.inner)]


def _refuse_program(model: nn.Module) -> None:
    """A program that was made of a model has neither its classes nor its modules' calls."""
    traced = "torch.fx" in sys.modules and isinstance(model, sys.modules["torch.fx"].GraphModule)
    if traced or isinstance(model, torch.jit.ScriptModule):
        raise UnknownModelError(
            f"{type(model).__name__} is a program that torch traced or exported from a model (torch.jit, torch.fx, "
            "torch.export), which no longer calls its blocks as modules: give the model that it was made of"
        )


def _refuse(model: nn.Module) -> None:
    for path, part in model.named_modules():
        for refused in REFUSED:
            if is_one_of(part, refused.classes):
                where = f" (at {path!r})" if path else ""
                raise UnknownModelError(
                    f"{type(model).__name__} is not supported: {type(part).__name__}{where} {refused.reason}"
                )


def _blocks_do_not_fit(path: str, backbone: nn.Module) -> UnknownModelError:
    rows = [row for row in _FAMILIES if is_one_of(backbone, row.classes)]
    kinds = sorted({type(block).__name__ for row in rows for block in blocks_of(row, backbone)})
    nearly = [row for row in rows if _classes_fit(row, backbone)]  # so it is their `when` that does not hold
    fact = (
        f"{type(backbone).__name__}{f' at {path!r}' if path else ''} looks like "
        f"{' or '.join(row.name for row in rows)}, but its blocks do not: "
        f"found {', '.join(kinds) or 'no blocks'}{_unmet(nearly)}."
    )
    remedy = "Describe it with register_family(Family(...))"
    return UnknownModelError(f"{fact} {remedy}") if nearly else NoRowError(fact, remedy)


def _unmet(rows: list[Family]) -> str:
    conditions = [" and ".join(f"{path} = {value}" for path, value in row.when.items()) for row in rows]
    if not conditions:
        return ""
    return (
        f", expected {' or '.join(conditions)} (an option of the configuration that leaves the weights as they are can "
        "be set: --model-option NAME=VALUE)"
    )


def _no_family(model: nn.Module) -> NoRowError:
    names = {class_name(type(part)).partition(".")[2] for part in model.modules()}
    known = {
        (c if isinstance(c, str) else class_name(c)).partition(".")[2]: row.name
        for row in _FAMILIES
        for c in row.classes
    }
    scored = sorted(
        ((difflib.SequenceMatcher(None, a.lower(), b.lower()).ratio(), known[b]) for a in names for b in known),
        reverse=True,
    )
    near = list(dict.fromkeys(name for score, name in scored if score >= _ALIKE))[:3]
    name = f"{type(model).__module__}.{type(model).__qualname__}"
    if not near and not any("attention" in part.lower() or "transformer" in part.lower() for part in names):
        return NoRowError(
            f"no family matches {name}, and none of its modules is an attention or a Transformer by its name: points, "
            "H and attention are those of Transformers.",
            f"If it is one: {_FIND}",
        )
    nearest = f" Nearest families: {', '.join(near)}." if near else ""
    return NoRowError(f"no family matches {name}.{nearest}", f"Give it one: {_FIND}; docs/models.md has all families")


_FIND = (
    "a row is found by running the model on a batch, if its blocks are x + attn(norm(x)), x + mlp(norm(x)), both with "
    "the norms behind the sums, or x + attn(norm(x)) + mlp(norm(x)): "
    "unsmooth.register_family(unsmooth.find_family(model, batch)), which the command line does by itself. Other blocks "
    "can be described by one row of names (docs/families.md)"
)
