"""The matrix that a quantised layer multiplies by, found by asking the layer itself.

Formats are many (bitsandbytes, torchao, GPTQ, AWQ, float8 with scales, 2 bits a weight) and change with their
libraries. What they share is that the layer is linear: its output on a unit vector is one column of its weight, times
1, plus zeros. So nothing is estimated, and no format has to be known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unsmooth.errors import WeightsError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models.wrappers import eagerly

MOST_ROUNDING = 0.1  # of what a layer gives on random features: beyond, it does something else than round its inputs


class Affine(NamedTuple):
    """What a linear layer multiplies by and adds, and how far rounding of its inputs takes its output from that."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None
    rounding: float  # relative to the output's norm, on random features; 0 where inputs are used as they come


def is_linear(module: object) -> bool:
    """Whether a module maps so many features to so many others, however it keeps its weight."""
    sizes = (getattr(module, name, None) for name in ("in_features", "out_features"))
    return isinstance(module, nn.Module) and all(isinstance(size, int) for size in sizes)


@torch.no_grad()
def ask(layer: nn.Module, where: str, device: torch.device, dtype: torch.dtype) -> Affine:
    """Weight and bias of a linear layer, from its outputs on the unit vectors; WeightsError where it is not linear.

    A tensor that knows how to dequantise itself (torchao) is asked instead. `where` names the layer in errors. The
    layer is called without its hooks, and on inputs of `dtype`.
    """
    unit = torch.eye(int(layer.in_features), device=device, dtype=dtype)  # type: ignore[arg-type]
    own = torch.Generator().manual_seed(0)  # nobody else's random numbers change
    x = torch.randn(16, len(unit), generator=own).to(unit)
    try:
        with _without_bias(layer), eagerly():
            inputs = (torch.zeros_like(unit[:1]), unit, 2 * unit, x)
            constant, columns, doubled, y = (layer.forward(given[None])[0] for given in inputs)
    except Exception as error:
        raise WeightsError(
            f"{where} is quantised, and its {type(layer).__name__} does not run on features of {dtype} on {device} "
            f"({type(error).__name__}: {error}), so its weight cannot be read: load the model without quantisation"
        ) from error
    columns, doubled, y = columns - constant, doubled - constant, y - constant
    found = _dequantised(getattr(layer, "weight", None))
    allowed = tolerance(columns.dtype, 1)
    if found is None:
        found = columns.mT.contiguous()
        linear = torch.allclose(doubled, 2 * columns, rtol=allowed, atol=allowed * float(columns.abs().max()))
    else:
        linear = True
    exact = x.float() @ found.float().mT
    size = exact.norm().clamp_min(torch.finfo(torch.float32).tiny)
    rounding = float((y - exact).norm() / size)
    # Rounding of random features has no direction: where they come out larger, the unit vectors were rounded too.
    drift = abs(float((y * exact).sum() / size.square()) - 1)
    if not linear or not rounding <= MOST_ROUNDING or drift > max(1e-3, allowed, 5 * rounding / y.numel() ** 0.5):
        raise WeightsError(
            f"{where} is quantised, and its {type(layer).__name__} is not the matrix that its unit vectors give (a "
            f"normalisation inside, or inputs rounded to fixed steps; random features come out {rounding:.1%} "
            "elsewhere): load the model without quantisation"
        )
    bias = getattr(layer, "bias", None)
    if not isinstance(bias, Tensor):
        bias = constant[0] if bool(constant.any()) else None
    return Affine(found, bias, rounding if rounding > allowed else 0.0)


def _dequantised(weight: object) -> Float[Tensor, "out in"] | None:
    if not isinstance(weight, Tensor) or type(weight).dequantize is Tensor.dequantize:
        return None
    return weight.dequantize()


@contextmanager
def _without_bias(layer: nn.Module) -> Iterator[None]:
    """Without what is added to the product: in few bits a weight beside a large bias would lose its last digits."""
    places: tuple[dict[str, Any], ...] = (layer._parameters, layer._buffers, vars(layer))
    for kept in places:
        bias = kept.get("bias")
        if isinstance(bias, Tensor):
            kept["bias"] = None
            try:
                yield
            finally:
                kept["bias"] = bias
            return
    yield
