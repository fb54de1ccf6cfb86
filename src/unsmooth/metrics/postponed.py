"""On a CPU: eigenproblems that wait, so that the threads which solve them do not fight with torch's own.

A forward pass and Gram matrices run on torch's threads, which spin for about 15 ms after each operation before they
sleep; LAPACK on many small matrices runs best on one thread per part of them. In turn at every point, three threads
would share two cores; so the eigenvalues wait for many points together.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

import torch

from unsmooth.metrics.features import Features
from unsmooth.metrics.spectrum import lapack_eigenvalues
from unsmooth.metrics.workers import even_slices, spread

LAPACK_USES_THREADS = 512  # rows of a Gram matrix from which one eigenproblem gains from several threads
Key = TypeVar("Key", bound=Hashable)


class Postponed(Generic[Key]):
    """Features by key, reduced to small statistics and the eigenproblems behind these `spectra`."""

    def __init__(self, spectra: Sequence[str]):
        self.spectra = tuple(spectra)
        self.features: dict[Key, Features] = {}
        self.nbytes = 0

    def add(self, key: Key, f: Features) -> None:
        """Keep what is left of the features once everything else was computed from them."""
        self.nbytes += sum(getattr(f, which).gram.nbytes for which in self.spectra)
        f.release()
        self.features[key] = f

    def solve(self) -> dict[Key, Features]:
        """Find all singular values, and give the features away."""
        problems = [(f, which, getattr(f, which)) for f in self.features.values() for which in self.spectra]
        parts = [problem.gram[rows] for *_, problem in problems for rows in _parts(problem.gram)]
        large = any(part.shape[-1] >= LAPACK_USES_THREADS for part in parts)
        found = iter([lapack_eigenvalues(part) for part in parts] if large else spread(lapack_eigenvalues, parts))
        for f, which, problem in problems:
            values = torch.cat([next(found) for _ in _parts(problem.gram)])
            f.spectra[which] = problem.from_eigenvalues(values)
        done, self.features, self.nbytes = self.features, {}, 0
        return done


def _parts(gram: torch.Tensor) -> list[slice]:
    return even_slices(len(gram), torch.get_num_threads())
