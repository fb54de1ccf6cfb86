"""What a task supplies: a model, batches, a loss, an evaluation. Everything else is the engine's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Float, Float32
from torch import Tensor, nn

from unsmooth.training.engine.step import Speed

Rows = dict[str, Tensor]  # each of shape (steps, …): what these steps need from the host
Batch = tuple[Tensor, ...]


@dataclass(frozen=True)
class Optimisation:
    """AdamW, its clipping, and the arithmetic of forward and backward."""

    weight_decay: float = 0.0  # on weights; not on biases, norms and what the model exempts
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip_norm: float = 0.0  # 0: gradients are not clipped
    precision: str = "float32"  # or bf16: autocast on CUDA


class FastPath(AbstractContextManager[None]):
    """Around forward and backward: what a task computes in another way there, for speed. By default nothing."""

    compiles = False  # parts of the loss itself: then the step is not compiled as a whole

    def __exit__(self, *error: object) -> None:
        pass

    def take_gradients(self) -> None:
        """After backward: where gradients went to copies of the weights, hand them on."""

    def describe(self) -> dict[str, Any]:
        """For records: what is computed in another way."""
        return {}


class Task(ABC):
    """One run's model and data in one process; `Recipe.open` makes it.

    The engine counts steps. A *chunk* is what is drawn, seeded and, at its end, perhaps looked at and checkpointed
    together: an epoch of a data set that lies on the device, or a hundred steps of a stream, whose rows are copied to
    the device at once. A run goes on at the end of any chunk, also in the middle of an epoch.
    """

    model: nn.Module  # on its device, with its variant applied
    optimisation: Optimisation
    data_hash: str  # a run that goes on with other data is another run
    total: int  # steps, where the run has no budget
    chunk: int  # steps
    every: int  # steps between two looks at the model (evaluation, log, checkpoint): a multiple of `chunk`
    grows: bool = False  # whether steps may share an update (`together`)
    shardable: bool = False  # whether `loss` calls the model itself, so that its parts may be kept sharded (FSDP2)
    evaluates_together: bool = False  # whether `evaluate` shares its work among all processes
    unit: str = "step"  # what people count ("epoch"), and how many steps one is
    per_unit: int = 1

    @abstractmethod
    def stream(self, step: int) -> Iterator[Rows]:
        """Chunk after chunk, from this step on: the same rows for the same step, whenever the run was started.

        The first chunk is the rest of the one that `step` lies in. A stream may end with the run or never. The engine
        asks for the next chunk while a GPU works on the last one; decoding further ahead is the stream's own affair.
        """

    @abstractmethod
    def loss(self, *batch: Tensor) -> Float[Tensor, ""]:
        """Mean loss of a batch, under autocast where the precision says so; compiled and captured on CUDA."""

    @abstractmethod
    def rates(self, total: int) -> Float32[Tensor, step]:
        """The learning rate of every step of a run of `total` steps."""

    @abstractmethod
    def evaluate(self, model: nn.Module, final: bool = False) -> dict[str, Any]:
        """Scores on held-out data, `loss` among them, in plain numbers; at the end in full precision.

        The first process alone calls this, or all of them if the task `evaluates_together`.
        """

    @abstractmethod
    def save(self, model: nn.Module, folder: Path, about: dict[str, Any]) -> str:
        """Write the baked model as a folder that `unsmooth.load_model` reads; returns the hash of its weights."""

    def replace(self, finished: Task) -> bool:
        """Put this run's weights and data where those of a finished run of the same variant are, and use them there.

        False where that is not possible; then nothing was changed.
        """
        return False

    def together(self, done: int, total: int) -> int:
        """How many steps of the chunk after `done` of `total` share one update, if the task `grows`: they divide it."""
        return 1

    def prepare(self, rows: Rows) -> Batch:
        """From one step's rows, on the device, to what `loss` takes; without gradients, inside the captured step."""
        return tuple(rows.values())

    def observe(self, model: nn.Module) -> dict[str, Any]:
        """What is logged beside the scores."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint must know beside weights and step, in plain values, under names of the task's own."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:  # noqa: B027 (most tasks have nothing to take up)
        """Take up what `state` gave; an older checkpoint may lack it."""

    def fast_path(self, speed: Speed, half: bool) -> FastPath:
        """Short cuts of this model in training; `half` says whether products are in bfloat16."""
        return FastPath()
