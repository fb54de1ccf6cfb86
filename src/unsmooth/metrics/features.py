"""What the metrics need to know about a set of tokens: computed once, in float64, shared by all of them."""

from __future__ import annotations

from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from unsmooth.metrics.dense import check_shapes
from unsmooth.metrics.spectrum import EigenProblem, eigen_problem, gram, symmetric_product
from unsmooth.metrics.tolerance import tolerance

# ‖HFC‖² = ‖X‖² − ‖LFC‖² costs nothing more, and loses log10(‖X‖²/‖HFC‖²) of float64's 16 digits; so does the sum over
# XXᵀ in place of a pass over X, n²‖x̄‖², by how much less than n‖X‖² it is.
SUBTRACTION_IS_SAFE = 1e-6
ONE_BY_ONE = 1 << 14  # features of a sample from which its Gram matrix is formed alone


class Features:
    """Lazy statistics of `x`, (..., tokens, dim), over the tokens that `mask` keeps.

    Everything is float64 whatever the dtype of `x`: a float32 subtraction of the mean has no digit left
    at HFC/LFC = 1e-6. Masked tokens are replaced by zeros first, so that nothing they hold, NaN and
    infinity included, reaches a value or a gradient.
    """

    def __init__(self, x: Float[Tensor, "*batch token dim"], mask: Bool[Tensor, "*batch token"] | None = None):
        check_shapes(x, mask)
        self.mask = mask
        self.batch = x.shape[:-2]
        self.tokens, self.dim = x.shape[-2:]
        self._given: Tensor | None = None
        self._x: Tensor | None = None
        if x.device.type == "cpu" and not x.requires_grad and x.dtype != torch.float64:
            # Widened when a metric asks for it: a Gram matrix may be enough.
            self._given, self.scale = x, x.new_ones(self.batch, dtype=torch.float64)
        else:
            self._x, self.scale = rescaled(keep(to_float64(x), mask), x.dtype)
        held = x if self._x is None else self._x
        self.device, self.plain = held.device, not (held.is_cuda or held.requires_grad)
        self.extreme = x.dtype == torch.float64  # norms of tokens may be too far apart for their squares
        self.spectra: dict[str, Float[Tensor, "*batch value"]] = {}
        self.sums: dict[str, tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]] = {}

    def masked(self, mask: Bool[Tensor, "*batch token"]) -> Features:
        """The same tokens under another mask: lengths and the Gram matrix are not computed again."""
        if self.mask is not None:
            raise ValueError("masks are taken from unmasked features")
        other = Features(self.x.to(torch.float64), mask)
        other.scale = self.scale * other.scale
        if bool((other.scale != self.scale).any()):
            return other  # what is left has other magnitudes
        other.extreme = self.extreme
        other.norms = torch.where(mask, self.norms, 0.0)
        if self.tokens <= self.dim:
            other.product = torch.where(mask[..., None] & mask[..., None, :], self.product, 0.0)
        return other

    @property
    def x(self) -> Float[Tensor, "*batch token dim"]:
        """The tokens in float64, zeros where masked."""
        if self._x is None and self._given is not None:
            self._x = keep(to_float64(self._given), self.mask)
        if self._x is None:
            raise RuntimeError("the features were released; compute what a metric needs before release()")
        return self._x

    def release(self) -> None:
        """Forget the tokens; what was computed so far stays."""
        self._x = self._given = None
        for large in ("centred", "product"):
            self.__dict__.pop(large, None)

    @cached_property
    def count(self) -> Float[Tensor, "*batch"]:
        """How many tokens the mask keeps."""
        if self.mask is not None:
            return self.mask.sum(-1).to(torch.float64).expand(self.batch)
        return torch.full(self.batch, float(self.tokens), dtype=torch.float64, device=self.device)

    @cached_property
    def norms(self) -> Float[Tensor, "*batch token"]:
        """‖x_i‖, 0 where masked."""
        if self.extreme:
            return safe_norms(self.x)
        if self._has_token_product:
            return self.product.diagonal(dim1=-2, dim2=-1).sqrt()
        return torch.linalg.vector_norm(self.x, dim=-1)

    @property
    def _has_token_product(self) -> bool:
        """Whether XXᵀ is there, on a CPU: it saves passes over X."""
        here = self.tokens <= self.dim and "product" in self.__dict__
        return here and not (self.product.is_cuda or self.product.requires_grad)

    @cached_property
    def square(self) -> Float[Tensor, "*batch"]:
        """‖X‖_F²."""
        return self.norms.square().sum(-1)

    @cached_property
    def mean(self) -> Float[Tensor, "*batch dim"]:
        """x̄, the mean of the kept tokens."""
        return self.x.sum(-2) / self.count[..., None]

    @cached_property
    def centred(self) -> Float[Tensor, "*batch token dim"]:
        """HFC[X] = X − 1x̄ᵀ (Definition 1), zeros where masked."""
        return keep(self.x - self.mean[..., None, :], self.mask)

    @cached_property
    def lfc_square(self) -> Float[Tensor, "*batch"]:
        """‖LFC[X]‖² = n‖x̄‖²; LFC has rank one, so that the spectral and the Frobenius norm agree."""
        if self._has_token_product and not self.extreme:
            total = self.product.sum((-2, -1))
            if bool((total > SUBTRACTION_IS_SAFE * self.count * self.square).all()):
                return total / self.count
        return self.count * self.mean.square().sum(-1)

    @cached_property
    def hfc_square(self) -> Float[Tensor, "*batch"]:
        """‖HFC[X]‖_F², the complete graph's Dirichlet energy."""
        if self.plain:
            difference = self.square - self.lfc_square
            if bool((difference > SUBTRACTION_IS_SAFE * self.square).all()):
                return difference
        return torch.linalg.vector_norm(self.centred, dim=(-2, -1)).square()

    @cached_property
    def unit_sum_square(self) -> Float[Tensor, "*batch"]:
        """‖Σ_i x_i/‖x_i‖‖², a token of zeros adding nothing."""
        if self.extreme:
            return units(self.x).sum(-2).square().sum(-1)
        inverse = inverse_or_zero(self.norms)[..., None, :]
        if self._has_token_product:
            return (inverse @ self.product @ inverse.mT)[..., 0, 0]
        return (inverse @ self.x).square().sum((-2, -1))

    @cached_property
    def product(self) -> Float[Tensor, "*batch side side"]:
        """XXᵀ or XᵀX, whichever is smaller."""
        large = self.tokens * self.dim >= ONE_BY_ONE and self.tokens <= self.dim
        if large and self._x is None and self._given is not None:
            return token_gram(self._given, self.mask)
        return gram(self.x)

    @cached_property
    def problem(self) -> EigenProblem:
        """The symmetric eigenproblem that gives the singular values of X."""
        return eigen_problem(lambda: self.x, lambda: self.product, self.plain)

    @cached_property
    def hfc_problem(self) -> EigenProblem:
        """The same for HFC[X]."""
        return eigen_problem(lambda: self.centred, lambda: gram(self.centred), self.plain)

    def singular_values(self, of: str = "problem") -> Float[Tensor, "*batch value"]:
        """Singular values in descending order, of X ("problem") or of HFC[X] ("hfc_problem").

        k kept tokens have k of them at most: what eigenvalues give beyond is rounding, and set to zero.
        """
        if of not in self.spectra:
            problem: EigenProblem = getattr(self, of)
            self.spectra[of] = problem.singular_values()
        sigma = self.spectra[of]
        if self.mask is None:
            return sigma
        index = torch.arange(sigma.shape[-1], device=sigma.device)
        return torch.where((index < self.count[..., None]) | sigma.isnan(), sigma, 0.0)

    def without_eigenvalues(self, of: str) -> bool:
        """Whether sums over the singular values are known or quickest found by determinants, these being unknown."""
        problem: EigenProblem = getattr(self, of)
        return of not in self.spectra and (of in self.sums or problem.by_determinants)

    def root_sums(self, of: str = "problem") -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """Σσ and Σσ log σ."""
        if of not in self.sums:
            problem: EigenProblem = getattr(self, of)
            self.sums[of] = problem.root_sums(self.rank_bound)
        return self.sums[of]

    @property
    def rank_bound(self) -> Float[Tensor, "*batch"]:
        """min(kept tokens, dim)."""
        return self.count.clamp(max=self.dim)

    @property
    def nonfinite(self) -> Bool[Tensor, "*batch"]:
        """Whether a kept token holds NaN or infinity."""
        return ~self.square.isfinite()

    @property
    def zero_token(self) -> Bool[Tensor, "*batch"]:
        """Whether a kept token is zero everywhere: it has no direction and counts with cosine 0."""
        zero = self.norms == 0
        return (zero if self.mask is None else zero & self.mask).any(-1)

    @property
    def zero_mean(self) -> Bool[Tensor, "*batch"]:
        """Whether x̄ is zero up to float64 rounding: HFC/LFC is infinite, or means nothing."""
        rounding = tolerance(torch.float64, self.tokens)
        return self.lfc_square <= rounding**2 * self.square

    @property
    def all_zero(self) -> Bool[Tensor, "*batch"]:
        """Whether every kept token is zero: ratios and ranks are 0/0."""
        return self.square == 0


SAFE = 1e100  # beyond it, or below its inverse, squares and their sums come near the ends of float64


def rescaled(x: Float[Tensor, "*batch token dim"], came_as: torch.dtype) -> tuple[Tensor, Float[Tensor, "*batch"]]:
    """Float64 features of ordinary size, and the power of two that each sample was divided by.

    Every metric but one does not depend on it; squares of 1e155 and 1e-165 do not exist in float64. Narrower dtypes
    cannot hold such numbers: they pass as they are.
    """
    one = x.new_ones(x.shape[:-2])
    if came_as != torch.float64 or not x.numel():
        return x, one
    size = x.detach().abs().amax((-2, -1))
    odd = ((size > SAFE) | (size < 1 / SAFE)) & (size > 0) & size.isfinite()
    if not bool(odd.any()):
        return x, one
    exponent = torch.frexp(size).exponent.to(torch.float64)
    half = torch.where(odd, torch.exp2((exponent / 2).floor()), 1.0)  # 2**1074 is no float64, its root is one
    rest = torch.where(odd, torch.exp2(exponent - (exponent / 2).floor()), 1.0)
    return x / half[..., None, None] / rest[..., None, None], half * rest


def units(x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch token dim"]:
    """x_i/‖x_i‖ whatever their lengths, 0 for a token of zeros."""
    size = x.detach().abs().amax(-1, keepdim=True)
    small = x / torch.where(size > 0, size, 1.0)
    return small * inverse_or_zero(torch.linalg.vector_norm(small, dim=-1, keepdim=True))


def safe_norms(x: Float[Tensor, "*batch token dim"]) -> Float[Tensor, "*batch token"]:
    """‖x_i‖ also where its square is no float64."""
    size = x.detach().abs().amax(-1, keepdim=True)
    size = torch.where((size > 0) & size.isfinite(), size, 1.0)
    return torch.linalg.vector_norm(x / size, dim=-1) * size[..., 0]


def to_float64(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """`x` in float64, on the CPU if its device has no float64 (Apple's)."""
    return x.to("cpu", torch.float64) if x.device.type == "mps" else x.to(torch.float64)


def keep(x: Float[Tensor, "*batch token dim"], mask: Bool[Tensor, "*batch token"] | None) -> Tensor:
    """`x` with zeros at the masked tokens; a product would keep their NaN."""
    return x if mask is None else torch.where(mask[..., None], x, 0.0)


def token_gram(x: Float[Tensor, "*batch token dim"], mask: Bool[Tensor, "*batch token"] | None) -> Tensor:
    """XXᵀ in float64 on a CPU: one sample at a time is widened, into a place that stays in the cache."""
    tokens, dim = x.shape[-2:]
    wide = torch.empty(tokens, dim, dtype=torch.float64)
    product = torch.empty(*x.shape[:-1], tokens, dtype=torch.float64)
    masks = None if mask is None else mask.expand(x.shape[:-1]).reshape(-1, tokens)
    for i, (sample, out) in enumerate(zip(x.reshape(-1, tokens, dim), product.view(-1, tokens, tokens), strict=True)):
        wide.copy_(sample)
        if masks is not None:
            wide[~masks[i]] = 0
        out.copy_(symmetric_product(wide))
    return product


def inverse_or_zero(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """1/x, and 0 (gradient 0 too) where x is 0."""
    zero = x == 0
    return torch.where(zero, 0.0, 1 / torch.where(zero, 1.0, x))
