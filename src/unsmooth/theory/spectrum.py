"""The spectra of H and of A (Lemma 1 needs nothing else for one head)."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from unsmooth.errors import WeightsError
from unsmooth.metrics.workers import spread_rows
from unsmooth.theory.stochastic import check_row_stochastic, is_causal, quotient

_CACHE: OrderedDict[tuple[object, ...], HSpectrum] = OrderedDict()
_CACHE_SIZE = 256


@dataclass(frozen=True)
class HSpectrum:
    """Eigenvalues of `H_h = (W_V^h W_proj^h)ᵀ` and of `Σ_h H_h`; a head's `dim − key` zeros are not listed."""

    heads: Complex[Tensor, "head key"]
    layer: Complex[Tensor, " dim"] | None
    dim: int

    @property
    def structural_zeros(self) -> int:
        """How many eigenvalues of each head are zero because its rank is at most `key`."""
        return max(self.dim - self.heads.shape[-1], 0)


@dataclass(frozen=True)
class AttentionSpectrum:
    """Eigenvalues of A, sorted as in the paper: real parts ascending, the Perron root last (index n − 1)."""

    eigenvalues: Complex[Tensor, "*batch token"]

    @property
    def others(self) -> Complex[Tensor, "*batch rest"]:
        """All eigenvalues but the one that belongs to the eigenvector `1`."""
        return self.eigenvalues[..., :-1]

    @property
    def gap(self) -> Float[Tensor, "*batch"]:
        """The spectral gap `1 − max |λ_i|` over all other eigenvalues; 0 for a reducible A."""
        return 1 - self.others.abs().amax(-1)

    @property
    def complex_share(self) -> Float[Tensor, "*batch"]:
        """The share of eigenvalues that are not real (Proposition 1 says none; see docs/theory.md, trap 1)."""
        scale = self.eigenvalues.abs().amax(-1, keepdim=True)
        return (self.eigenvalues.imag.abs() > 1e-9 * scale).double().mean(-1)


def spectrum_of_h(
    w_v: Float[Tensor, "*head dim key"], w_proj: Float[Tensor, "*head key dim"], *, layer: bool = True
) -> HSpectrum:
    """Spectra of every head through its k×k side, and (`layer=True`) of the full `H = Σ_h H_h`.

    The d×d matrix of one head is never formed. Results are cached by the weights' content.
    """
    w_v, w_proj = _as_heads(w_v, w_proj)
    key = (_fingerprint(w_v), _fingerprint(w_proj), layer)
    if (found := _CACHE.get(key)) is not None:
        _CACHE.move_to_end(key)
        return found
    result = HSpectrum(head_eigenvalues(w_v, w_proj), layer_spectrum(w_v, w_proj) if layer else None, w_v.shape[-2])
    _CACHE[key] = result
    if len(_CACHE) > _CACHE_SIZE:
        _CACHE.popitem(last=False)
    return result


def head_eigenvalues(
    w_v: Float[Tensor, "head dim key"], w_proj: Float[Tensor, "head key dim"]
) -> Complex[Tensor, "head key"]:
    """Those of each head through the smaller of its two sides, formed where the weights are, solved on all cores."""
    v, p = w_v.detach().double(), w_proj.detach().double()
    small = p @ v if v.shape[-1] <= v.shape[-2] else v @ p  # ST and TS share their non-zero eigenvalues
    return torch.cat(spread_rows(torch.linalg.eigvals, small.cpu()))


def forget_spectra() -> None:
    """Empty the cache."""
    _CACHE.clear()


def layer_spectrum(
    w_v: Float[Tensor, "head dim key"], w_proj: Float[Tensor, "head key dim"]
) -> Complex[Tensor, " dim"]:
    """Eigenvalues of `Σ_h W_h`, through the smaller of its two sides."""
    heads, dim, key = w_v.shape
    wide = w_v.detach().cpu().double().permute(1, 0, 2).reshape(dim, heads * key)
    tall = w_proj.detach().cpu().double().reshape(heads * key, dim)
    if heads * key < dim:
        values = torch.linalg.eigvals(tall @ wide)
        return torch.cat([values, values.new_zeros(dim - heads * key)])
    return torch.linalg.eigvals(wide @ tall)


def spectrum_of_attention(a: Float[Tensor, "*batch token token"]) -> AttentionSpectrum:
    """Complex eigenvalues of row-stochastic matrices; a causal A gives its diagonal, for free.

    >>> [round(v, 6) for v in spectrum_of_attention(torch.tensor([[1.0, 0.0], [0.75, 0.25]])).others.real.tolist()]
    [0.25]
    """
    check_row_stochastic(a)
    a = a.detach()
    if is_causal(a):
        return spectrum_of_causal(a.diagonal(dim1=-2, dim2=-1))
    inner = quotient(a.cpu().double())[1][..., 1:, 1:]
    flat = inner.flatten(0, -3) if inner.ndim > 2 else inner[None]
    return _sorted(torch.cat(spread_rows(torch.linalg.eigvals, flat)).view(inner.shape[:-1]))


def spectrum_of_causal(own: Float[Tensor, "*batch token"]) -> AttentionSpectrum:
    """The same from the diagonals alone."""
    return _sorted(own[..., 1:].detach().cpu().to(torch.complex128))


def _sorted(others: Complex[Tensor, "*batch rest"]) -> AttentionSpectrum:
    others = others.gather(-1, others.real.argsort(dim=-1, stable=True))
    return AttentionSpectrum(torch.cat([others, torch.ones_like(others[..., :1])], dim=-1))


def _as_heads(w_v: Tensor, w_proj: Tensor) -> tuple[Tensor, Tensor]:
    if w_v.ndim == 2 and w_proj.ndim == 2:
        w_v, w_proj = w_v[None], w_proj[None]
    if w_v.ndim != 3 or w_proj.shape != (w_v.shape[0], w_v.shape[2], w_v.shape[1]):
        raise WeightsError(
            "w_v must be (heads, dim, key) and w_proj (heads, key, dim), or both without heads; got "
            f"{tuple(w_v.shape)} and {tuple(w_proj.shape)}"
        )
    if not (bool(torch.isfinite(w_v).all()) and bool(torch.isfinite(w_proj).all())):
        raise WeightsError("w_v or w_proj holds NaN or infinity; H has no spectrum then")
    return w_v, w_proj


def _fingerprint(weight: Tensor) -> tuple[object, ...]:
    # content, not address: a family may hand out fresh copies, and freed memory is reused
    raw = weight.detach().cpu().contiguous().view(torch.uint8).numpy()
    return hashlib.blake2b(raw.data, digest_size=16).digest(), tuple(weight.shape), str(weight.dtype)
