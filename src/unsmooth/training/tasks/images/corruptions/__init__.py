"""Regenerated CIFAR-100-C: the 15 corruptions of Hendrycks & Dietterich (2019) with CIFAR-C's own constants.

CIFAR-C's generator uses other, milder constants than ImageNet-C's; these are CIFAR-C's. What is
regenerated differs from the published files in the random draws, in `frost` (whose photographs we do not
have: a procedural ice texture stands in) and by at most the rounding of the libraries they used.
"""

from unsmooth.training.tasks.images.corruptions.apply import CORRUPTIONS, SEVERITIES, corrupt, corrupt_all

__all__ = ["CORRUPTIONS", "SEVERITIES", "corrupt", "corrupt_all"]
