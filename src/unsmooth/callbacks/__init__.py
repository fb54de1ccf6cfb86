"""The same analysis while somebody's model trains, without touching the training; bounds and alarms on it."""

from unsmooth.callbacks.alarm import Reading, SmoothingAlarm
from unsmooth.callbacks.bounds import Bound, Crossing, crossings
from unsmooth.callbacks.watcher import Watcher, watch
from unsmooth.callbacks.writers import to_tensorboard, to_wandb

__all__ = [
    "Bound",
    "Crossing",
    "Reading",
    "SmoothingAlarm",
    "Watcher",
    "crossings",
    "to_tensorboard",
    "to_wandb",
    "watch",
]
