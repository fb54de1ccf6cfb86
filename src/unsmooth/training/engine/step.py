"""One training step: prepare a batch, forward, backward, clip, update; compiled and captured as one CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from unsmooth.control import parameter_groups
from unsmooth.training.engine.capture import waits_for_host
from unsmooth.training.engine.precision import autocast
from unsmooth.training.engine.sharding import ShardedModel

if TYPE_CHECKING:
    from unsmooth.training.engine.task import Batch, Rows, Task


@dataclass(frozen=True)
class Speed:
    """How the step is run; none of these changes what is computed."""

    compile_mode: str | None = "default"  # torch.compile's mode; None runs eagerly
    graph: bool = True  # capture the whole step (CUDA only)
    attention: str | None = None  # force this SDPA backend (FLASH_ATTENTION, …) instead of PyTorch's choice
    shortcuts: tuple[str, ...] | None = None  # those of the task that may be taken; None: all, (): none


class Trainer:
    """A task's model, its optimiser and one chunk of rows on one device; `run_chunk` never waits for the device.

    Step counter, learning rates and rows live on the device, so a captured step needs nothing from the host:
    replaying it is all that a chunk does.
    """

    def __init__(self, task: Task, speed: Speed | None = None, world: int = 1, sharded: bool = False) -> None:
        self.task, self.model, self.world = task, task.model, world
        self.speed = speed or Speed()
        self.sharded = ShardedModel(self.model) if sharded else None
        if sharded:  # FSDP2's hooks cannot be captured, and short cuts read weights that are not all there
            self.speed = Speed(compile_mode=None, graph=False, attention=self.speed.attention, shortcuts=())
        options = task.optimisation
        groups = parameter_groups(self.model, options.weight_decay)
        self.parameters = [p for group in groups for p in group["params"]]
        self.device = self.parameters[0].device
        self.cuda = self.device.type == "cuda"
        captured = self.cuda and not sharded
        self.rate: Tensor | float = torch.zeros((), device=self.device) if captured else 0.0
        how: dict[str, Any] = (
            {"foreach": False} if sharded and not self.cuda else {"fused": True, "capturable": captured}
        )
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate, betas=options.betas, eps=options.eps, **how)
        self.done = 0  # steps of the whole run
        self.together = 1  # steps that share an update, where the task's batches grow
        self.share = torch.ones((), device=self.device)  # of one of them
        self.row = torch.zeros(1, dtype=torch.int64, device=self.device)  # step inside the chunk
        self.last = torch.zeros(1, dtype=torch.int64, device=self.device)  # the chunk's last row
        self.loss_sum = torch.zeros((), device=self.device)
        self.rows: Rows = {}
        self.rates = torch.zeros(0)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._gather: torch.cuda.CUDAGraph | None = None  # a step without update
        self._first: torch.cuda.CUDAGraph | None = None  # the chunk's first batch
        self._side: torch.cuda.Stream | None = None  # where a captured step prepares the next batch
        self._batch: Batch | None = None  # what a captured step learns from
        self.half = self.cuda and options.precision == "bf16"
        self.fast = task.fast_path(self.speed, self.half)
        self._prepare, self._loss = task.prepare, self._forward
        if self.cuda and self.speed.compile_mode is not None:
            mode = None if self.speed.compile_mode == "default" else self.speed.compile_mode
            if not self.fast.compiles:
                torch.compiler.reset()  # code compiled for an earlier run's model counts against the recompile limit
                self._loss = torch.compile(self._forward, dynamic=False, fullgraph=True, mode=mode)
            self._prepare = torch.compile(task.prepare, dynamic=False, fullgraph=True)

    @property
    def graphed(self) -> bool:
        """Whether the whole step is one CUDA graph; several processes exchange gradients between its parts."""
        return self.cuda and self.speed.graph and self.world == 1

    def whole_model(self) -> AbstractContextManager[nn.Module]:
        """The model with all of its weights; where it is sharded, every process must take part."""
        return contextlib.nullcontext(self.model) if self.sharded is None else self.sharded.gathered()

    def run_chunk(self, rows: Rows, rates: Float32[Tensor, step], seed: int) -> Float[Tensor, ""]:
        """One step per rate; the mean loss stays on the device. `seed` drives dropout and stochastic depth."""
        self.model.train()
        self._load(rows, rates)
        torch.manual_seed(seed)
        self.loss_sum.zero_()
        self.share.fill_(1 / self.together)
        for step in range(1, len(rates) + 1):
            update = step % self.together == 0 or step == len(rates)
            graph = self._graph if update else self._gather
            if graph is not None:
                graph.replay()
            else:
                self._step(update)
        self.done += len(rates)
        if self.world > 1:  # every process reports the same number, and all stop together when it is NaN
            torch.distributed.all_reduce(self.loss_sum)
        return self.loss_sum / (len(rates) * self.world)

    @torch.no_grad()
    def restart(self) -> None:
        """Forget all steps, for new weights in the same place: what is compiled and captured stays."""
        self.done = 0
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def takes_over(self, task: Task) -> bool:
        """Whether this run of the same kind could be put in the finished one's place; then it is, and has no steps yet.

        Its step is neither compiled nor captured again, which takes as long as thousands of steps.
        """
        if not task.replace(self.task):
            return False
        self.task = task
        self.restart()
        return True

    def describe(self) -> dict[str, Any]:
        """How the step is run here, for records: a CPU neither compiles, nor captures, nor rounds to bfloat16."""
        return {
            "arithmetic": "bfloat16 autocast" if self.half else "float32",
            "compile": self.speed.compile_mode if self.cuda else None,
            "graph": self.graphed,
            "attention": self.speed.attention if self.cuda else None,
            **self.fast.describe(),
            "processes": self.world,
            **({"sharded": True} if self.sharded else {}),
        }

    def _load(self, rows: Rows, rates: Float32[Tensor, step]) -> None:
        """A captured graph reads the same memory for every chunk: buffers as long as the longest one."""
        count = len(rates)
        if not self.graphed:
            self.rows = {name: t[:count].to(self.device, non_blocking=True) for name, t in rows.items()}
            self.rates = rates.to(self.device)
        elif not self.rows:
            size = self.task.chunk
            self.rows = {
                k: torch.zeros((size, *t.shape[1:]), dtype=t.dtype, device=self.device) for k, t in rows.items()
            }
            self.rates = torch.zeros(size, device=self.device)
        if self.graphed:
            for name, kept in self.rows.items():
                kept[:count].copy_(rows[name][:count], non_blocking=True)
            self.rates[:count].copy_(rates, non_blocking=True)
        self.last.fill_(count - 1)
        self.row.zero_()
        if self.graphed and self._graph is None:
            self._capture()
            if not self.graphed:
                self._load(rows, rates)
                return
        if self._first is not None:
            self._first.replay()

    def _forward(self, *batch: Tensor) -> Float[Tensor, ""]:
        with autocast(self.device, self.task.optimisation.precision):
            return self.task.loss(*batch)

    def _step(self, update: bool) -> None:
        self._learn(*self._prepared(self.row), update=update)
        self.row += 1

    def _overlapped_step(self, update: bool = True) -> None:
        """The same, but the next step's batch is prepared meanwhile: small kernels that leave the GPU idle alone."""
        assert self._batch is not None
        assert self._side is not None
        main = torch.cuda.current_stream()
        self._side.wait_stream(main)
        with torch.cuda.stream(self._side):
            upcoming = self._prepared(torch.minimum(self.row + 1, self.last))  # the last one's is not used
        self._learn(*self._batch, update=update)
        main.wait_stream(self._side)
        self._fill(upcoming)
        self.row += 1

    def _prepared(self, row: Tensor) -> Batch:
        rows = {name: t.index_select(0, row)[0] for name, t in self.rows.items()}
        with torch.no_grad():
            return self._prepare(rows)

    def _fill(self, batch: Batch) -> None:
        assert self._batch is not None
        for kept, new in zip(self._batch, batch, strict=True):
            kept.copy_(new)

    def _learn(self, *batch: Tensor, update: bool = True) -> None:
        if not self.task.grows:
            self.optimizer.zero_grad(set_to_none=True)
        with attention_backend(self.speed.attention), self.fast:
            loss = self._loss(*batch)
            (loss * self.share if self.task.grows else loss).backward()
        self.fast.take_gradients()
        self.loss_sum += loss.detach()
        if update:
            self._update()

    def _update(self) -> None:
        if self.world > 1 and not self.sharded:  # FSDP2 averages while it shards them
            average_gradients(self.parameters, self.world)
        if self.task.optimisation.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.task.optimisation.clip_norm)
        self._set_rate()
        self.optimizer.step()
        if self.task.grows:
            self.optimizer.zero_grad(set_to_none=False)  # gradients are added up where they are

    def _set_rate(self) -> None:
        if isinstance(self.rate, Tensor):
            self.rate.copy_(self.rates.index_select(0, self.row)[0])
            return
        for group in self.optimizer.param_groups:
            group["lr"] = float(self.rates[self.row])

    def _capture(self) -> None:
        """Warm up on a side stream (compiles, fills caches), record one step, put the state back.

        A model's own code may do what no graph can hold, such as a constant that it copies from the host in every
        step (MPNet's mask): then the steps stay as they are.
        """
        kept = [*self.parameters, *self.model.buffers()]
        before = [t.detach().clone() for t in kept]
        saved = {id(p): {k: v.clone() for k, v in s.items()} for p, s in self.optimizer.state.items()}
        self._side, stream = torch.cuda.Stream(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._batch = tuple(t.clone() for t in self._prepared(self.row))
            for _ in range(3):
                self.row.zero_()
                self._overlapped_step()
            self.row.zero_()
            foreign = self.speed.compile_mode is None and not self.fast.describe()
            waits = foreign and waits_for_host(self._overlapped_step)
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=not self.task.grows)
        self.row.zero_()
        if waits:
            torch.cuda.synchronize()
            self.speed, self._batch, self.rows = replace(self.speed, graph=False), None, {}
        else:
            self._record()
        with torch.no_grad():
            for tensor, value in zip(kept, before, strict=True):
                tensor.copy_(value)
            for parameter in self.parameters:
                for name, tensor in self.optimizer.state[parameter].items():
                    old = saved.get(id(parameter), {}).get(name)
                    tensor.zero_() if old is None else tensor.copy_(old)
        self.row.zero_()

    def _record(self) -> None:
        """One step as a graph, one without update where steps share it, and the first batch of a chunk."""
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._overlapped_step()
        if self.task.grows:
            self._gather = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._gather, pool=self._graph.pool()):
                self._overlapped_step(update=False)
        self.row.zero_()
        self._first = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._first, pool=self._graph.pool()):
            self._fill(self._prepared(self.row))


def average_gradients(parameters: list[Tensor], world: int) -> None:
    """Mean over processes in one message: the processes hold equal shares of the batch."""
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    torch.distributed.all_reduce(flat)
    flat /= world
    for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad))


@contextlib.contextmanager
def attention_backend(name: str | None) -> Iterator[None]:
    """Force one backend of scaled dot product attention; None leaves the choice to PyTorch."""
    if name is None:
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, name)):
        yield
