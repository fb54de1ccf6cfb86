"""Many correlated paired tests whose claims are right together, by flipping the signs of whole samples.

Where nothing changes, a sample's changes are as likely with the other sign, all of them at once. So the largest |t| of
all tests, with the signs of samples flipped in every way, is the distribution of the largest |t| by chance: exact for
changes that are symmetric about zero, whatever their shape and however the tests hang together (Romano and Wolf 2005).
It also holds for the tests of no change where others change: the largest |t| of fewer tests is smaller. Bonferroni's
correction would ask of the differences between depths of one model, which share most of what they see, as much as of
tests that share nothing.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
MOST_FLIPS, LEAST_FLIPS, SIGNS = 4096, 1000, 8_000_000  # all flips of 13 samples; fewer where samples are many
AT_ONCE = 2_000_000  # numbers that are held at a time
TIE = 1e-9  # relative: the same |t| from sums in another order


def flips(samples: int) -> npt.NDArray[np.int8]:
    """Signs (flips × samples), the samples as they are first: all that differ, or some thousands of them at random.

    >>> flips(3).tolist()  # the opposite of each gives the same |t|
    [[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]]
    """
    if 2 ** (samples - 1) <= MOST_FLIPS:
        return np.array([(1, *signs) for signs in product((1, -1), repeat=samples - 1)], dtype=np.int8)
    count = max(LEAST_FLIPS, min(MOST_FLIPS, SIGNS // samples))
    drawn = 2 * np.random.default_rng(0).integers(0, 2, size=(count, samples), dtype=np.int8) - 1
    drawn[0] = 1
    return drawn


def joint_p(curves: Values, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp]) -> Values:
    """p of each of the tests `curves[second] − curves[first]` among all of them; `curves` is (rows, samples).

    Never below one in the number of flips, 2^(samples − 1) of few samples.

    >>> rise = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [5.0, 4.0, 5.0]])
    >>> joint_p(rise, np.array([0, 0]), np.array([1, 2])).tolist()  # three samples, four flips
    [0.25, 0.25]
    """
    curves = curves - curves[:1]  # nearer to zero, so that sums lose less
    signs = flips(curves.shape[1])
    lengths = np.array([np.linalg.norm(curves[j] - curves[i]) for i, j in zip(first, second, strict=True)])
    lengths[lengths == 0] = np.inf
    step = max(1, AT_ONCE // max(len(first), curves.shape[1]))
    largest, own = [], np.zeros(0)
    for part in np.split(signs, range(step, len(signs), step)):
        sums = part.astype(np.float64) @ curves.T
        # over the length, the cosine of the changes with the signs times √samples: it grows with |t|
        sizes = np.abs(sums[:, second] - sums[:, first]) / lengths
        largest.append(sizes.max(1))
        own = own if len(own) else sizes[0]
    below = np.searchsorted(np.sort(np.concatenate(largest)), own * (1 - TIE))
    return 1 - below / len(signs)
