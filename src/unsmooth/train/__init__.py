"""Train the paper's models: recipes, data on the device, batched augmentation, one captured step, checkpoints."""

from unsmooth.train.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from unsmooth.train.evaluate import Evaluation, calibration_error, evaluate
from unsmooth.train.images import ImageSet, load_images
from unsmooth.train.loop import Run, TrainingError, train
from unsmooth.train.model import build_model, load_trained, save_model
from unsmooth.train.processes import launch
from unsmooth.train.recipes import RECIPES, Recipe, find_recipe
from unsmooth.train.step import Speed, Trainer
from unsmooth.train.subset import keep_fraction, load_splits
from unsmooth.train.trained import evaluate_trained

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
