"""What each process of the sharding tests does; its own module, so that a spawned process can import it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from control.cases import images, vit
from model_cases import DECODER, hf
from processes import joined
from torch import Tensor, nn
from torch.distributed.tensor import distribute_tensor

import unsmooth
from unsmooth.control import ControlMonitor, apply_fix, bake, control_of, reparametrize, spectral_penalty
from unsmooth.errors import UnsmoothError
from unsmooth.models import view
from unsmooth.models.storage import is_sharded, whole

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


def llama(kv_heads: int = 2) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = hf("Llama", **{**DECODER, "num_key_value_heads": kv_heads})()
    return model.eval()


def ids() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(12).reshape(2, 6) + 3}


def run_sharded(rank: int, folder: str, part: str) -> None:
    """One part in this process of two or more; the first saves what came of it."""
    torch.set_num_threads(1)
    with joined(rank, folder, MORE.get(part, 2)):
        found = PARTS[part](rank)
        if rank == 0:
            torch.save(found, f"{folder}/found.pt")


def shard(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
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
        "write": said(
            lambda model: view(model).layers[0].write(torch.zeros(3, 24, 8), torch.zeros(3, 8, 24)), shard(vit())
        ),
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


def analysed(model: nn.Module, batch: Any) -> dict[str, Any]:
    """Every number that analysis makes, and the same from whole weights and from shards."""
    plan = {"measured": unsmooth.measure, "explained": unsmooth.explain, "attributed": unsmooth.attribute}
    found = {name: verb(model, [batch]) for name, verb in plan.items()}
    return {
        "measured": {tuple(cell): moments.mean for cell, moments in found["measured"].cells.items()},
        "explained": [row["exponent"] for row in found["explained"].layers],
        "attributed": found["attributed"].frame()["mean"].tolist(),
        "w_proj": view(model).layers[1].weights().w_proj.detach(),
    }


def penalised(model: nn.Module) -> dict[str, Any]:
    """A penalty on the weights of a model that was sharded as it is."""
    penalty = spectral_penalty(model, "sharpening")
    penalty.backward()
    gradient = model.blocks[0].attn.qkv.weight.grad  # type: ignore[union-attr, index]
    return {"penalty": penalty.detach(), "gradient": whole(gradient)}


def watched(model: nn.Module, through: nn.Module | None, batch: Any, every: int | None) -> dict[str, Any]:
    """Three steps, with a reading after every second one or without any."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    watcher = unsmooth.watch(through or model, batch, every=every or 2)
    with watcher if every else nullcontext():
        for _ in range(3):
            out = (through or model)(**batch) if isinstance(batch, dict) else (through or model)(batch)
            (out if isinstance(out, Tensor) else out.last_hidden_state).square().mean().backward()
            optimiser.step()
            optimiser.zero_grad()
    readings = {r.step: {tuple(c): m.mean for c, m in r.measurement.cells.items()} for r in watcher.history}
    return {"readings": readings, "state": {name: whole(p).detach() for name, p in model.named_parameters()}}


def parallel(how: str) -> nn.Module:
    """A Llama under tensor parallelism: by torch's own styles, or by Hugging Face's plan for it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    processes = torch.distributed.get_world_size()
    mesh = init_device_mesh("cpu", (processes,))
    model: Any = llama(processes)  # each has at least one head of keys
    if how == "plan":
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism

        state = {name: p.detach().clone() for name, p in model.named_parameters()}
        if "tp_plan" in inspect.signature(apply_tensor_parallelism).parameters:  # transformers 5.23 on
            apply_tensor_parallelism(model, mesh, model._expand_parallel_plan(model.tp_plan))
        else:
            apply_tensor_parallelism(model, mesh)
        for name, p in model.named_parameters():  # as its loader does: placeholders get this process's part
            if is_sharded(p):
                p.data = distribute_tensor(state[name], mesh, p.placements)
        return model  # type: ignore[no-any-return]
    for layer in model.layers:
        plan = dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ColwiseParallel())
        parallelize_module(layer, mesh, {**plan, "self_attn.o_proj": RowwiseParallel()})
    return model  # type: ignore[no-any-return]


def fsdp(rank: int) -> dict[str, Any]:
    readings = {every: watched(shard(vit()), None, images(4), every) for every in (2, None)}
    return {**analysed(shard(vit().eval()), images(4)), "watched": readings}


def tensor_parallel(how: str) -> dict[str, Any]:
    model = parallel(how)
    readings = {every: watched(parallel(how), None, ids(), every) for every in (2, None)}
    return {**analysed(model, ids()), "reparametrize": said(reparametrize, model), "watched": readings}


def data_parallel() -> dict[str, Any]:
    """All processes have the same inputs, so that they step as one process does."""
    readings = {}
    for every in (2, None):
        model = vit()
        readings[every] = watched(model, nn.parallel.DistributedDataParallel(model), images(4), every)
    return {**analysed(nn.parallel.DistributedDataParallel(vit().eval()), images(4)), "watched": readings}


#: On more processes than two: parts of a tensor with one row are empty on all but the first; one head of four to each.
MORE = {"fsdp-3": 3, "styles-4": 4, "ddp": 3}

#: Each in a start of its own: a library that aborts one of them takes no other with it.
PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    "refused": lambda rank: refusals(),
    "trained": trained,
    "penalised": lambda rank: penalised(shard(vit())),
    "fsdp": fsdp,
    "styles": lambda rank: tensor_parallel("styles"),
    "plan": lambda rank: tensor_parallel("plan"),
    "fsdp-3": fsdp,
    "styles-4": lambda rank: tensor_parallel("styles"),
    "ddp": lambda rank: data_parallel(),
}
