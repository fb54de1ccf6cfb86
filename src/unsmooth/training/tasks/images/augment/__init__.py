"""Augmentation of whole batches on the device: every random draw comes in as a tensor, nothing is drawn here."""

from unsmooth.training.tasks.images.augment.batch import Colours, augment, normalise
from unsmooth.training.tasks.images.augment.plan import BatchPlan, EpochPlan, draw_epoch

__all__ = ["BatchPlan", "Colours", "EpochPlan", "augment", "draw_epoch", "normalise"]
