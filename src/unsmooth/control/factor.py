"""One batched factorisation for all layers: Q and R⁻¹ of Θ = Q R with diag R > 0, and V⁻¹ from the same.

Of a tall Θ (fewer value features than the model has) Q is tall too, and V⁺ takes the place of V⁻¹.

Why Cholesky-QR: `torch.linalg.qr` and `torch.linalg.inv` loop over matrices or synchronise on a GPU
(12×192×192, forward and backward: 19.7 ms and 2.3 ms, the latter not capturable in a CUDA graph), while a
Gram matrix, `cholesky_ex` and one triangular solve are batched and capturable.

Why twice, shifted, in float64: He-normal matrices of width 192 have condition numbers of hundreds to thousands, and
in training a column may pass close to the span of the others. The Gram matrix squares that. So a float32 Θ is
factorised in float64, the first pass adds `10·n·eps` of its diagonal to the Gram matrix, which then never fails, and
a second pass makes Q orthogonal to rounding (shifted Cholesky-QR; Fukaya et al. 2020). Nothing short of linear
dependence breaks it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.metrics.tolerance import tolerance

#: Devices with float64 arithmetic; elsewhere (mps) three passes in float32 take its place.
_HAS_DOUBLE = ("cpu", "cuda", "meta")


def gram_cholesky(
    theta: Float[Tensor, "*layer dim value"],
) -> tuple[Float[Tensor, "*layer dim value"], Float[Tensor, "*layer value value"], Bool[Tensor, "*layer"]]:
    """Q, R⁻¹ (in the working dtype) and which matrices are singular; Q of those is NaN, never plausible garbage.

    Because diag R > 0, this is *the* QR decomposition with unique signs. Never synchronises.
    """
    wide = torch.float64 if theta.device.type in _HAS_DOUBLE else torch.float32
    small = tolerance(wide, theta.shape[-2])
    a = theta.to(wide)
    q, r_inv, pivots = _pass(a, small)
    for _ in range(1 if wide == torch.float64 else 2):
        q, step, more = _pass(q, 0.0)
        r_inv, pivots = r_inv @ step, pivots * more
    # r_jj / ‖θ_j‖ is the sine of column j's angle to the columns before it; NaN where Cholesky failed.
    singular = ~(pivots > small * a.norm(dim=-2)).all(-1)
    return q.masked_fill(singular[..., None, None], torch.nan), r_inv, singular


def dependent(theta: Float[Tensor, "layer dim value"], *, inverted: bool) -> Bool[Tensor, " layer"]:
    """Which matrices have linearly dependent columns; if `inverted`, also those whose inverse would be noise."""
    _, r_inv, singular = gram_cholesky(theta)
    # V⁻¹ has no correct digit left once cond(V) ≥ ‖V‖‖V⁻¹‖/columns (Frobenius norms) exceeds 1/eps.
    condition = theta.norm(dim=(1, 2)) * r_inv.norm(dim=(1, 2)) / theta.shape[-1]
    return singular | (condition > 1 / torch.finfo(theta.dtype).eps) if inverted else singular


def _pass(a: Tensor, shift: float) -> tuple[Tensor, Tensor, Tensor]:
    """One Cholesky-QR: A = Q R with RᵀR = AᵀA (plus a share of its diagonal); Q, R⁻¹ and diag R."""
    gram = a.mT @ a
    if shift:
        gram = gram + shift * torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    lower, failed = torch.linalg.cholesky_ex(gram)
    eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    r_inv = torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False).mT
    pivots = lower.diagonal(dim1=-2, dim2=-1).masked_fill((failed > 0)[..., None], torch.nan)
    return a @ r_inv, r_inv, pivots


class _Orthogonal(torch.autograd.Function):
    """Θ ↦ Q, with the closed-form derivative of QR: one product with R⁻ᵀ, no further solve."""

    @staticmethod
    def forward(ctx: Any, theta: Tensor) -> Tensor:
        q, r_inv, _ = gram_cholesky(theta)
        q = q.to(theta.dtype)
        ctx.save_for_backward(theta, q, r_inv.to(theta.dtype))
        return q

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        theta, q, r_inv = ctx.saved_tensors
        (grad,) = grads
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # compiled code has no second derivatives
            r_inv = inverse(theta) @ q  # with create_graph: R⁻¹ = Θ⁺Q is no constant, and has a derivative of its own
        with torch.autocast(grad.device.type, enabled=False):  # a compiled backward takes its forward's bfloat16
            m = grad.mT @ q
            lower = m.tril()
            symmetric = lower + lower.tril(-1).mT
            return (grad - q @ symmetric) @ r_inv.mT


class _Inverse(torch.autograd.Function):
    """V ↦ V⁻¹ = R⁻¹ Qᵀ, with the derivative −V⁻ᵀ · grad · V⁻ᵀ (the paper's "through the inversion").

    A tall V has V⁺ = R⁻¹ Qᵀ, and (I − VV⁺) · gradᵀ · V⁺V⁺ᵀ besides: columns may leave their span.
    """

    @staticmethod
    def forward(ctx: Any, v: Tensor) -> Tensor:
        q, r_inv, _ = gram_cholesky(v)
        inverse = (r_inv @ q.mT).to(v.dtype)
        ctx.save_for_backward(inverse, *([] if v.shape[-2] == v.shape[-1] else [v]))
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        inverse, *tall = ctx.saved_tensors
        (grad,) = grads
        with torch.autocast(grad.device.type, enabled=False):
            along = -(inverse.mT @ grad @ inverse.mT)
            for v in tall:
                along = along + (grad.mT - v @ (inverse @ grad.mT)) @ (inverse @ inverse.mT)
        return along


def orthogonal(theta: Float[Tensor, "*layer dim value"]) -> Float[Tensor, "*layer dim value"]:
    """The Q factor of Θ = Q R with diag R > 0.

    >>> torch.allclose(orthogonal(torch.tensor([[0.0, -2.0], [3.0, 5.0]])), torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    True
    """
    return _Orthogonal.apply(theta)


def inverse(v: Float[Tensor, "*layer dim value"]) -> Float[Tensor, "*layer value dim"]:
    """V⁻¹ (V⁺ of a tall V), batched and capturable in a CUDA graph.

    >>> torch.allclose(inverse(torch.tensor([[2.0, 0.0], [0.0, 4.0]])), torch.tensor([[0.5, 0.0], [0.0, 0.25]]))
    True
    """
    return _Inverse.apply(v)
