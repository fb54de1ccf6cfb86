"""How a model keeps its numbers: plain tensors, or sharded, quantised and offloaded ones.

Measuring needs the forward pass only, and takes models that are kept in any way. Where a weight is read
(`LayerView.weights`), shards are gathered and quantised layers asked, one layer at a time; where it would be replaced
(`reparametrize`, `bake`), such weights are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unsmooth.errors import OptionError, WeightsError
from unsmooth.models.adapted import effective, is_adapted
from unsmooth.models.quantised import Affine, ask, is_linear

_PLAIN = (Tensor, nn.Parameter, nn.Buffer)
_ORDER = (
    "its new parameters would differ from process to process. Change the whole model first, shard it afterwards, and "
    "make the optimiser last"
)
GATHER = (
    "gather them with torch.distributed.checkpoint.state_dict.get_model_state_dict(model, "
    "options=StateDictOptions(full_state_dict=True)) and load them into a model that is not sharded"
)
#: Wrappers that take note of parameters when they are made: what is added later would never be synchronised.
_PARALLEL = ("DistributedDataParallel", "FullyShardedDataParallel", "DataParallel")
_QUANTISED = (
    "load the model without quantisation, or make it plain first (`model.dequantize()` in Hugging Face; torchao: "
    "`module.weight = nn.Parameter(module.weight.dequantize())`)"
)


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process holds a part of it only: a DTensor, of FSDP2 or tensor parallelism."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """The tensor itself; of a sharded one all of it, gathered (so every process must call this), with gradients."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else gather()


def is_plain(weight: object) -> bool:
    """Whether the numbers in this tensor are the weight, and nothing else is; sharded or not."""
    if not isinstance(weight, Tensor) or weight.is_meta or hasattr(weight, "ds_id"):
        return False
    return (type(weight) in _PLAIN or is_sharded(weight)) and weight.is_floating_point() and weight.element_size() >= 2


def read_affine(owner: nn.Module, weight: str, bias: Tensor | None, where: str, block: nn.Module) -> Affine:
    """Weight and bias with which a module computes: gathered where they are sharded, asked for where quantised.

    `where` names layer and tensor; `block` says in which dtype features come where the module cannot.
    """
    kept: Any = getattr(owner, weight, None)
    if is_adapted(owner) and weight == "weight":
        return effective(owner, *home(owner, block))
    present = not any(p.is_meta or is_sharded(p) for p in owner.parameters()) and not hasattr(kept, "ds_id")
    if not is_plain(kept) and weight == "weight" and is_linear(owner) and present:
        return ask(owner, where, *home(owner, block))
    kept = whole(kept) if is_plain(kept) else kept
    refuse_unreadable(kept, owner, where)
    return Affine(kept, None if bias is None else whole(bias), 0.0)


def refuse_unreadable(weight: object, owner: nn.Module, where: str) -> None:
    """WeightsError unless the numbers in this tensor are the weight, all of it, and nothing else is.

    `where` names layer and tensor; `owner` is the module that computes with it.
    """
    kind, module = type(weight), type(owner).__name__
    if is_adapted(owner):
        package = type(owner).__module__.partition(".")[0]
        raise WeightsError(
            f"{where} is wrapped by an adapter ({package}'s {module}), and its numbers "
            "are not what it multiplies by: merge the adapter first (model.merge_and_unload())"
        )
    if not isinstance(weight, Tensor):
        raise WeightsError(f"{where} is quantised (packed away in a {module}): {_QUANTISED}")
    if is_sharded(weight):
        raise WeightsError(f"{where} is sharded ({_sharding(weight)}), and its whole weight is needed: {GATHER}")
    if hasattr(weight, "ds_id"):
        raise WeightsError(f"{where} is sharded (DeepSpeed ZeRO-3): read it inside deepspeed.zero.GatheredParameters")
    if weight.is_meta:
        raise WeightsError(
            f"{where} is on the meta device, without values (offloaded to disk or CPU by accelerate, or never loaded): "
            "load the model into memory"
        )
    if not is_plain(weight):
        held = f"{kind.__name__} of {weight.dtype}" if kind not in _PLAIN else f"{weight.dtype}"
        raise WeightsError(
            f"{where} is quantised ({held} in a {module}), and its numbers are not the weights themselves: {_QUANTISED}"
        )
    if weight.dim() != 2:
        raise WeightsError(
            f"{where}: expected a matrix, got shape {tuple(weight.shape)}: sharded weights (FullyShardedDataParallel) "
            "are flat outside the forward pass; give the model from before it was wrapped"
        )


def refuse_computed(owner: nn.Module, weight: str, where: str) -> None:
    """WeightsError for a weight that its module computes from others: what were written into it would not last."""
    if parametrize.is_parametrized(owner, weight):
        raise WeightsError(
            f"{where} is already parametrised: `bake` the model if it is reparametrised or adapted, or take "
            "weight_norm and the like away (torch.nn.utils.parametrize.remove_parametrizations)"
        )
    if weight not in owner._parameters and weight not in owner._buffers:
        raise WeightsError(
            f"{where} is computed from other tensors in every pass (by pruning, or by an older weight_norm or "
            "spectral_norm): make it permanent first (prune.remove, remove_weight_norm, remove_spectral_norm)"
        )


def refuse_without_values(model: nn.Module) -> None:
    """WeightsError for a model that was never loaded; one that accelerate offloads gets its values in time."""
    first = next(model.parameters(), None)
    if first is None or not first.is_meta:  # the usual case, at no cost
        return
    offloaded = any(_execution_device(module) is not None for module in model.modules())
    if not offloaded and all(weight.is_meta for weight in model.parameters()):
        raise WeightsError(
            f"{type(model).__name__} is on the meta device: its weights have shapes and no values. Load them first "
            "(from_pretrained, or to_empty and load_state_dict), or build the model without torch.device('meta')"
        )


@contextmanager
def onloaded(module: nn.Module) -> Iterator[None]:
    """With the values of weights that accelerate keeps elsewhere (CPU, disk) until a forward pass needs them."""
    parts = [part for part in module.modules() if getattr(getattr(part, "_hf_hook", None), "offload", False)]
    try:
        for part in parts:
            part._hf_hook.pre_forward(part)  # type: ignore[union-attr, operator]
        yield
    finally:
        for part in parts:
            part._hf_hook.post_forward(part, None)  # type: ignore[union-attr, operator]


def refuse_sharded(model: nn.Module, remedy: str = "") -> None:
    """OptionError where parameters that come later, or take the place of others, would not be synchronised."""
    for path, module in model.named_modules():
        kinds = [base.__name__ for base in type(module).__mro__]
        if kinds[0] in _PARALLEL:
            raise OptionError(
                f"{kinds[0]} knows only the parameters that were there when it was made: change the "
                "model inside first, and wrap it afterwards"
            )
        sharded = next((name for name, p in module.named_parameters(recurse=False) if is_sharded(p)), None)
        if "FSDPModule" in kinds or sharded is not None:
            what = repr(f"{path}.{sharded}".lstrip(".") if sharded else path) if sharded or path else "the model"
            raise OptionError(f"{what} is sharded already (fully_shard or parallelize_module): {remedy or _ORDER}")


def home(*modules: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where a module takes its inputs, and the dtype it computes in; the next module says what this one cannot.

    Offloaded parameters are on the meta device until their turn. Quantised ones are of a dtype that no features have,
    and the scales beside them may be halves where features are not.
    """
    device: torch.device | None = None
    dtype: torch.dtype | None = None
    scales: torch.dtype | None = None
    for packed, tensor in _tensors(modules):
        if device is None and not tensor.is_meta:
            device = tensor.device
        if dtype is None and tensor.is_floating_point() and tensor.element_size() >= 2:
            dtype, scales = (None, scales or tensor.dtype) if packed else (tensor.dtype, None)
        if device is not None and dtype is not None:
            break
    dtype = dtype or scales
    parts = (part for module in modules for part in module.modules())
    where = next((d for part in parts if (d := _execution_device(part)) is not None), device)
    return where or torch.device("cpu"), dtype or torch.get_default_dtype()


def _tensors(modules: Iterable[nn.Module]) -> Iterator[tuple[bool, Tensor]]:
    """All tensors, parameters first, and whether they belong to a quantised layer."""
    for module in modules:
        for kind in ("_parameters", "_buffers"):
            for part in module.modules():
                tensors = [tensor for tensor in getattr(part, kind).values() if tensor is not None]
                packed = bool(tensors) and is_linear(part) and not is_plain(getattr(part, "weight", None))
                yield from ((packed, tensor) for tensor in tensors)


def _execution_device(module: nn.Module) -> torch.device | None:
    """Where accelerate runs this module, if it moves its weights there for the time of the call."""
    # A module's own getattr looks through its parameters and fails by an exception: home() asks every module each time.
    device = getattr(module.__dict__.get("_hf_hook"), "execution_device", None)
    return None if device is None else torch.device(device if not isinstance(device, int) else f"cuda:{device}")


def _sharding(weight: Tensor) -> str:
    mesh, placements = getattr(weight, "device_mesh", None), getattr(weight, "placements", ())
    over = f" over {mesh.size()} processes" if mesh is not None else ""
    return f"{type(weight).__name__}{over}, {', '.join(map(str, placements))}"
