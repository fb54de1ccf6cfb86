"""What numpy's own BLAS and LAPACK do and torch's does not: products that know they are symmetric, tridiagonal form.

numpy's wheels carry OpenBLAS; `np.matmul(x, x.T)` is its symmetric product, half the work of another one. Its `dsytrd`
is not shown by numpy, and is called by name. Where there is no such library (conda, Apple's Accelerate), or its
routine gives another matrix than it should, `openblas` is None and torch does everything.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
NAMES = ("scipy_{}64_", "scipy_{}_64_", "{}64_", "{}_64_")  # of routines with integers of 64 bits, by numpy's age
PANEL = 64  # columns that LAPACK wants workspace for


class OpenBlas:
    """The library, once it was tried."""

    def __init__(self, library: ctypes.CDLL):
        self._dsytrd = _routine(library, "dsytrd")
        self._get_threads = _routine(library, "openblas_get_num_threads")
        self._set_threads = _routine(library, "openblas_set_num_threads")

    @contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """So many threads for each call, whoever calls; as before afterwards."""
        before = self._get_threads()
        if before == count:
            yield
            return
        self._set_threads(ctypes.c_int(count))
        try:
            yield
        finally:
            self._set_threads(ctypes.c_int(before))

    def tridiagonal(self, matrices: Array) -> tuple[Array, Array]:
        """Diagonals (matrix, side) and off-diagonals (matrix, side − 1) of T = QᵀAQ for symmetric A."""
        count, side = matrices.shape[:2]
        diagonal, off = np.zeros((2, count, side))
        a, d, e, tau, work = (np.zeros(size) for size in ((side, side), side, side, side, PANEL * side))
        n, room, info = ctypes.c_int64(side), ctypes.c_int64(work.size), ctypes.c_int64(0)
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (a, d, e, tau, work)]
        given = [b"L", ctypes.byref(n), pointers[0], ctypes.byref(n), *pointers[1:], ctypes.byref(room)]
        for i, matrix in enumerate(matrices):
            a[:] = matrix  # one place that stays in the cache: it is overwritten
            self._dsytrd(*given, ctypes.byref(info), ctypes.c_size_t(1))  # other Python threads run meanwhile
            if info.value:
                raise RuntimeError(f"dsytrd: argument {-info.value} is wrong")
            diagonal[i], off[i] = d, e
        return diagonal, off[:, :-1]


@cache
def openblas() -> OpenBlas | None:
    """numpy's OpenBLAS if it has one whose routines do what they should, tried once in each process."""
    folder = Path(np.__file__).parent
    for path in sorted([*folder.parent.glob("numpy.libs/*openblas*"), *folder.glob(".dylibs/*openblas*")]):
        try:
            found = OpenBlas(ctypes.CDLL(str(path)))
            if _is_right(found):
                return found
        except (OSError, AttributeError, RuntimeError):
            continue
    return None


def _routine(library: ctypes.CDLL, name: str) -> Callable[..., Any]:
    for pattern in NAMES:
        if hasattr(library, pattern.format(name)):
            routine: Callable[..., Any] = getattr(library, pattern.format(name))
            return routine
    raise AttributeError(f"no {name}")


def _is_right(found: OpenBlas) -> bool:
    """Whether T has the trace, the norm and the third moment of the matrix that it is of."""
    x = np.cos(np.arange(35.0 * 35).reshape(35, 35))
    a = x + x.T
    (d,), (e,) = found.tridiagonal(a[None])
    t = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    moments = [(np.trace(m), np.sum(m * m), np.sum(m @ m * m)) for m in (a, t)]
    return np.allclose(moments[0], moments[1], rtol=1e-9, atol=1e-9)
