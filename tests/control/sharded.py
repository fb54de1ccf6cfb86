"""What each process of the sharding tests does; its own module, so that a spawned process can import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from control.cases import images, vit
from model_cases import DECODER, hf
from torch import nn

import unsmooth
from unsmooth.control import ControlMonitor, apply_fix, bake, control_of, reparametrize, spectral_penalty
from unsmooth.errors import UnsmoothError
from unsmooth.models import view

CHANGES: dict[str, Callable[[nn.Module], Any]] = {
    "reparametrize": reparametrize,
    "from_weights": lambda model: reparametrize(model, init="from_weights"),
    **{fix: lambda model, fix=fix: apply_fix(model, fix) for fix in ("attnscale", "featscale", "gfsa", "contranorm")},
}


def steps(model: nn.Module, batch: slice = slice(None), through: nn.Module | None = None) -> nn.Module:
    """Three steps on (a part of) four images, with a penalty on ψ."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimiser.zero_grad()
        out = (through or model)(images(4)[batch])
        (nn.functional.cross_entropy(out, torch.arange(4)[batch]) + spectral_penalty(model)).backward()
        optimiser.step()
    return model


def controlled() -> nn.Module:
    """The same on every process."""
    return reparametrize(vit(), std=0.3, generator=torch.Generator().manual_seed(1))


def llama() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = hf("Llama", **DECODER)()
    return model.eval()


def ids() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(12).reshape(2, 6) + 3}


def run_sharded(rank: int, folder: str) -> None:
    """Everything in one start of two processes; the first saves what came of it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        found = {"refused": refusals(), "trained": trained(rank), **measured(), "parallel": tensor_parallel()}
        if rank == 0:
            torch.save(found, f"{folder}/found.pt")
    finally:
        dist.destroy_process_group()


def shard(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for block in model.blocks:  # type: ignore[union-attr]
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def said(change: Callable[[nn.Module], Any], model: nn.Module) -> str:
    try:
        change(model)
    except UnsmoothError as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def refusals() -> dict[str, str]:
    return {
        **{name: said(change, shard(vit())) for name, change in CHANGES.items()},
        "bake": said(bake, shard(controlled())),
        "copy": said(lambda model: bake(model, copy=True), shard(controlled())),
        "assign": said(lambda model: control_of(model).assign(0, torch.eye(24), torch.eye(24)), shard(controlled())),
        "weights": said(lambda model: view(model).layers[0].weights(), shard(vit())),
        "penalty": said(lambda model: spectral_penalty(model, "sharpening"), shard(vit())),
    }


def trained(rank: int) -> dict[str, Any]:
    """The order that works, the numbers that can be read in between, and the way back to plain weights."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    model = shard(controlled())
    steps(model, slice(2 * rank, 2 * rank + 2))
    reading = ControlMonitor(model).read().as_dict()
    control_of(model).check()
    w_v = view(model).layers[0].weights().w_v.detach()
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    whole = controlled()
    if rank == 0:
        whole.load_state_dict(state)
    baked = bake(whole)
    return {"state": state, "reading": reading, "w_v": w_v, "baked": baked.state_dict()}


def measured() -> dict[str, Any]:
    model = shard(vit().eval())
    batch = [images(4)]
    found = unsmooth.explain(model, batch)
    cells = unsmooth.measure(model, batch).cells
    return {
        "measured": {tuple(cell): moments.mean for cell, moments in cells.items()},
        "explained": [row["exponent"] for row in found.layers],
    }


def tensor_parallel() -> dict[str, Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    model: Any = llama()
    for layer in model.layers:
        plan = dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ColwiseParallel())
        parallelize_module(layer, mesh, {**plan, "self_attn.o_proj": RowwiseParallel()})
    cells = unsmooth.measure(model, [ids()]).cells
    return {
        "measured": {tuple(cell): moments.mean for cell, moments in cells.items()},
        "explain": said(lambda model: unsmooth.explain(model, [ids()]), model),
        "reparametrize": said(reparametrize, model),
    }
