"""Which eigenvalue of `I + H ⊗ A` dominates (Definition 4), exactly and with complex arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from unsmooth.metrics.dense import require_real
from unsmooth.metrics.tolerance import tolerance
from unsmooth.theory.eigen import Eigen, eigen_of_attention, eigen_of_h
from unsmooth.theory.jordan import limit_rank
from unsmooth.theory.prediction import LimitMetrics, predict_limit

Kind = Literal["smoothing", "sharpening", "mixed"]
Endpoint = Literal["largest", "smallest", "neither"]


class Pair(NamedTuple):
    """A dominating pair. `token` indexes A's sorted spectrum (its last index is the Perron root)."""

    token: int
    feature: int
    lambda_a: complex
    lambda_h: complex
    eigenvalue: complex
    endpoint: Endpoint  # "largest": type (1); "smallest": type (2) as in the paper; "neither": interior or complex


@dataclass(frozen=True)
class Dominance:
    """Theorems 1 and 3 for one head, without assuming real or simple spectra.

    kind        every dominating pair is Perron's / none is / both kinds tie
    exponent    γ in nats per layer, its sign is the verdict: below 0, HFC/LFC falls like e^{γℓ}; above 0, HFC wins and
                HFC/LFC tends to `predicted.hfc_lfc`, as A passes high frequencies on to the mean
    rank_rate   κ in nats per layer, the rate of the other two definitions: σ₂/σ₁ of the features falls like e^{κℓ}, and
                so does (effective rank − 1) up to a factor ℓ; 0 where the limit's rank is above one
    small_step  the same for a vanishing step: max Re λ_jλ_i over i ≠ n minus max Re λ_j
    margin      log of the dominating modulus over the largest one that does not dominate, nats per layer
    """

    kind: Kind
    exponent: float
    rank_rate: float
    small_step: float
    margin: float
    tolerance: float
    rho_lfc: float
    rho_hfc: float
    limit_rank: int
    residual: bool
    predicted: LimitMetrics
    pattern: Bool[Tensor, "token dim"] = field(repr=False)
    h: Eigen = field(repr=False)
    a: Eigen = field(repr=False)

    @property
    def input_convergence(self) -> bool:
        """Definition 1: all tokens become the same vector; true iff only Perron pairs dominate."""
        return self.kind == "smoothing"

    @property
    def angle_convergence(self) -> bool:
        """Definition 2: all angles go to 0; true iff only Perron pairs dominate."""
        return self.kind == "smoothing"

    @property
    def cosine_rate(self) -> float:
        """2κ: (1 − |cos|) of two tokens falls like e^{2κℓ}, once the leading pair rules.

        It does not rule before tokens on the other side of the mean have crossed it, while HFC/LFC along the leading
        direction is above 1: with slow mixing (λ_A near 1, so γ near 0) that takes about ln(HFC/LFC)/|γ| layers.
        """
        return 2 * self.rank_rate

    @property
    def rank_collapse(self) -> bool:
        """Definition 3: the limit has rank one."""
        return self.limit_rank == 1

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """All dominating pairs."""
        products = pair_eigenvalues(self.h.values, self.a.values, self.residual)
        found = []
        for i, j in self.pattern.nonzero().tolist():
            a, h, both = complex(self.a.values[i]), complex(self.h.values[j]), complex(products[i, j])
            found.append(Pair(i, j, a, h, both, self._endpoint(i)))
        return tuple(found)

    @property
    def endpoint(self) -> Endpoint:
        """Where the winners lie in A's spectrum; "neither" is what Theorem 1 leaves out."""
        ends = {self._endpoint(i) for i in self.pattern.any(1).nonzero().flatten().tolist()}
        return ends.pop() if len(ends) == 1 else "neither"

    def _endpoint(self, token: int) -> Endpoint:
        values = self.a.values
        if token == len(values) - 1:
            return "largest"
        value = values[token]
        smallest = bool(value.real <= values.real.min() + self.tolerance)
        return "smallest" if smallest and abs(float(value.imag)) <= self.tolerance else "neither"


def dominance(a: Float[Tensor, "token token"], w: Float[Tensor, "dim dim"], *, residual: bool = True) -> Dominance:
    """All pairs that reach `max |1 + λ_j^H λ_i^A|`, and what follows from them.

    `A` row-stochastic, `W = W_V W_proj`, `H = Wᵀ`; `residual=False` drops the 1 (Corollaries 1 and 2). The limit's rank
    counts Jordan blocks; its metrics assume diagonalisable matrices: `d.h.condition` and `d.a.condition` tell.

    >>> a = torch.tensor([[0.6, 0.4], [0.1, 0.9]])
    >>> dominance(a, -0.5 * torch.eye(2)).kind, dominance(a, 0.5 * torch.eye(2)).kind
    ('sharpening', 'smoothing')
    """
    require_real(w, "w")
    h = w.mT if w.ndim >= 2 else w
    eigen_h, eigen_a = eigen_of_h(h), eigen_of_attention(a)
    moduli = pair_eigenvalues(eigen_h.values, eigen_a.values, residual).abs()
    top = float(moduli.max())
    allowed = pair_tolerance(a.dtype if a.dtype.itemsize < h.dtype.itemsize else h.dtype, eigen_h, eigen_a, top)
    pattern = moduli >= top - allowed
    perron, other = bool(pattern[-1].any()), bool(pattern[:-1].any())
    kind: Kind = "mixed" if perron and other else "smoothing" if perron else "sharpening"
    rest = moduli[~pattern]
    rho_lfc, rho_hfc = float(moduli[-1].max()), float(moduli[:-1].max())
    return Dominance(
        kind=kind,
        exponent=log_ratio(rho_hfc, rho_lfc),
        rank_rate=rank_rate(moduli, pattern),
        small_step=_small_step(eigen_h.values, eigen_a.values),
        margin=log_ratio(top, float(rest.max())) if rest.numel() else math.inf,
        tolerance=allowed,
        rho_lfc=rho_lfc,
        rho_hfc=rho_hfc,
        limit_rank=limit_rank(
            pattern, (a.detach().cpu().double(), eigen_a.values), (h.detach().cpu().double(), eigen_h.values), allowed
        ),
        residual=residual,
        predicted=predict_limit(pattern, eigen_a, allowed),
        pattern=pattern,
        h=eigen_h,
        a=eigen_a,
    )


def pair_eigenvalues(
    lambda_h: Complex[Tensor, "*batch feature"], lambda_a: Complex[Tensor, "*batch token"], residual: bool = True
) -> Complex[Tensor, "*batch token feature"]:
    """`1 + λ_j λ_i` for all pairs (Lemma 1), or `λ_j λ_i` without the residual (Corollary 1)."""
    products = lambda_a[..., :, None] * lambda_h[..., None, :]
    return products + 1 if residual else products


def pair_tolerance(dtype: torch.dtype, h: Eigen, a: Eigen, top: float) -> float:
    """What rounding may do to a modulus: dtype and size, times the eigenvectors' condition (Bauer–Fike).

    A defective matrix has an infinite condition number but errors like a root of eps, hence the cap at eps^(1/3).
    """
    size = max(len(h.values), len(a.values))
    grown = tolerance(dtype, size) * max(h.condition, a.condition)
    return min(grown, torch.finfo(dtype).eps ** (1 / 3)) * max(1.0, top)


def rank_rate(moduli: Float[Tensor, "token feature"], pattern: Bool[Tensor, "token feature"]) -> float:
    """κ: log of the largest modulus that adds to the limit's rank, over the dominating one.

    A term `v_i v_jᵀ` that shares v_i* or v_j* with the limit `v_i* v_j*ᵀ` keeps its rank at one; two such terms, one of
    each kind, raise it by their product. With several dominating pairs in one row (a complex pair of H) every term
    outside that row adds to the rank.
    """
    rows, columns = pattern.any(1), pattern.any(0)
    top = float(moduli.max())
    if int(rows.sum()) > 1 and int(columns.sum()) > 1:
        return 0.0
    if int(rows.sum()) == 1 and int(columns.sum()) == 1:
        beside = _largest(moduli[~rows][:, columns]) * _largest(moduli[rows][:, ~columns]) / top if top > 0 else 0.0
        return log_ratio(max(_largest(moduli[~rows][:, ~columns]), beside), top)
    return log_ratio(_largest(moduli[~rows] if int(rows.sum()) == 1 else moduli[:, ~columns]), top)


def _largest(moduli: Tensor) -> float:
    return float(moduli.max()) if moduli.numel() else 0.0


def log_ratio(upper: float, lower: float) -> float:
    """`log(upper / lower)`, with ±inf for one zero and nan for two."""
    if upper == 0 or lower == 0:
        return math.nan if upper == lower else math.copysign(math.inf, upper - lower)
    return math.log(upper) - math.log(lower)


def _small_step(lambda_h: Complex[Tensor, " dim"], lambda_a: Complex[Tensor, " token"]) -> float:
    products = pair_eigenvalues(lambda_h, lambda_a, residual=False).real
    return float(products[:-1].max() - products[-1].max())
