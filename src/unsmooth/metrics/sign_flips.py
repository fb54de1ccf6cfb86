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
MOST_FLIPS, AT_ONCE = 4096, 2_000_000  # all flips of 13 samples; |t| that are held at a time
TIE = 1e-9  # relative: the same |t| from sums in another order


def flips(samples: int) -> Values:
    """Signs (flips × samples), the samples as they are first: all that differ, or so many of them at random.

    >>> flips(3).astype(int).tolist()  # the opposite of each gives the same |t|
    [[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]]
    """
    if 2 ** (samples - 1) <= MOST_FLIPS:
        return np.array([(1.0, *signs) for signs in product((1.0, -1.0), repeat=samples - 1)])
    drawn = np.random.default_rng(0).choice([1.0, -1.0], size=(MOST_FLIPS, samples))
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
    lengths = np.linalg.norm(curves[second] - curves[first], axis=1)
    lengths[lengths == 0] = np.inf
    sums = signs @ curves.T
    step = max(1, AT_ONCE // len(first))
    # |sum| over length is the cosine of the changes with the signs, times √samples: it grows with |t|
    parts = [np.abs(s[:, second] - s[:, first]) / lengths for s in np.split(sums, range(step, len(sums), step))]
    largest = np.sort(np.concatenate([part.max(1) for part in parts]))
    below = np.searchsorted(largest, parts[0][0] * (1 - TIE))
    return 1 - below / len(signs)
