"""Recipes: frozen configurations, typed by their defaults; changing one is strict."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from unsmooth.training.engine.run import Run
    from unsmooth.training.engine.task import Task

PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True)
class Recipe(ABC):
    """Everything that decides a training run, except its data, its variant and its seed; one subclass per task.

    Fields are numbers, words, switches or tuples of numbers, each with a default. A number is at least 0 unless `LEAST`
    says otherwise, and at most 1 if it is one of `SHARES`; `CHOICES` lists the words that a field may hold. What is
    `LATER` than the first version is written down only where it is not the default, so that older files still agree.
    """

    name: str
    LEAST: ClassVar[Mapping[str, float]] = MappingProxyType({})
    SHARES: ClassVar[frozenset[str]] = frozenset()
    LATER: ClassVar[frozenset[str]] = frozenset()
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({"precision": PRECISIONS})

    @abstractmethod
    def open(self, run: Run, data: str | Path, device: torch.device, rank: int = 0, world: int = 1) -> Task:
        """Data read and checked, the run's model on the device: what the engine trains."""

    @abstractmethod
    def standard(self) -> Self:
        """The recipe of the registry that this one is a change of."""

    def write_results(self, folder: Path, data: str | Path, target: Path, **options: Any) -> None:
        """What stays of a trained model that is not kept: record, measurement, explanation, scores."""
        raise OptionError(f"the recipe {self.name} has no results but its record: leave --results out")

    def check(self, run: Run, world: int = 1) -> None:
        """Refuse what this task cannot do, before any data is read."""
        del run, world

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise OptionError(f"name={self.name!r} is not of the right type: expected str, as in cifar100")
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.default is not dataclasses.MISSING and not _fits(value, item.default):
                raise _wrong_type(item.name, value, item.default)
            choices = self.CHOICES.get(item.name)
            if choices and value not in choices:
                raise OptionError.unknown(item.name, value, choices)
            self._check_range(item.name, value)

    def _check_range(self, key: str, value: Any) -> None:
        if isinstance(value, str | bool | tuple):
            return
        low = self.LEAST.get(key, 0)
        if value < low:
            raise OptionError(f"{key} must be at least {low}, got {value}")
        if key in self.SHARES and value > 1:
            raise OptionError(f"{key} must lie in [0, 1], got {value}")

    def override(self, changes: Mapping[str, str] | Iterable[str]) -> Self:
        """The same recipe with `key=value` changes; an unknown key or a value of another type is an error.

        Of two changes of one key the later one counts.
        """
        pairs = changes.items() if isinstance(changes, Mapping) else (_split(item) for item in changes)
        fields = {item.name: item for item in dataclasses.fields(self) if item.name != "name"}
        values: dict[str, Any] = {}
        for key, text in pairs:
            if key not in fields:
                raise OptionError.unknown("recipe key", key, fields)
            values[key] = _parse(key, text, getattr(self, key))
        return dataclasses.replace(self, **values)

    def changes(self) -> list[str]:
        """What `override` would have to be given to make this recipe of its standard one."""
        standard, found = self.standard(), []
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name != "name" and value != getattr(standard, item.name):
                text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
                found.append(f"{item.name}={text}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for records and configuration files."""
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not self._is_unused(f)}
        return {key: list(v) if isinstance(v, tuple) else v for key, v in kept.items()}

    def _is_unused(self, item: dataclasses.Field[Any]) -> bool:
        return item.name in self.LATER and getattr(self, item.name) == item.default

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The recipe that `as_dict` wrote; keys of a later version are refused by name."""
        if not isinstance(values, Mapping):
            raise OptionError(f"expected a recipe's keys and values, got {type(values).__name__}")
        known = {item.name for item in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise OptionError.unknown("recipe key", unknown[0], sorted(known))
        if "name" not in values:
            raise OptionError(f"a recipe needs its name: got only {', '.join(sorted(values)) or 'nothing'}")
        plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**plain)


def _fits(value: Any, standard: Any) -> bool:
    """Whether a value has the type of the standard one; whole numbers are numbers, infinity and truth are none."""
    if isinstance(standard, tuple):
        return isinstance(value, tuple) and len(value) == len(standard) and all(map(_fits, value, standard))
    if isinstance(standard, float):
        return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
    return type(value) is type(standard)


def _wrong_type(key: str, value: Any, standard: Any) -> OptionError:
    wanted = f"{len(standard)} numbers a,b,c" if isinstance(standard, tuple) else type(standard).__name__
    return OptionError(f"{key}={value!r} is not of the right type: expected {wanted}, as in {standard!r}")


def _split(item: str) -> tuple[str, str]:
    key, separator, value = item.partition("=")
    if not separator:
        raise OptionError(f"expected key=value, got {item!r}: for example --set lr=3e-4")
    return key.strip(), value.strip()


def _parse(key: str, text: str, old: Any) -> Any:
    """`text` as the type that the recipe's value has; integers may be written 1e3, never 1.5."""
    kind = type(old)
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        if kind is str:
            return text
        if kind is tuple:
            values = tuple(float(part) for part in text.split(","))
            if len(values) != len(old) or not all(map(math.isfinite, values)):
                raise ValueError
            return values
        number = float(text)
        if not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
        return kind(number)
    except (KeyError, ValueError):
        raise _wrong_type(key, text, old) from None
