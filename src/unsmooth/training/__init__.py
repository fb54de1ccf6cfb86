"""Train the paper's models: recipes, data on the device, batched augmentation, one captured step, checkpoints."""

from unsmooth.training.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from unsmooth.training.evaluate import Evaluation, calibration_error, evaluate
from unsmooth.training.images import ImageSet, load_images
from unsmooth.training.loop import Run, TrainingError, train
from unsmooth.training.model import build_model, load_trained, save_model
from unsmooth.training.processes import launch
from unsmooth.training.recipes import RECIPES, Recipe, find_recipe
from unsmooth.training.step import Speed, Trainer
from unsmooth.training.subset import keep_fraction, load_splits
from unsmooth.training.trained import evaluate_trained

__all__ = [
    "CORRUPTIONS",
    "RECIPES",
    "SEVERITIES",
    "Evaluation",
    "ImageSet",
    "Recipe",
    "Run",
    "Speed",
    "Trainer",
    "TrainingError",
    "build_model",
    "calibration_error",
    "corrupt",
    "evaluate",
    "evaluate_trained",
    "find_recipe",
    "keep_fraction",
    "launch",
    "load_images",
    "load_splits",
    "load_trained",
    "save_model",
    "train",
]
