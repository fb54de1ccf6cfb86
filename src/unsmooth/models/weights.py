"""W_V and W_proj per head in the paper's orientation, and the normalisations around the attention."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from unsmooth.errors import WeightsError
from unsmooth.models.adapted import is_adapted
from unsmooth.models.family import AttentionRow, Slot
from unsmooth.models.fused_rows import rows_of
from unsmooth.models.quantised import Affine, is_linear
from unsmooth.models.storage import is_plain, read_affine, refuse_computed, refuse_unreadable, whole
from unsmooth.models.taps import Paths, find

if TYPE_CHECKING:
    from unsmooth.models.view import LayerView

# What people call a norm's weight and bias.
_NORM_NAMES = (("weight", "gamma", "g", "scale", "a_2"), ("bias", "beta", "b", "b_2"))
_KINDS: tuple[Literal["layer", "rms"], ...] = ("layer", "rms")


@dataclass(frozen=True)
class Norm:
    """A normalisation over features; Gemma's 1 + weight is already in `weight`."""

    kind: Literal["layer", "rms"]
    weight: Float[Tensor, " dim"] | None
    bias: Float[Tensor, " dim"] | None
    eps: float

    def __call__(self, x: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
        """The normalised features.

        >>> Norm("layer", None, None, 0.0)(torch.tensor([1.0, 3.0]))
        tensor([-1.,  1.])
        """
        centred = x - x.mean(-1, keepdim=True) if self.kind == "layer" else x
        y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        y = y if self.weight is None else y * self.weight
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True)
class HeadWeights:
    """X' = X + Σ_h A_h X W_V^h W_proj^h on row vectors (eq. 1), and what surrounds it in the module."""

    w_v: Float[Tensor, "head dim key"]
    w_proj: Float[Tensor, "head key dim"]
    b_v: Float[Tensor, "head key"] | None
    b_proj: Float[Tensor, " dim"] | None
    norm: Norm | None = None  # on the attention's input
    out_norm: Norm | None = None  # on its output, before the sum
    out_scale: Float[Tensor, " dim"] | None = None  # LayerScale
    post_norm: Norm | None = None  # after the sum
    rounding: float = 0.0  # how far quantised inputs take the layers from these weights, relative to what they give


def read_weights(layer: LayerView) -> HeadWeights:
    """The layer's weights, derived from its parameters (so differentiable with respect to them)."""
    row = layer.attention_row
    _refuse_nonlinear(layer, row)
    v, b_v, v_rounding = _read(layer, row.value)
    proj, b_proj, rounding = _read(layer, row.proj)
    heads, kv_heads = layer.heads, layer.kv_heads
    if proj.shape[1] % heads or v.shape[0] % kv_heads or heads % kv_heads:
        raise WeightsError(
            f"{layer.name}: {heads} heads and {kv_heads} key-value heads do not divide the value and output "
            f"projections, of shapes {tuple(v.shape)} and {tuple(proj.shape)} (out, in)"
        )
    group = heads // kv_heads
    scale = find(layer.block, row.scale)
    return HeadWeights(
        w_v=v.unflatten(0, (kv_heads, -1)).transpose(1, 2).repeat_interleave(group, 0),
        w_proj=proj.t().unflatten(0, (heads, -1)),
        b_v=None if b_v is None else b_v.unflatten(0, (kv_heads, -1)).repeat_interleave(group, 0),
        b_proj=b_proj,
        norm=_read_norm(layer, row, row.norm),
        out_norm=_read_norm(layer, row, row.out_norm),
        out_scale=_scale(scale, proj),
        post_norm=_read_norm(layer, row, row.post_norm),
        rounding=max(v_rounding, rounding),
    )


def _scale(scale: object, proj: Float[Tensor, "dim feature"]) -> Float[Tensor, " dim"] | None:
    """A number stands for all features; HF's BEiT without LayerScale has 1.0 there."""
    if isinstance(scale, float) and scale != 1.0:
        return proj.new_full((len(proj),), scale)
    return whole(scale) if isinstance(scale, Tensor) else None


@torch.no_grad()
def write_weights(layer: LayerView, w_v: Float[Tensor, "head dim key"], w_proj: Float[Tensor, "head key dim"]) -> None:
    """Put per-head weights back where the module keeps them; biases stay."""
    row = layer.attention_row
    _refuse_nonlinear(layer, row)
    if layer.kv_heads != layer.heads:
        raise WeightsError(
            f"{layer.name}: its {layer.heads} query heads share {layer.kv_heads} value heads, so a W_V per "
            "query head cannot be written; expected a model without grouped queries"
        )
    expected = (layer.heads, layer.width, layer.key_dim)
    if tuple(w_v.shape) != expected or tuple(w_proj.shape) != (expected[0], expected[2], expected[1]):
        raise WeightsError(
            f"{layer.name}: expected W_V of shape {expected} (head, dim, key) and W_proj of shape "
            f"{(expected[0], expected[2], expected[1])} (head, key, dim); "
            f"got {tuple(w_v.shape)} and {tuple(w_proj.shape)}"
        )
    _write(layer, row.value, w_v.transpose(1, 2).flatten(0, 1))
    _write(layer, row.proj, w_proj.flatten(0, 1).t())


@torch.no_grad()
def write_projection(
    layer: LayerView, w_proj: Float[Tensor, "head key dim"], before: list[tuple[Tensor, Tensor]]
) -> nn.Module:
    """Put W_proj of every query head back into its own parameter; `before` gets that parameter and a copy of it."""
    slot, owner, name = _found(layer, layer.attention_row.proj)
    weight: Any = getattr(owner, name, None)
    refuse_unreadable(weight, owner, f"{layer.name}: {slot.path}.{slot.weight}")
    refuse_computed(owner, name, f"{layer.name}: {slot.path}.{slot.weight}")
    before.append((weight, weight.detach().clone()))
    rows_first = weight.data.t() if slot.transposed else weight.data
    rows_of(layer, slot, len(rows_first)).write(rows_first, w_proj.flatten(0, 1).t())
    return owner


def slot_of(block: nn.Module, slots: Slot | tuple[Slot, ...]) -> tuple[Slot, nn.Module, str] | None:
    """The first slot that this block has, the module that holds its weight, and the weight's name.

    A linear layer that packs its weight away (GPTQ) is one too; a quantised one is (out, in) in place of a Conv1D.
    """
    for slot in (slots,) if isinstance(slots, Slot) else slots:
        owner = find(block, slot.path)
        inner, _, name = slot.weight.rpartition(".")
        holder = find(owner, inner)
        weight = find(owner, slot.weight)
        packed = name == "weight" and is_linear(holder) and (is_adapted(holder) or not is_plain(weight))
        if (packed or isinstance(weight, Tensor)) and (slot.bias_fused or isinstance(find(owner, slot.bias), Tensor)):
            return replace(slot, transposed=False) if packed else slot, holder, name
    return None


def shape_of(owner: nn.Module, name: str) -> tuple[int, int]:
    """Rows and columns of a weight, also where it is packed."""
    if name == "weight" and is_linear(owner):
        return int(owner.out_features), int(owner.in_features)  # type: ignore[arg-type]
    rows, columns = getattr(owner, name).shape
    return rows, columns


def _found(layer: LayerView, slots: Slot | tuple[Slot, ...]) -> tuple[Slot, nn.Module, str]:
    found = slot_of(layer.block, slots)
    if found is None:
        every = (slots,) if isinstance(slots, Slot) else slots
        there = next((type(part).__name__ for s in every if (part := find(layer.block, s.path)) is not None), "nothing")
        raise WeightsError(
            f"{layer.name} of family {layer.family.name!r} keeps no plain weight at "
            f"{' or '.join(f'{s.path}.{s.weight}' for s in every)} in {type(layer.block).__name__} ({there} is there): "
            "merge adapters (LoRA) into the weights, load without quantisation"
        )
    return found


def _read(layer: LayerView, slots: Slot | tuple[Slot, ...]) -> Affine:
    slot, owner, name = _found(layer, slots)
    bias = find(find(layer.block, slot.path), slot.bias)
    bias = bias if isinstance(bias, Tensor) else None
    found = read_affine(owner, name, bias, f"{layer.name}: {slot.path}.{slot.weight}", layer.block)
    weight = found.weight.t() if slot.transposed else found.weight
    rows = rows_of(layer, slot, len(weight))
    bias = rows.read(found.bias) if found.bias is not None and slot.bias_fused else found.bias
    return Affine(rows.read(weight), bias, found.rounding)


def _write(layer: LayerView, slots: Slot | tuple[Slot, ...], new: Float[Tensor, "out in"]) -> None:
    slot, owner, name = _found(layer, slots)
    refuse_unreadable(getattr(owner, name, None), owner, f"{layer.name}: {slot.path}.{slot.weight}")
    every = getattr(owner, name).detach().clone()
    rows_first = every.t() if slot.transposed else every
    rows_of(layer, slot, len(rows_first)).write(rows_first, new)
    if parametrize.is_parametrized(owner, name):
        setattr(owner, name, every)  # goes through the parametrisation's right_inverse
    else:
        getattr(owner, name).copy_(every)


def _read_norm(layer: LayerView, row: AttentionRow, paths: Paths) -> Norm | None:
    module = find(layer.block, paths)
    if module is None or isinstance(module, nn.Identity):
        return None
    kind = norm_kind(module)
    if kind is None:
        raise WeightsError(
            f"{layer.name}: {type(module).__name__} is neither a LayerNorm nor an RMSNorm, "
            "so it cannot be folded into W_V"
        )
    weight, bias = norm_parameters(module)
    says = hasattr(module, "eps") or hasattr(module, "variance_epsilon")
    if not says and row.norm_eps is None:
        raise WeightsError(
            f"{layer.name}: {type(module).__name__} does not say its epsilon: expected an attribute eps or "
            "variance_epsilon, so that it can be folded into W_V"
        )
    eps = find(module, ("eps", "variance_epsilon")) if says else row.norm_eps
    dtype = weight.dtype if isinstance(weight, Tensor) else torch.get_default_dtype()
    return Norm(
        kind=kind,
        weight=weight + row.norm_offset if weight is not None and row.norm_offset else weight,
        bias=bias,
        eps=torch.finfo(dtype).eps if eps is None else float(eps),
    )


def norm_parameters(module: nn.Module) -> tuple[Tensor | None, Tensor | None]:
    """A norm's weight and bias, whatever their usual names; WeightsError where it has other parameters."""
    found = [next((n for n in names if isinstance(getattr(module, n, None), Tensor)), "") for names in _NORM_NAMES]
    if others := [name for name, _ in module.named_parameters(recurse=False) if name not in found]:
        raise WeightsError(
            f"{type(module).__name__} has {', '.join(others)}, expected a weight ({', '.join(_NORM_NAMES[0])}) and a "
            f"bias ({', '.join(_NORM_NAMES[1])}) at most: what it does cannot be folded into W_V"
        )
    weight, bias = (whole(getattr(module, name)).reshape(-1) if name else None for name in found)
    return weight, bias


def norm_kind(module: nn.Module) -> Literal["layer", "rms"] | None:
    """Which normalisation a module is, by the names of its classes and by what it does; None if it is none."""
    names = [base.__name__.lower() for base in type(module).__mro__]
    if any("rmsnorm" in name for name in names):
        return "rms"
    if isinstance(module, nn.LayerNorm):
        return "layer"
    try:
        if any("layernorm" in name for name in names):
            return "layer" if _subtracts_the_mean(module) else "rms"
        return _kind_by_values(module)
    except Exception:  # any module: it takes or gives something else than features (I-BERT's scales, BatchNorm's maps)
        return None


@torch.no_grad()
def _kind_by_values(module: nn.Module) -> Literal["layer", "rms"] | None:
    """Of a class with another name (RMS, Norm): whether its values are those of a normalisation."""
    own = dict(module.named_parameters(recurse=False))
    if not 1 <= len(own) <= 2 or any(p.dim() != 1 for p in own.values()) or next(module.children(), None) is not None:
        return None
    (some, *_) = own.values()
    try:
        weight, bias = norm_parameters(module)
    except WeightsError:
        return None
    x = torch.linspace(-3, 5, some.numel(), dtype=some.dtype, device=some.device).view(1, 1, -1)
    y = module.forward(x)
    for kind in _KINDS:
        for offset in (0.0, 1.0):
            expected = Norm(kind, None if weight is None else weight + offset, bias, 0.0)(x)
            if y.shape == x.shape and bool((y - expected).abs().max() <= 1e-3 * expected.abs().max()):
                return kind
    return None


@torch.no_grad()
def _subtracts_the_mean(module: nn.Module) -> bool:
    """Whether a shift of all features changes nothing: T5's LayerNorm, for one, is an RMSNorm."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        return True
    x = torch.linspace(-1, 1, weight.numel(), dtype=weight.dtype, device=weight.device).view(1, 1, *weight.shape)
    y, shifted = module.forward(x), module.forward(x + 2)  # forward: hooks must not see these
    return bool((y - shifted).abs().max() <= 0.1 * (y - y.mean()).abs().max())


def _refuse_nonlinear(layer: LayerView, row: AttentionRow) -> None:
    for path in row.nonlinear:
        part = find(layer.block, path)
        if part is not None and not isinstance(part, nn.Identity):
            raise WeightsError(
                f"{layer.name} of family {layer.family.name!r}: {path} ({type(part).__name__}) stands between "
                "the attention's input and W_proj, so the attention is not Σ A_h X W_V^h W_proj^h"
            )
