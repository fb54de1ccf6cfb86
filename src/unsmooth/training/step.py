"""One training step: augment, forward, backward, clip, update; compiled and captured as one CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor, nn

from unsmooth.training.augment import BatchPlan, Colours, EpochPlan, augment
from unsmooth.training.fast.halves import Halves, plain_linears
from unsmooth.training.fast.shortcuts import Shortcuts
from unsmooth.training.recipes import Recipe


@dataclass(frozen=True)
class Speed:
    """How the step is run; none of these changes what is computed."""

    compile_mode: str | None = "default"  # torch.compile's mode; None runs eagerly
    graph: bool = True  # capture the whole step (CUDA only)
    attention: str | None = "tiled"  # our kernel (CUDA); None: PyTorch's choice; FLASH_ATTENTION, …: that SDPA backend
    class_token: bool = True  # compute in the last block only what the class token needs
    fused: bool = True  # with tiled attention: fewer passes over memory for residual sums, LayerNorm, GELU and weights


class Trainer:
    """Model, optimiser and data on one device; `run_epoch` never waits for the device.

    The step counter, the learning-rate table and the epoch's plan live on the device, so a captured
    step needs nothing from the host: replaying it is all that an epoch does.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: list[dict[str, Any]],
        pixels: UInt8[Tensor, "image channel height width"],
        labels: Int64[Tensor, image],
        recipe: Recipe,
        rates: Float32[Tensor, step],
        speed: Speed | None = None,
        world: int = 1,
    ) -> None:
        self.model, self.recipe, self.world = model, recipe, world
        self.device = pixels.device
        self.cuda = self.device.type == "cuda"
        self.speed = speed or Speed()
        self.pixels, self.labels = pixels, labels
        self.colours = Colours.of(recipe, self.device)
        self.rates = rates.to(self.device)
        self.parameters = [p for group in groups for p in group["params"]]
        self.rate = self.rates[0].clone() if self.cuda else float(rates[0])
        options: dict[str, Any] = {"fused": True, "capturable": True} if self.cuda else {"foreach": False}
        self.optimizer = torch.optim.AdamW(groups, lr=self.rate, **options)
        self.done = torch.zeros(1, dtype=torch.int64, device=self.device)  # steps of the whole run
        self.row = torch.zeros(1, dtype=torch.int64, device=self.device)  # step inside the epoch
        self.loss_sum = torch.zeros((), device=self.device)
        self.plan: EpochPlan | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._side: torch.cuda.Stream | None = None  # where a captured step augments the next batch
        self._batch: tuple[Tensor, Tensor] | None = None  # what a captured step learns from
        self.half = self.cuda and recipe.precision == "bf16"
        tiled = self.half and self.speed.attention == "tiled"
        self._shortcuts = Shortcuts(model, class_token=self.speed.class_token, tiled=tiled, fused=self.speed.fused)
        self._halves = Halves(plain_linears(model) if self._shortcuts.fused else [])
        self._augment, self._loss = augment, self._forward
        if self.cuda and self.speed.compile_mode is not None:
            torch.compiler.reset()  # code compiled for an earlier run's model counts against the recompile limit
            mode = None if self.speed.compile_mode == "default" else self.speed.compile_mode
            self._augment = torch.compile(augment, dynamic=False, fullgraph=True)
            self._loss = torch.compile(self._forward, dynamic=False, fullgraph=True, mode=mode)

    def run_epoch(self, plan: EpochPlan, seed: int) -> Float[Tensor, ""]:
        """All steps of the plan; the mean loss stays on the device. `seed` drives stochastic depth."""
        self.model.train()
        self._load(plan)
        torch.manual_seed(seed)
        self.loss_sum.zero_()
        for _ in range(len(plan)):
            if self._graph is not None:
                self._graph.replay()
            else:
                self._step()
        if self.world > 1:  # every process reports the same number, and all stop together when it is NaN
            torch.distributed.all_reduce(self.loss_sum)
        return self.loss_sum / (len(plan) * self.world)

    def describe(self) -> dict[str, Any]:
        """How the step is run here, for records: a CPU neither compiles, nor captures, nor rounds to bfloat16."""
        return {
            "arithmetic": "bfloat16 autocast" if self.half else "float32",
            "compile": self.speed.compile_mode if self.cuda else None,
            "graph": self.cuda and self.speed.graph and self.world == 1,
            "attention": self._attention(),
            "class_token": self._shortcuts.class_token,
            "fused": self._shortcuts.fused,
            "processes": self.world,
        }

    def _attention(self) -> str | None:
        if self.speed.attention == "tiled":
            return "tiled" if self._shortcuts.tiled else None
        return self.speed.attention if self.cuda else None

    def _load(self, plan: EpochPlan) -> None:
        if self.plan is None:
            self.plan = plan.map(lambda t: t.to(self.device, copy=True))
            if self.cuda and self.speed.graph and self.world == 1:
                self._capture()
        else:
            self.plan.copy_(plan)
        self.row.zero_()
        if self._batch is not None:
            self._fill(self._augmented(self.row))

    def _forward(self, x: Float[Tensor, "batch channel height width"], target: Tensor) -> Float[Tensor, ""]:
        with autocast(self.device, self.recipe.precision):
            logits = self.model(x)
        return -(target * logits.float().log_softmax(-1)).sum(-1).mean()

    def _step(self) -> None:
        self._learn(*self._augmented(self.row))
        self.row += 1

    def _overlapped_step(self) -> None:
        """The same, but the next step's batch is augmented meanwhile: small kernels that leave the GPU idle alone."""
        assert self.plan is not None
        assert self._batch is not None
        assert self._side is not None
        main = torch.cuda.current_stream()
        self._side.wait_stream(main)
        with torch.cuda.stream(self._side):
            upcoming = self._augmented((self.row + 1).clamp(max=len(self.plan) - 1))  # the last one's is not used
        self._learn(*self._batch)
        main.wait_stream(self._side)
        self._fill(upcoming)
        self.row += 1

    def _augmented(self, row: Tensor) -> tuple[Tensor, Tensor]:
        assert self.plan is not None
        draws: BatchPlan = self.plan.batch(row)
        with torch.no_grad():
            return self._augment(self.pixels, self.labels, draws, self.recipe, self.colours)

    def _fill(self, batch: tuple[Tensor, Tensor]) -> None:
        assert self._batch is not None
        for kept, new in zip(self._batch, batch, strict=True):
            kept.copy_(new)

    def _learn(self, x: Tensor, target: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with attention_backend(self.speed.attention), self._shortcuts, self._halves:
            loss = self._loss(x, target)
            loss.backward()
        self._halves.take_gradients()
        if self.world > 1:
            average_gradients(self.parameters, self.world)
        if self.recipe.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.recipe.clip_norm)
        self._set_rate()
        self.optimizer.step()
        self.loss_sum += loss.detach()
        self.done += 1

    def _set_rate(self) -> None:
        if isinstance(self.rate, Tensor):
            # the steps that warm up a resumed run may look past the end of the table
            self.rate.copy_(self.rates.index_select(0, self.done.clamp(max=len(self.rates) - 1))[0])
            return
        for group in self.optimizer.param_groups:
            group["lr"] = float(self.rates[self.done])

    def _capture(self) -> None:
        """Warm up on a side stream (compiles, fills caches), put the state back, record one step."""
        before = [p.detach().clone() for p in self.parameters]
        saved = {id(p): {k: v.clone() for k, v in s.items()} for p, s in self.optimizer.state.items()}
        count = self.done.clone()
        self._side, stream = torch.cuda.Stream(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._batch = tuple(t.clone() for t in self._augmented(self.row))  # type: ignore[assignment]
            for _ in range(3):
                self.row.zero_()
                self._overlapped_step()
        torch.cuda.current_stream().wait_stream(stream)
        self.optimizer.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._overlapped_step()
        with torch.no_grad():
            for parameter, value in zip(self.parameters, before, strict=True):
                parameter.copy_(value)
                for name, tensor in self.optimizer.state[parameter].items():
                    old = saved.get(id(parameter), {}).get(name)
                    tensor.zero_() if old is None else tensor.copy_(old)
        self.done.copy_(count)
        self.loss_sum.zero_()


def average_gradients(parameters: list[Tensor], world: int) -> None:
    """Mean over processes in one message: the processes hold equal shares of the batch."""
    grads = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([g.flatten() for g in grads])
    torch.distributed.all_reduce(flat)
    flat /= world
    for grad, part in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        grad.copy_(part.view_as(grad))


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 matrix products on CUDA; a CPU computes in float32 (bfloat16 there is slow or not there at all)."""
    enabled = precision != "float32" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled, cache_enabled=False)  # a graph outlives a cache


@contextlib.contextmanager
def attention_backend(name: str | None) -> Iterator[None]:
    """Force one backend of scaled dot product attention; None leaves the choice to PyTorch."""
    if name in (None, "tiled"):
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, name)):
        yield
