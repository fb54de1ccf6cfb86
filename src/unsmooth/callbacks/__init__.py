"""The same analysis while somebody's model trains, without touching the training; bounds and alarms on it."""

from unsmooth.callbacks.alarm import Reading, SmoothingAlarm
from unsmooth.callbacks.bounds import Bound, Crossing, crossings
from unsmooth.callbacks.trackers import to_mlflow, to_tensorboard, to_trackio, to_wandb
from unsmooth.callbacks.watcher import Watcher, watch

__all__ = [
    "Bound",
    "Crossing",
    "Reading",
    "SmoothingAlarm",
    "Watcher",
    "crossings",
    "to_mlflow",
    "to_tensorboard",
    "to_trackio",
    "to_wandb",
    "watch",
]
