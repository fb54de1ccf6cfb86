"""What is trained: a recipe, a variant of its model, a seed, a share of the data, and for how long."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field, replace
from typing import Any

from unsmooth.control import Variant
from unsmooth.errors import OptionError
from unsmooth.training.engine.budget import Budget
from unsmooth.training.engine.recipe import Recipe

SEEDS = 2**32


@dataclass(frozen=True)
class Run:
    """One training run; what no run can be is refused before any data is read."""

    recipe: Recipe
    variant: str = "plain"
    seed: int = 0
    fraction: float = 1.0
    same_steps: bool = False  # as many steps as all data would take, instead of as many epochs
    std: float | None = None  # of ψ's initialisation
    subset: int = 0  # which samples the fraction holds
    budget: str | None = None  # 2000 (steps) or 15m, instead of the recipe's own length
    control: Variant = field(init=False, repr=False, compare=False)
    allowed: Budget = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "control", Variant.parse(self.variant))
        object.__setattr__(self, "allowed", Budget.parse(self.budget))
        if not 0 < self.fraction <= 1:
            raise OptionError(f"fraction must lie in (0, 1], got {self.fraction}")
        if self.std is not None and self.control.mode is None:
            raise OptionError(f"std is that of ψ, which the variant {self.variant!r} does not have: leave it out")
        if self.std is not None and not 0 < self.std < math.inf:
            raise OptionError(f"std must be positive and finite, got {self.std}")
        for name in ("seed", "subset"):
            if not 0 <= getattr(self, name) < SEEDS:
                raise OptionError(f"{name} must lie in 0…{SEEDS - 1}, got {getattr(self, name)}")
        if self.subset and self.fraction == 1:
            raise OptionError(f"subset {self.subset} is one of many only below fraction 1: leave it out, or fraction=…")
        if self.same_steps and self.budget is not None:
            raise OptionError("same_steps and a budget both say how long the run is: give one of them")

    @property
    def name(self) -> str:
        """A name for folders and records: the recipe, the share of the data, the variant and the seed."""
        share = "" if self.fraction == 1 else f"-{self.fraction * 100:g}pct"
        share += f"-subset{self.subset}" if self.subset else ""
        std = "" if self.std is None else f"-std{self.std:g}"
        steps = "-steps" if self.same_steps else ""
        budget = "" if self.budget is None else f"-{self.budget}{'steps' if self.allowed.steps else ''}"
        return f"{self.recipe.name}{share}{steps}{budget}-{self.variant}{std}-seed{self.seed}"

    @property
    def short_name(self) -> str:
        """For folders of results: without the budget, and without the seed where it is the first."""
        return replace(self, budget=None).name.removesuffix("-seed0")

    def state(self) -> dict[str, Any]:
        """What a checkpoint must agree with."""
        plain = {k: getattr(self, k) for k in ("variant", "seed", "fraction", "subset", "same_steps", "std")}
        budget = {} if self.budget is None else {"budget": self.budget}
        return {"recipe": self.recipe.as_dict(), **plain, **budget}

    def command(self, total: int | None = None) -> str:
        """The command line that repeats this run; where a clock decided its steps, with as many (`total`)."""
        words = ["unsmooth", "train", self.recipe.standard().name, "--variant", self.variant, "--seed", str(self.seed)]
        words += ["--fraction", str(self.fraction)] if self.fraction != 1 else []
        words += ["--subset", str(self.subset)] if self.subset else []
        words += ["--same-steps"] if self.same_steps else []
        words += ["--std", str(self.std)] if self.std is not None else []
        if self.budget is not None:
            words += ["--budget", str(total or self.budget)]
        for change in self.recipe.changes():
            words += ["--set", change]
        return shlex.join([*words, "--data", "PATH"])
