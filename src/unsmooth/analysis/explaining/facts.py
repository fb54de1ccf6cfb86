"""What a layer's weights say without any data: eigenvalues before and after folding, shares, normality."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from unsmooth.analysis.layer_weights import cast_weights, check_finite, fold_weights
from unsmooth.metrics.tolerance import is_zero
from unsmooth.models import HeadWeights, LayerView
from unsmooth.theory.constant import FixedPoint, resting
from unsmooth.theory.directions import Directions
from unsmooth.theory.folding import Folded, fold, linear_part
from unsmooth.theory.lemma2 import corollary3
from unsmooth.theory.normality import (
    condition_number,
    departure_from_normality,
    eigenbasis,
    head_conditions,
    layer_departure,
    settled,
    settled_heads,
)
from unsmooth.theory.projection import SpectralProjector, spectral_projector
from unsmooth.theory.spectrum import HSpectrum

WHOLE = -1  # the "head" of a row that is about Σ_h H_h


@dataclass(frozen=True)
class LayerFacts:
    """A layer's folded weights and spectra, computed once and used for every batch."""

    index: int
    folded: Folded  # the whole sub-layer
    acting: Folded  # what spectra and exponents are of: the same, or the bare weights
    raw: HSpectrum
    effective: HSpectrum
    mean: MeanToken | None  # None where not all eigenvalues of the sum were found
    directions: Directions | None  # of the sum, before a norm that follows it
    rows: list[dict[str, Any]] = field(repr=False)


@dataclass(frozen=True)
class MeanToken:
    """The mean token's own recurrence `z' = z G + c`, by its eigenvectors: `G = I + s ΣW_h`, or `s (I + ΣW_h) C Γ`."""

    values: Complex[Tensor, " dim"]  # of ΣH_h, or of (I + ΣH_h) with the norm after the sum, less 1
    vectors: Complex[Tensor, "dim dim"]
    leading: SpectralProjector  # of the eigenvalue that the mean tends to
    normed: bool  # whether a norm follows the sum

    def fixed_point(self, step: Float[Tensor, " batch"], constant: Float[Tensor, "batch dim"]) -> FixedPoint:
        """Where the mean token stays, for every step size and constant."""
        gap = 1 - step[:, None] * (1 + self.values) if self.normed else -step[:, None] * self.values
        wanted = constant.to(self.vectors).mT
        return resting(gap, self.vectors, torch.linalg.solve_ex(self.vectors, wanted).result.mT)


DENSE_UP_TO = 1024  # features up to which all eigenvalues of the sum are found unless it was said otherwise


def layer_facts(
    layer: LayerView, folded: bool = True, whole: bool = True, weights: HeadWeights | None = None
) -> LayerFacts:
    """Spectra and rows of one layer; with `folded=False` the bare weights stand for the effective ones.

    Without `whole` nothing d×d is solved: heads have their k×k spectra, and of Σ_h H_h none is listed. `weights`: the
    layer's, where they were read already.
    """
    weights = weights or layer.weights()
    check_finite(layer.name, weights)
    wide, exact = cast_weights(weights), cast_weights(weights, torch.float64)
    # folded in float64 for the spectra: centring leaves an eigenvalue 0, of which float32 would make 1e-8
    acting = fold_weights(exact) if folded else fold(exact.w_v, exact.w_proj)
    if not whole and acting.post_norm is None:
        return _heads_only(layer.index, folded, wide, exact, acting)
    bare = exact.w_v, exact.w_proj
    plain, total = ((w_v @ w_proj).sum(0).cpu() for w_v, w_proj in (bare, acting.pair))
    found = torch.linalg.eig(total.mT)  # H = Wᵀ
    same = torch.linalg.eig(plain.mT) if folded else found
    raw, effective = (
        HSpectrum(settled_heads(*pair), settled(values, vectors, *_side_by_side(*pair)), len(total))
        for pair, (values, vectors) in ((bare, same), (acting.pair, found))
    )
    basis = eigenbasis(total.mT, *found)
    rows = [] if folded else _rows(layer.index, False, raw, bare, plain, condition_number(basis[1]))
    if folded:
        rows += _rows(layer.index, False, raw, bare, plain, condition_number(eigenbasis(plain.mT, *same)[1]))
        rows += _rows(layer.index, True, effective, acting.pair, total, condition_number(basis[1]))
    packed = fold_weights(wide)
    used = packed if folded else fold(wide.w_v, wide.w_proj)
    mean, directions = _mean_token(total, acting, *found), Directions.of(*basis)
    return LayerFacts(layer.index, packed, used, raw, effective, mean, directions, rows)


def _side_by_side(w_v: Tensor, w_proj: Tensor) -> tuple[Tensor, Tensor]:
    """All heads' W_V and W_proj as one factor each of Σ_h W_h."""
    return w_v.transpose(0, 1).flatten(1), w_proj.flatten(0, 1)


def _heads_only(index: int, folded: bool, wide: HeadWeights, exact: HeadWeights, acting: Folded) -> LayerFacts:
    pairs = {False: (exact.w_v, exact.w_proj), **({True: acting.pair} if folded else {})}
    spectra = {done: HSpectrum(settled_heads(*pair), None, pair[0].shape[-2]) for done, pair in pairs.items()}
    rows = [row for done, pair in pairs.items() for row in _rows(index, done, spectra[done], pair, None, math.nan)]
    packed = fold_weights(wide)
    used = packed if folded else fold(wide.w_v, wide.w_proj)
    return LayerFacts(index, packed, used, spectra[False], spectra[folded], None, None, rows)


def _mean_token(total: Tensor, acting: Folded, values: Tensor, vectors: Tensor) -> MeanToken:
    if acting.post_norm is not None:
        whole = linear_part(acting.post_norm, (torch.eye(len(total), dtype=total.dtype) + total).to(acting.w_v))
        values, vectors = torch.linalg.eig(whole.cpu().mT)
        values = values - 1
    small = acting.norm is not None  # a norm before attention makes the step small as the stream grows
    leading = int((values.real if small else (1 + values).abs()).argmax())
    projector = spectral_projector(values, vectors, leading)
    return MeanToken(values, vectors, projector, acting.post_norm is not None)


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
    x: Float[Tensor, "batch token dim"], leading: SpectralProjector, mask: Tensor | None
) -> Float[Tensor, " batch"]:
    """Mean over tokens of the share of a token that lies along the leading eigenvectors."""
    shares = leading.share(x.double())
    if mask is None:
        return shares.mean(-1)
    return torch.where(mask, shares, 0).sum(-1) / mask.sum(-1)


def _rows(
    layer: int, folded: bool, spectrum: HSpectrum, pair: tuple[Tensor, Tensor],
    total: Tensor | None, condition: float,
) -> list[dict[str, Any]]:  # fmt: skip
    departures, conditions = departure_from_normality(*pair, spectrum.heads), head_conditions(*pair)
    if spectrum.layer is None or total is None:
        unknown = _row(layer, WHOLE, folded, spectrum.heads[0], 0.0, 0.0)
        whole = {name: value if name in ("layer", "head", "folded") else math.nan for name, value in unknown.items()}
    else:
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
