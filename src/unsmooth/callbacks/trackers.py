"""Where readings go: one function `log(values, step)`, and how to get it for each experiment tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unsmooth.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

Log = Callable[[Mapping[str, float], int], None]


def to_tensorboard(writer: SummaryWriter | str | Path = "runs") -> Log:
    """Scalars for TensorBoard, into a `SummaryWriter` or a folder.

    >>> from torch.utils.tensorboard import SummaryWriter                  # doctest: +SKIP
    >>> unsmooth.watch(model, probe, log=to_tensorboard(SummaryWriter()))  # doctest: +SKIP
    """
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
    """Scalars for Weights & Biases, into a run, the name of a project, or the current run.

    They have a step axis of their own, `unsmooth/step`: W&B drops what comes with a step older than its own count.
    """
    wandb = _library("wandb", "Weights & Biases") if run is None or isinstance(run, str) else run
    target = wandb.init(project=run) if isinstance(run, str) else wandb
    target.define_metric("unsmooth/step")
    target.define_metric("unsmooth/*", step_metric="unsmooth/step")

    def log(values: Mapping[str, float], step: int) -> None:
        target.log({**values, "unsmooth/step": step})

    return log


def to_mlflow(run: str | None = None) -> Log:
    """Metrics for MLflow, into the run of this id, or the active one (which MLflow begins where there is none)."""
    mlflow = _library("mlflow", "MLflow")

    def log(values: Mapping[str, float], step: int) -> None:
        mlflow.log_metrics(dict(values), step=step, **({} if run is None else {"run_id": run}))

    return log


def to_trackio(run: Any = None) -> Log:
    """Scalars for Hugging Face's Trackio, into a run, the name of a project, or the current run."""
    trackio = _library("trackio", "Trackio") if run is None or isinstance(run, str) else run
    target = trackio.init(project=run) if isinstance(run, str) else trackio

    def log(values: Mapping[str, float], step: int) -> None:
        target.log(dict(values), step=step)

    return log


TRACKERS: dict[str, Callable[..., Log]] = {
    "tensorboard": to_tensorboard,
    "wandb": to_wandb,
    "mlflow": to_mlflow,
    "trackio": to_trackio,
}


def find_log(log: Log | str | None) -> Log | None:
    """A tracker by its name, `wandb`, or with its folder, project or run, `tensorboard:runs/1`; a function as it is."""
    if log is None or callable(log):
        return log
    if not isinstance(log, str):
        raise OptionError(
            "log must be a function, called as log(values, step), or the name of a tracker "
            f"({', '.join(TRACKERS)}); got {type(log).__name__}: a writer or run of your own goes through "
            "to_tensorboard, to_wandb, to_mlflow or to_trackio of unsmooth.callbacks"
        )
    name, _, where = log.partition(":")
    if name not in TRACKERS:
        raise OptionError.unknown("tracker", name, TRACKERS)
    return TRACKERS[name](where) if where else TRACKERS[name]()


def _library(name: str, called: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"logging to {called} needs {name}, which is not installed: pip install {name}"
        ) from error
