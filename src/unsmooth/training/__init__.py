"""Train Transformers, plain or under control: an engine that counts steps, and tasks that know data."""

from unsmooth.sources.trained import load_trained
from unsmooth.training.engine.loop import TrainingError, train
from unsmooth.training.engine.processes import launch
from unsmooth.training.engine.recipe import Recipe
from unsmooth.training.engine.record import TrainingRecord
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.step import Speed, Trainer
from unsmooth.training.engine.task import Optimisation, Task
from unsmooth.training.tasks import RECIPES, find_recipe
from unsmooth.training.tasks.images.evaluation import Evaluation, evaluate_trained

__all__ = [
    "RECIPES",
    "Evaluation",
    "Optimisation",
    "Recipe",
    "Run",
    "Speed",
    "Task",
    "Trainer",
    "TrainingError",
    "TrainingRecord",
    "evaluate_trained",
    "find_recipe",
    "launch",
    "load_trained",
    "train",
]
