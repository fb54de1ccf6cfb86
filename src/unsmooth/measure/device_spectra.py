"""Eigenvalues of many Gram matrices on a GPU, a few full launches per forward instead of one per point."""

from __future__ import annotations

from collections import defaultdict

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.measure.cuda_eigenvalues import cuda_eigenvalues
from unsmooth.measure.features import Features
from unsmooth.measure.spectrum import EigenProblem, eigenvalues
from unsmooth.measure.workers import even_slices, spread

PENDING_BYTES = 1 << 28  # of Gram matrices that wait; more are solved before the forward goes on


class DeviceSpectra:
    """Collects eigenproblems and solves them together; the values go to each Features' `spectra`."""

    def __init__(self) -> None:
        self._pending: dict[int, list[tuple[Features, str, EigenProblem]]] = defaultdict(list)
        self._bytes = 0

    def ask(self, features: Features, which: str) -> None:
        """Take over the eigenproblem `which` of these features."""
        problem: EigenProblem = getattr(features, which)
        self._pending[problem.gram.shape[-1]].append((features, which, problem))
        delattr(features, which)
        self._bytes += problem.gram.nbytes
        if self._bytes > PENDING_BYTES:
            self.finish()

    def finish(self) -> None:
        """Solve what is pending."""
        for asked in self._pending.values():
            stacked = torch.cat([problem.gram.flatten(0, -3) for _, _, problem in asked])
            sizes = [problem.leading.numel() for _, _, problem in asked]
            for (features, which, problem), values in zip(asked, solve(stacked).split(sizes), strict=True):
                shaped = values.unflatten(0, problem.leading.shape)
                features.spectra[which] = problem.from_eigenvalues(shaped)
        self._pending.clear()
        self._bytes = 0


def solve(matrices: Float[Tensor, "matrix side side"]) -> Float[Tensor, "matrix side"]:
    """Eigenvalues of positive semidefinite matrices, by the GPU kernel or else on the CPU's threads.

    The second waits for the device; torch.linalg on the GPU would wait too, and is slower at these sizes.
    """
    found = cuda_eigenvalues(matrices) if matrices.is_cuda else None
    if found is not None:
        return found
    host = matrices.cpu()
    parts = spread(eigenvalues, [host[rows] for rows in even_slices(len(host), 4 * torch.get_num_threads())])
    return torch.cat(parts).to(matrices.device)
