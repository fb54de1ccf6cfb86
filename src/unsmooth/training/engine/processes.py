"""One process or several: `launch` is `train` with the rank, world size and device that accelerate gives."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from unsmooth.analysis.processes import let_go
from unsmooth.errors import MissingExtraError, OptionError
from unsmooth.training.engine.loop import Progress, train
from unsmooth.training.engine.record import TrainingRecord
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.sharding import requested


def launch(
    run: Run,
    data: str | Path,
    out: str | Path,
    *,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    tensorboard: bool = True,
    keep_every: int | None = None,
) -> TrainingRecord | None:
    """Train in this process, or as one of the processes that `accelerate launch` started.

    Each has a copy of the model, or, with `--use_fsdp --fsdp_version 2`, a part of it. Every process takes its share of
    each batch, so the gradient is that of one process with the whole batch. The first process logs, checkpoints and
    returns the record; the others return None.
    """
    world = _world_size()
    if world == 1:
        return train(
            run, data, out, device=device, progress=progress, tensorboard=tensorboard,
            keep_every=keep_every,
        )  # fmt: skip
    run.recipe.check(run, world)
    sharded = requested()
    if run.allowed.minutes is not None:
        raise OptionError("a budget in minutes is for one process: with several, give it in steps (--budget 2000)")
    try:
        from accelerate import Accelerator
    except ImportError as error:
        raise MissingExtraError.needed("accelerate", "train", "training in several processes") from error
    # Without it a process that ends at once may close a connection before the other one has accepted it.
    os.environ.setdefault("TORCH_DIST_INIT_BARRIER", "1")
    accelerator = Accelerator(cpu=device is not None and torch.device(device).type == "cpu")
    record = train(
        run,
        data,
        out,
        device=accelerator.device,
        progress=progress if accelerator.is_main_process else None,
        tensorboard=tensorboard,
        rank=accelerator.process_index,
        world=world,
        sharded=sharded,
        keep_every=keep_every,
    )
    # Only after success: a process that failed must not wait for others, which wait for its gradients.
    accelerator.wait_for_everyone()
    let_go()
    accelerator.end_training()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return record


def _world_size() -> int:
    """How many processes a launcher started; one, if none did."""
    text = os.environ.get("WORLD_SIZE") or "1"
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if text == "1" or (text.isdecimal() and not missing):
        return int(text)
    said = f" ({', '.join(missing)} are not set)" if missing else ""
    raise OptionError(
        f"WORLD_SIZE is {text!r}, but no launcher started this process{said}: unset it, or use `accelerate launch`"
    )
