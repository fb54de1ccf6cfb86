"""The arms of a study: what is done to a pretrained model before it is fine-tuned, and to its loss.

plain                                       all weights train, nothing else
adapter-sharpening, adapter-smoothing       and an adapter of that sign (`unsmooth.adapt`), which starts at 0
penalty-sharpening, penalty-smoothing       and the distance of H's eigenvalues, with the norm before it and LayerScale
                                            folded in, from that side in the loss
penalty-…-bare                              the same of the weights alone, without folding
…-strong                                    one of these four in a larger dose: the adapter learns ten times as fast,
                                            or the penalty is 10 at the start, whatever the eigenvalues' size
contranorm, featscale, …                    and a published fix
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unsmooth.control import FIXES, adapt, apply_fix
from unsmooth.control.bounds import SIGNS
from unsmooth.control.computed_once import ComputedOnce
from unsmooth.control.modes import PLAIN
from unsmooth.control.penalty import penalty_near
from unsmooth.errors import OptionError
from unsmooth.training.engine.schedule import warmup_cosine

EVERY = 25  # steps for which one look at the eigenvalues serves, to first order
ADDED_LR = 1e-3  # of what an arm adds to the pretrained weights
STRONG, DOSE = "-strong", 10.0
BARE = "-bare"


class OutOfTimeError(Exception):
    """A run that would pass the end of its time was given up."""


def arm_names() -> list[str]:
    """Every arm there is."""
    ours = [f"{kind}-{mode}" for kind in ("adapter", "penalty") for mode in SIGNS]
    bare = [f"penalty-{mode}{BARE}" for mode in SIGNS]
    return [PLAIN, *ours, *(name + STRONG for name in ours), *bare, *FIXES]


@dataclass(frozen=True)
class Arm:
    """One way to fine-tune."""

    name: str = PLAIN
    rank: int = 8
    bound: float = 1.0
    weight: float = 1.0  # of the penalty

    def __post_init__(self) -> None:
        """Refuse a name that is none."""
        if self.name not in arm_names():
            raise OptionError.unknown("arm", self.name, arm_names())

    @property
    def mode(self) -> str | None:
        """The side that the arm pushes to, if it does."""
        return self.name.removesuffix(STRONG).removesuffix(BARE).partition("-")[2] or None

    @property
    def added_lr(self) -> float:
        """The learning rate of what the arm adds."""
        return ADDED_LR * (DOSE if self.name.endswith(STRONG) else 1.0)

    def apply(self, encoder: nn.Module, seed: int) -> None:
        """Change the model in place."""
        if self.name.startswith("adapter-"):
            rng = torch.Generator().manual_seed(seed + 1)
            adapt(encoder, self.mode or "", rank=self.rank, bound=self.bound, generator=rng)
        elif self.name in FIXES:
            apply_fix(encoder, self.name)

    def penalty_near(self, encoder: nn.Module) -> Callable[[], Tensor] | None:
        """What is added to the loss of the next steps, but for its weight."""
        if not self.name.startswith("penalty-"):
            return None
        return penalty_near(encoder, self.mode, folded=not self.name.endswith(BARE))

    def weight_of(self, start: float) -> float:
        """The penalty's weight, for its value at the start."""
        return DOSE / max(start, 1e-12) if self.name.endswith(STRONG) else self.weight


def fit(
    model: nn.Module, groups: list[dict[str, Any]], encoder: nn.Module, arm: Arm, loss: Callable[[int], Tensor],
    steps: int, *, clip: float = 1.0, warmup: float = 0.1, deadline: float = math.inf,
) -> float:  # fmt: skip
    """AdamW with warm-up, a share of the steps, and half a cosine. Returns the mean loss of the last tenth.

    `loss(step)` is the task's. The deadline is one of `time.monotonic()`: OutOfTimeError if it passes.
    """
    optimiser = torch.optim.AdamW(groups, fused=next(model.parameters()).is_cuda)
    tenth = max(1, steps // 10)
    rates = [*warmup_cosine(1.0, steps, max(1, int(warmup * steps))).tolist(), 0.0]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rates.__getitem__)
    tail: list[Tensor] = []
    near, weight = None, 0.0
    model.train()
    for step in range(steps):
        if time.monotonic() > deadline:
            raise OutOfTimeError
        if step % EVERY == 0:
            near = arm.penalty_near(encoder)
            if near is not None and step == 0:
                weight = arm.weight_of(float(near().detach()))
        optimiser.zero_grad(set_to_none=True)
        value = loss(step)
        if step >= steps - tenth:
            tail.append(value.detach())
        (value if near is None else value + weight * near()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        schedule.step()
    model.eval()
    return float(torch.stack(tail).mean())


def parameter_rates(
    model: nn.Module, encoder: nn.Module, pretrained: Iterable[Tensor], lr: float, head_lr: float, weight_decay: float,
    added_lr: float = ADDED_LR,
) -> list[dict[str, Any]]:  # fmt: skip
    """Matrices decay; vectors, and what controls eigenvalues, do not. The head, and what an arm added, learn faster."""
    control = {id(p) for m in model.modules() if isinstance(m, ComputedOnce) for p in m.parameters()}
    inside, before = {id(p) for p in encoder.parameters()}, {id(p) for p in pretrained}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for p in model.parameters():
        rate = lr if id(p) in before else added_lr if id(p) in inside else head_lr
        decay = weight_decay if p.ndim > 1 and id(p) not in control else 0.0
        groups.setdefault((rate, decay), []).append(p)
    return [{"params": found, "lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()]


def chosen_arms(names: Iterable[str]) -> list[Arm]:
    """The arms of these names, plain first: the others are held against it."""
    found = [Arm(name.strip()) for name in names if name.strip()]
    rest = [arm for arm in dict.fromkeys(found) if arm.name != PLAIN]
    return [Arm(), *rest]
