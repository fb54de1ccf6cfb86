"""Log the metrics while somebody's model trains, without touching the training; limits and alarms on them."""

from unsmooth.watch.alarm import Reading, SmoothingAlarm
from unsmooth.watch.limits import Crossing, Limit, crossings
from unsmooth.watch.watcher import Watcher, watch
from unsmooth.watch.writers import to_tensorboard, to_wandb

__all__ = [
    "Crossing",
    "Limit",
    "Reading",
    "SmoothingAlarm",
    "Watcher",
    "crossings",
    "to_tensorboard",
    "to_wandb",
    "watch",
]
