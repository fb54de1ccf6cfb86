"""The random layers of Figure 3 and of the table in docs/theory.md, section 5."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.errors import OptionError
from unsmooth.theory.dominance import dominance
from unsmooth.theory.exponent import layer_exponent
from unsmooth.theory.simulate import simulate

Mode = Literal["sharpening", "smoothing"]
Form = Literal["symmetric", "general"]
FORMS: tuple[Form, ...] = ("symmetric", "general")
MODES: tuple[Mode, ...] = ("sharpening", "smoothing")
SIGNS = (1, -1)
NORMS: tuple[Literal["pre", "post"] | None, ...] = (None, "pre", "post")


@dataclass(frozen=True)
class Scenario:
    """One curve of Figure 3."""

    form: Form
    norm: Literal["pre", "post"] | None
    mode: Mode
    sign: int  # of the LayerNorm weights

    @property
    def label(self) -> str:
        """For a legend or a row."""
        norm = {"pre": "Pre-LN", "post": "Post-LN", None: "no LN"}[self.norm]
        return f"{self.form}, {norm}, {self.mode}" + (
            "" if self.norm is None else f", LN weights {'+' if self.sign > 0 else '−'}"
        )


def scenarios() -> tuple[Scenario, ...]:
    """The table's 20 cells: without LN the sign of its weights means nothing and only one is listed."""
    return tuple(
        Scenario(form, norm, mode, sign)
        for form in FORMS
        for norm in NORMS
        for mode in MODES
        for sign in SIGNS
        if norm is not None or sign > 0
    )


def random_h(dim: int, form: Form, mode: Mode, generator: torch.Generator) -> Float[Tensor, "dim dim"]:
    """`H = V Λ V⁻¹`, λ uniform in [−1, 0] or [0, 1], V He-normal or (symmetric) its Q factor."""
    if form not in FORMS:
        raise OptionError.unknown("form", form, FORMS)
    if mode not in MODES:
        raise OptionError.unknown("mode", mode, MODES)
    v = torch.randn(dim, dim, generator=generator, dtype=torch.float64) * (2 / dim) ** 0.5
    values = torch.rand(dim, generator=generator, dtype=torch.float64)
    values = -values if mode == "sharpening" else values
    if form == "symmetric":
        q = torch.linalg.qr(v).Q
        return q * values @ q.mT
    return torch.linalg.solve(v.mT, (v * values).mT).mT


def random_attention(x: Float[Tensor, "token dim"], generator: torch.Generator, temperature: float = 1.0) -> Tensor:
    """`softmax(X W_Q W_Kᵀ Xᵀ / (T√d))` with `√d·W_Q`, `√d·W_K` standard normal."""
    dim = x.shape[-1]
    query, key = (torch.randn(dim, dim, generator=generator, dtype=x.dtype) / dim**0.5 for _ in range(2))
    return torch.softmax((x @ query) @ (x @ key).mT / (temperature * dim**0.5), -1)


@dataclass(frozen=True)
class Draw:
    """One random layer of a scenario: its start, attention, LayerNorm weight and H."""

    scenario: Scenario
    x: Float[Tensor, "token dim"]
    a: Float[Tensor, "token token"]
    weight: Float[Tensor, " dim"]
    h: Float[Tensor, "dim dim"]

    def curve(self, layers: int = 128) -> Float[Tensor, " layers"]:
        """HFC/LFC over the iterations."""
        return simulate(self.x, self.a, self.h.mT, layers, self.scenario.norm, norm_weight=self.weight).hfc_lfc

    def exponent(self, folded: bool = True) -> float:
        """γ of the layer, with the norm folded in or of H alone.

        Before attention: the small-step γ of C Γ H, as the stream grows and the step shrinks. After the sum: γ of
        `(X + A X W) C Γ`, the norm's statistics left out.
        """
        if not folded or self.scenario.norm is None:
            return dominance(self.a, self.h.mT).exponent
        if self.scenario.norm == "pre":
            scaled = self.h * self.weight  # (C Γ W)ᵀ = H Γ C
            return dominance(self.a, (scaled - scaled.mean(-1, keepdim=True)).mT).small_step

        def after(rows: Tensor) -> Tensor:
            return (rows - rows.mean(-1, keepdim=True)) * self.weight

        return float(layer_exponent(self.a[None], self.h.mT[None], after=after).exponent)


def draw(scenario: Scenario, seed: int, x: Tensor | None = None, tokens: int = 64, dim: int = 32) -> Draw:
    """The random layer of one seed; one seed shares X, A, V, |λ| and |γ| over all scenarios."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(tokens, dim, generator=generator, dtype=torch.float64) if x is None else x.double()
    dim = start.shape[-1]
    a = random_attention(start, generator)
    weight = scenario.sign * torch.rand(dim, generator=generator, dtype=torch.float64)
    return Draw(scenario, start, a, weight, random_h(dim, scenario.form, scenario.mode, generator))


def curve(
    scenario: Scenario, seed: int, layers: int = 128, x: Tensor | None = None, tokens: int = 64, dim: int = 32
) -> Float[Tensor, " layers"]:
    """HFC/LFC over the iterations for one seed."""
    return draw(scenario, seed, x, tokens, dim).curve(layers)


def log10_curves(
    seeds: Iterable[int], layers: int = 128, x: Tensor | None = None, tokens: int = 64, dim: int = 32
) -> dict[Scenario, Float[Tensor, "seed layers"]]:
    """log10 HFC/LFC of every cell, by seed and iteration."""
    listed = list(seeds)
    if not listed:
        raise OptionError("seeds must name at least one seed")
    return {s: torch.stack([curve(s, seed, layers, x, tokens, dim).log10() for seed in listed]) for s in scenarios()}
