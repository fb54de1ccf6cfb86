"""Where readings go: each function here gives a `log(values, step)` for `watch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unsmooth.errors import MissingExtraError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Log = Callable[[Mapping[str, float], int], None]


def to_tensorboard(writer: SummaryWriter | str | Path) -> Log:
    """Scalars for TensorBoard, into a `SummaryWriter` or a folder."""
    if isinstance(writer, str | Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtraError.needed("tensorboard", "train", "writing for TensorBoard") from error
        target = SummaryWriter(str(writer))
    else:
        target = writer

    def log(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            target.add_scalar(name, value, step)
        target.flush()

    return log


def to_wandb(run: Any = None) -> Log:
    """Scalars for Weights & Biases, into a run (the current one by default).

    They have a step axis of their own, `unsmooth/step`: W&B drops what comes with a step older than its own count.
    """
    if run is None:
        try:
            import wandb
        except ImportError as error:
            raise MissingExtraError(
                "logging to Weights & Biases needs wandb, which is not installed: pip install wandb"
            ) from error
        run = wandb
    run.define_metric("unsmooth/step")
    run.define_metric("unsmooth/*", step_metric="unsmooth/step")

    def log(values: Mapping[str, float], step: int) -> None:
        run.log({**values, "unsmooth/step": step})

    return log
