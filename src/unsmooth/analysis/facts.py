"""What a layer's weights say without any data: eigenvalues before and after folding, shares, normality."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from unsmooth.metrics.tolerance import is_zero
from unsmooth.models import LayerView
from unsmooth.theory.folding import Folded, fold
from unsmooth.theory.lemma2 import corollary3
from unsmooth.theory.normality import departure_from_normality, head_conditions, layer_condition, layer_departure
from unsmooth.theory.spectrum import HSpectrum, spectrum_of_h

WHOLE = -1  # the "head" of a row that is about Σ_h H_h


@dataclass(frozen=True)
class LayerFacts:
    """A layer's folded weights and spectra, computed once and used for every batch."""

    index: int
    folded: Folded
    raw: HSpectrum
    effective: HSpectrum
    leading: Complex[Tensor, " dim"]  # the eigenvector of the folded Σ_h H_h that the mean tends to
    rows: list[dict[str, Any]] = field(repr=False)


def layer_facts(layer: LayerView, folded: bool = True) -> LayerFacts:
    """Spectra and rows of one layer; with `folded=False` the raw weights stand for the effective ones."""
    weights = layer.weights()
    wide = torch.float32 if weights.w_v.dtype in (torch.bfloat16, torch.float16) else weights.w_v.dtype
    packed = fold(weights, wide)
    raw = spectrum_of_h(packed.raw.w_v, packed.raw.w_proj)
    pair = packed.pair if folded else (packed.raw.w_v, packed.raw.w_proj)
    total = (pair[0].double() @ pair[1].double()).sum(0).cpu()
    found = torch.linalg.eig(total.mT)  # H = Wᵀ
    effective = HSpectrum(spectrum_of_h(*pair, layer=False).heads, found.eigenvalues, raw.dim)
    plain = (packed.raw.w_v.double() @ packed.raw.w_proj.double()).sum(0).cpu()
    rows = _rows(layer.index, False, raw, (packed.raw.w_v, packed.raw.w_proj), plain, None)
    if folded:
        rows += _rows(layer.index, True, effective, pair, total, layer_condition(total.mT, *found))
    step_free = found.eigenvalues.real if packed.norm is not None and folded else (1 + found.eigenvalues).abs()
    return LayerFacts(layer.index, packed, raw, effective, found.eigenvectors[:, step_free.argmax()], rows)


def eigenvalue_shares(values: Complex[Tensor, " size"]) -> dict[str, float]:
    """Shares of eigenvalues in [−1, 0), (0, ∞) and outside: strictly (complex ones are outside), and by real part.

    >>> found = eigenvalue_shares(torch.tensor([-0.5, -1.5, 0.2, 0.2 + 1j]))
    >>> [round(found[k], 6) for k in ("negative", "positive", "outside", "re_positive")]
    [0.25, 0.25, 0.5, 0.5]
    """
    values = torch.as_tensor(values).to(torch.complex128)
    scale = float(values.abs().max()) if len(values) else 0.0
    real = values.imag.abs() <= 1e-9 * scale
    zero = is_zero(values)
    negative, positive = (values.real >= -1) & (values.real < 0) & ~zero, (values.real > 0) & ~zero
    shares = {
        "negative": negative & real,
        "positive": positive & real,
        "outside": ~((negative | positive) & real),
        "re_negative": negative,
        "re_positive": positive,
        "re_outside": ~(negative | positive),
        "complex": ~real,
    }
    return {name: float(chosen.double().mean()) for name, chosen in shares.items()}


def alignment(
    x: Float[Tensor, "batch token dim"], direction: Complex[Tensor, " dim"], mask: Tensor | None
) -> Float[Tensor, " batch"]:
    """Mean over tokens of |cos| between a token and an eigenvector; a complex one spans a plane."""
    plane = torch.stack([direction.real, direction.imag], -1).to(x.device, x.dtype)
    basis = torch.linalg.qr(plane.double()).Q.to(x) if bool(direction.imag.abs().max() > 1e-9) else plane[:, :1]
    basis = basis / basis.norm(dim=0)
    length = x.norm(dim=-1)
    cosines = (x @ basis).norm(dim=-1) / torch.where(length > 0, length, 1)
    if mask is None:
        return cosines.mean(-1)
    return (cosines * mask).sum(-1) / mask.sum(-1)


def _rows(
    layer: int, folded: bool, spectrum: HSpectrum, pair: tuple[Tensor, Tensor], total: Tensor, condition: float | None
) -> list[dict[str, Any]]:
    departures, conditions = departure_from_normality(*pair), head_conditions(*pair)
    assert spectrum.layer is not None
    if condition is None:
        condition = layer_condition(total.mT, *torch.linalg.eig(total.mT))
    whole = _row(layer, WHOLE, folded, spectrum.layer, layer_departure(total, spectrum.layer), condition)
    heads = [
        _row(layer, h, folded, values, float(departures[h]), conditions[h]) for h, values in enumerate(spectrum.heads)
    ]
    return [whole, *heads]


def _row(layer: int, head: int, folded: bool, values: Tensor, departure: float, condition: float) -> dict[str, Any]:
    return {
        "layer": layer,
        "head": head,
        "folded": folded,
        **eigenvalue_shares(values),
        "max_real": float(values.real.max()),
        "min_real": float(values.real.min()),
        "radius": float(values.abs().max()),
        "departure": departure,
        "condition": condition,
        "corollary3": corollary3(values),
    }
