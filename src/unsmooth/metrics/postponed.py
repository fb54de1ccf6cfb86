"""On a CPU: eigenproblems that wait, so that the threads which solve them do not fight with torch's own.

A forward pass and Gram matrices run on torch's threads, which spin for about 15 ms after each operation before they
sleep; LAPACK on many small matrices runs best on one thread per part of them. In turn at every point, three threads
would share two cores; so the eigenvalues wait for many points together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from unsmooth.metrics.features import Features
from unsmooth.metrics.spectrum import EigenProblem, lapack_eigenvalues
from unsmooth.metrics.tridiagonal import form_sums, one_thread, tridiagonal_form
from unsmooth.metrics.workers import even_slices, spread

LAPACK_USES_THREADS = 512  # rows of a Gram matrix from which one eigenproblem gains from several threads
Key = TypeVar("Key", bound=Hashable)
Problem = tuple[Features, str, EigenProblem]


class Postponed(Generic[Key]):
    """Features by key, reduced to small statistics and the eigenproblems behind these `spectra`.

    Of those in `sums`, sums over the singular values are enough.
    """

    def __init__(self, spectra: Sequence[str], sums: Collection[str] = ()):
        self.spectra, self.sums = tuple(spectra), frozenset(sums)
        self.features: dict[Key, Features] = {}
        self.nbytes = 0

    def add(self, key: Key, f: Features) -> None:
        """Keep what is left of the features, and what metrics hold their spectra against."""
        for kept in ("square", "lfc_square"):  # of some samples of a batch nothing else was computed
            getattr(f, kept)
        self.nbytes += sum(getattr(f, which).gram.nbytes for which in self.spectra)
        f.release()
        self.features[key] = f

    def solve(self) -> dict[Key, Features]:
        """Find all singular values, or their sums, and give the features away."""
        problems = [(f, which, getattr(f, which)) for f in self.features.values() for which in self.spectra]
        sums: dict[int, list[Problem]] = defaultdict(list)
        for f, which, problem in problems:
            if which in self.sums and problem.by_determinants:
                sums[problem.gram.shape[-1]].append((f, which, problem))
        for alike in sums.values():
            _find_sums(alike)
        _find_values([(f, which, problem) for f, which, problem in problems if which not in f.sums])
        done, self.features, self.nbytes = self.features, {}, 0
        return done


def _find_sums(problems: Sequence[Problem]) -> None:
    """Of matrices of one size: their tridiagonal forms in several threads, then the recurrences of all together."""
    parts = [part for *_, problem in problems for part in _parts(problem.gram)]
    with one_thread():
        forms = spread(tridiagonal_form, parts)
    rank = torch.cat([f.rank_bound for f, *_ in problems])
    roots, logs = form_sums(forms, rank)
    sizes = [len(problem.gram) for *_, problem in problems]
    for (f, which, problem), *both in zip(problems, roots.split(sizes), logs.split(sizes), strict=True):
        f.sums[which] = problem.from_root_sums(*both)


def _find_values(problems: Sequence[Problem]) -> None:
    parts = [part for *_, problem in problems for part in _parts(problem.gram)]
    large = any(part.shape[-1] >= LAPACK_USES_THREADS for part in parts)
    found = iter([lapack_eigenvalues(part) for part in parts] if large else spread(lapack_eigenvalues, parts))
    for f, which, problem in problems:
        values = torch.cat([next(found) for _ in _parts(problem.gram)])
        f.spectra[which] = problem.from_eigenvalues(values)


def _parts(gram: Tensor) -> list[Tensor]:
    return [gram[rows] for rows in even_slices(len(gram), torch.get_num_threads())]
