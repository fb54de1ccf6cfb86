"""What each process of the two-process test does; its own module, so that a spawned process can import it."""

from __future__ import annotations

import torch
from control.cases import FORMS, images, vit
from processes import joined
from torch import nn

from unsmooth.control import control_of, reparametrize


def train_in_parallel(rank: int, folder: str) -> None:
    """Three steps of every form on half of the batch; the first process saves what it reached."""
    torch.set_num_threads(1)
    with joined(rank, folder):
        for form in FORMS:
            _train(rank, folder, form)


def _train(rank: int, folder: str, form: str) -> None:
    model = reparametrize(vit(), form=form, std=0.3)
    if rank == 1:  # DDP must bring every controlled parameter over from the first process
        control_of(model).reset()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(parallel(images(4)[2 * rank : 2 * rank + 2]), torch.arange(2))
        loss.backward()
        optimiser.step()
    if rank == 0:
        torch.save(model.state_dict(), f"{folder}/{form}.pt")
