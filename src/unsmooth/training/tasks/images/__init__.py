"""Image classification: CIFAR-100 as the paper trains it, its corruptions, and any small set of class folders."""

from unsmooth.training.tasks.images.data import ImageSet, load_images
from unsmooth.training.tasks.images.model import build_model, save_model
from unsmooth.training.tasks.images.recipe import RECIPES, ImageRecipe
from unsmooth.training.tasks.images.scores import Scores, evaluate
from unsmooth.training.tasks.images.task import ImageTask, learning_rates

__all__ = [
    "RECIPES",
    "ImageRecipe",
    "ImageSet",
    "ImageTask",
    "Scores",
    "build_model",
    "evaluate",
    "learning_rates",
    "load_images",
    "save_model",
]
