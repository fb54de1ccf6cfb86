"""The arms of a study: what is done to a pretrained model before it is fine-tuned, and to its loss.

plain                                       all weights train, nothing else
adapter-sharpening, adapter-smoothing       and an adapter of that sign (`unsmooth.adapt`), which starts at 0
penalty-sharpening, penalty-smoothing       and the distance of H's eigenvalues from that side in the loss
contranorm, featscale, …                    and a published fix
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unsmooth.control import PEERS, adapt, apply_fix, spectral_penalty
from unsmooth.control.bounds import SIGNS
from unsmooth.control.once import ComputedOnce
from unsmooth.errors import OptionError
from unsmooth.training.engine.schedule import warmup_cosine

PLAIN = "plain"
EVERY = 25  # steps between two looks at the eigenvalues, whose gradient then counts so many times
ADAPTER_LR = 1e-3


def arm_names() -> list[str]:
    """Every arm there is."""
    return [PLAIN, *(f"{kind}-{mode}" for kind in ("adapter", "penalty") for mode in SIGNS), *PEERS]


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
        return self.name.partition("-")[2] or None

    def apply(self, encoder: nn.Module, seed: int) -> None:
        """Change the model in place."""
        if self.name.startswith("adapter-"):
            rng = torch.Generator().manual_seed(seed + 1)
            adapt(encoder, self.mode or "", rank=self.rank, bound=self.bound, generator=rng)
        elif self.name in PEERS:
            apply_fix(encoder, self.name)

    def penalty(self, encoder: nn.Module, step: int) -> Tensor | None:
        """What is added to the loss of this step."""
        if not self.name.startswith("penalty-") or step % EVERY:
            return None
        return self.weight * EVERY * spectral_penalty(encoder, self.mode)


def fit(
    model: nn.Module, encoder: nn.Module, arm: Arm, loss: Callable[[int], Tensor], steps: int, *, lr: float,
    head_lr: float, weight_decay: float, clip: float = 1.0,
) -> float:  # fmt: skip
    """AdamW with warm-up and half a cosine; `loss(step)` is the task's. Returns the mean loss of the last tenth."""
    optimiser = torch.optim.AdamW(_groups(model, encoder, lr, head_lr, weight_decay))
    tenth = max(1, steps // 10)
    rates = [*warmup_cosine(1.0, steps, tenth).tolist(), 0.0]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, rates.__getitem__)
    tail: list[Tensor] = []
    model.train()
    for step in range(steps):
        optimiser.zero_grad(set_to_none=True)
        value = loss(step)
        if step >= steps - tenth:
            tail.append(value.detach())
        more = arm.penalty(encoder, step)
        (value if more is None else value + more).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        schedule.step()
    model.eval()
    return float(torch.stack(tail).mean())


def _groups(
    model: nn.Module, encoder: nn.Module, lr: float, head_lr: float, weight_decay: float
) -> list[dict[str, object]]:
    """Matrices decay; vectors, and what controls eigenvalues, do not. Head and adapter have rates of their own."""
    control = {id(p) for m in model.modules() if isinstance(m, ComputedOnce) for p in m.parameters()}
    pretrained = {id(p) for p in encoder.parameters()} - control
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for p in model.parameters():
        rate = ADAPTER_LR if id(p) in control else lr if id(p) in pretrained else head_lr
        decay = weight_decay if p.ndim > 1 and id(p) not in control else 0.0
        groups.setdefault((rate, decay), []).append(p)
    return [{"params": found, "lr": rate, "weight_decay": decay} for (rate, decay), found in groups.items()]


def chosen_arms(names: Iterable[str]) -> list[Arm]:
    """The arms of these names, plain first: the others are held against it."""
    found = [Arm(name.strip()) for name in names if name.strip()]
    rest = [arm for arm in dict.fromkeys(found) if arm.name != PLAIN]
    return [Arm(), *rest]
