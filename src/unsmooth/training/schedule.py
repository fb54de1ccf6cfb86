"""The learning rate of every step, known before the first one."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float32
from torch import Tensor

from unsmooth.training.recipes import Recipe


def learning_rates(recipe: Recipe, steps_per_epoch: int, epochs: int) -> Float32[Tensor, step]:
    """Linear warm-up, then half a cosine down to zero.

    A run of more or fewer `epochs` than the recipe's, as `--same-steps` makes it, warms up for the same share of them.

    >>> rates = learning_rates(Recipe("x", lr=1.0, epochs=3, warmup_epochs=1), steps_per_epoch=4, epochs=3)
    >>> [round(float(r), 2) for r in rates]
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.96, 0.85, 0.69, 0.5, 0.31, 0.15, 0.04]
    """
    total = epochs * steps_per_epoch
    warm = round(total * recipe.warmup_epochs / recipe.epochs)
    rates = []
    for step in range(total):
        if step < warm:
            rates.append((step + 1) / warm)
        else:
            rates.append(0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm))))
    return recipe.lr * torch.tensor(rates)
