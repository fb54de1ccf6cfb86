"""Eq. (1), iterated: no normalisation, Pre-LN or Post-LN, attention frozen or recomputed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.errors import FeatureError, OptionError, WeightsError
from unsmooth.metrics import cosine_similarity, hfc_lfc_ratio
from unsmooth.metrics.dense import require_real

Placement = Literal["pre", "post"]
Attention = Float[Tensor, "*heads token token"] | Callable[[Tensor], Tensor]
Pair = tuple[Float[Tensor, "head dim key"], Float[Tensor, "head key dim"]]


@dataclass(frozen=True)
class Simulation:
    """The last state, and one number per layer (index 0 is the start).

    With no norm and frozen attention the update is linear, so the state is divided by its norm after every layer;
    `log_scale` is the logarithm of all that was divided away up to each layer.
    """

    x: Float[Tensor, "*batch token dim"]
    hfc_lfc: Float[Tensor, "*batch layers"]
    cosine: Float[Tensor, "*batch layers"]
    log_scale: Float[Tensor, "*batch layers"]

    @property
    def verdict(self) -> Literal["smoothing", "sharpening"]:
        """Whether HFC/LFC ended below where it started (mean of logarithms over the batch)."""
        change = (self.hfc_lfc[..., -1].log() - self.hfc_lfc[..., 0].log()).mean()
        return "smoothing" if change < 0 else "sharpening"


def simulate(
    x: Float[Tensor, "*batch token dim"],
    a: Attention,
    w: Float[Tensor, "*heads dim dim"] | Pair,
    layers: int = 128,
    norm: Placement | None = None,
    *,
    norm_weight: Float[Tensor, " dim"] | None = None,
    norm_bias: Float[Tensor, " dim"] | None = None,
    eps: float = 1e-5,
    constant: Float[Tensor, " dim"] | None = None,
    residual: bool = True,
    feed_forward: Callable[[Tensor], Tensor] | None = None,
) -> Simulation:
    """Repeat one attention layer, `X ← X + Σ_h A_h X W_h` with `W_h = H_hᵀ`, and record the metrics of every step.

    One head: `a (..., n, n)`, `w (d, d)`. Many: `a (..., h, n, n)`, `w (h, d, d)` or `(w_v, w_proj)`. A callable
    `a` is asked for the attention of every layer's (normalised) input. `constant` is what every token gets on top
    (a bias). `feed_forward` is a second sub-layer.
    """
    step = _step(a, w)
    _check(x, a, w)
    if norm not in (None, "pre", "post"):
        raise OptionError.unknown("norm", norm, [None, "pre", "post"])
    if layers < 1:
        raise OptionError(f"layers must be at least 1, got {layers}")

    def normalise(state: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(state, state.shape[-1:], norm_weight, norm_bias, eps)

    def sublayer(state: Tensor, f: Callable[[Tensor], Tensor], skip: bool) -> Tensor:
        added = f(normalise(state) if norm == "pre" else state)
        state = state + added if skip else added
        return normalise(state) if norm == "post" else state

    def attend(state: Tensor) -> Tensor:
        added = step(state)
        # the state was divided by e^{log_scale}, and so is what is added to it
        return added if constant is None else added + constant * (-log_scale).exp()[..., None, None]

    homogeneous = norm is None and feed_forward is None and isinstance(a, Tensor)
    state, log_scale = x, x.new_zeros(x.shape[:-2])
    together = max(1, min(64, 2**22 // max(1, x.numel())))  # small metrics are mostly overhead: many layers at once
    states, scales, found = [x], [log_scale], []
    for layer in range(1, layers + 1):
        state = sublayer(state, attend, residual)
        if feed_forward is not None:
            state = sublayer(state, feed_forward, True)
        if state.shape != x.shape:
            raise WeightsError(f"a and w make {tuple(state.shape)} of x's shape {tuple(x.shape)}: give x their batch")
        if homogeneous:
            size = state.norm(dim=(-2, -1))
            size = torch.where(size > 0, size, 1)
            state, log_scale = state / size[..., None, None], log_scale + size.log()
        states.append(state)
        scales.append(log_scale)
        if len(states) >= together or layer == layers:
            found.append(_metrics(states, layer))
            states = []
    ratios, cosines = (torch.cat(parts).movedim(0, -1) for parts in zip(*found, strict=True))
    return Simulation(state, ratios, cosines, torch.stack(scales, -1))


def _metrics(states: list[Tensor], last: int) -> tuple[Tensor, Tensor]:
    """HFC/LFC and cosine similarity of the states up to layer `last`."""
    stacked = torch.stack(states)
    broken = ~torch.isfinite(stacked).flatten(1).all(1)
    if bool(broken.any()):
        layer = last - len(states) + 1 + int(broken.int().argmax())
        raise FeatureError(f"features are not finite after layer {layer}: take fewer layers or smaller weights")
    return hfc_lfc_ratio(stacked), cosine_similarity(stacked)


def _check(x: Tensor, a: Attention, w: Tensor | Pair) -> None:
    """Errors that name the argument, before the first layer fails inside a product."""
    pair = isinstance(w, tuple | list)
    if pair and len(w) != 2:
        raise WeightsError(f"w must be (dim, dim), (heads, dim, dim) or (w_v, w_proj), got {len(w)} parts")
    parts: list[tuple[str, object]] = [("x", x), *([("w_v", w[0]), ("w_proj", w[1])] if pair else [("w", w)])]
    if isinstance(a, Tensor) or not callable(a):
        parts.append(("a", a))
    for name, part in parts:
        require_real(part, name)
        assert isinstance(part, Tensor)
        if part.ndim < 2 or part.dtype != x.dtype:
            came = f"{part.dtype} of shape {tuple(part.shape)}"
            raise WeightsError(f"{name} must be matrices of the dtype that x has ({x.dtype}), got {came}")
    tokens, dim = x.shape[-2:]
    if isinstance(a, Tensor) and a.shape[-2:] != (tokens, tokens):
        raise WeightsError(f"a must be (…, {tokens}, {tokens}) for {tokens} tokens, got shape {tuple(a.shape)}")
    ends = (w.shape[-2], w.shape[-1]) if isinstance(w, Tensor) else (w[0].shape[-2], w[1].shape[-1])
    if ends != (dim, dim):
        raise WeightsError(f"w must lead from {dim} features to {dim}, as x has, got from {ends[0]} to {ends[1]}")


def _step(a: Attention, w: Tensor | Pair) -> Callable[[Tensor], Tensor]:
    """`X ↦ Σ_h A_h X W_h`."""
    single = isinstance(w, Tensor) and w.ndim == 2
    if isinstance(w, Tensor) and w.ndim not in (2, 3):
        raise WeightsError(f"w must be (dim, dim), (heads, dim, dim) or (w_v, w_proj), got shape {tuple(w.shape)}")

    def step(x: Tensor) -> Tensor:
        attention = a if isinstance(a, Tensor) else a(x)
        try:
            if isinstance(w, Tensor):
                return attention @ x @ w if single else (attention @ x[..., None, :, :] @ w).sum(-3)
            return (attention @ (x[..., None, :, :] @ w[0]) @ w[1]).sum(-3)
        except RuntimeError as error:
            shapes = f"a {tuple(attention.shape)} and x {tuple(x.shape)}"
            raise WeightsError(f"{shapes} do not go together with w ({error}): give one map per head") from error

    return step
