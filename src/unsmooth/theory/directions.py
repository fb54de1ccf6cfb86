"""One step by eigen-directions of H: how much of the features lies along each, and what each gains.

Along an eigenvector of `ΣH_h` the mean token is multiplied by `1 + sλ_j`, and deviations from it by `1 + sαλ_j`, where
α is what attention leaves of them. For a normal H, energies along eigenvectors add up, and the gains weighted by them
are the step that such a layer makes; for a non-normal H they do not, and this is a guess that can be tested.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor


@dataclass(frozen=True)
class Directions:
    """Eigenvalues of `ΣH_h`, and the vectors whose products with a token are its coordinates: the rows of V⁻¹."""

    values: Complex[Tensor, " dim"]
    left: Complex[Tensor, "dim dim"]  # in columns

    @classmethod
    def of(cls, values: Complex[Tensor, " dim"], vectors: Complex[Tensor, "dim dim"]) -> Directions:
        """From eigenvalues and unit eigenvectors; a defective H has coordinates that are not finite."""
        return cls(values, torch.linalg.inv_ex(vectors).inverse.mT)

    def energies(self, x: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch dim"]:
        """Squared coordinates along every eigenvector, summed over tokens."""
        left = self.left.to(x.device)
        return (x @ left.real.to(x)).square().sum(-2) + (x @ left.imag.to(x)).square().sum(-2)

    def gain(
        self,
        high: Float[Tensor, "batch token dim"],
        mean: Float[Tensor, "batch dim"],
        step: Float[Tensor, " batch"],
        kept: Float[Tensor, " batch"],
    ) -> Float[Tensor, " batch"]:
        """The change of log HFC/LFC: gains of deviations, of which attention leaves the share `kept`, less the mean's.

        >>> d = Directions.of(*torch.linalg.eig(torch.diag(torch.tensor([-0.5, 0.0], dtype=torch.float64))))
        >>> x = torch.tensor([[[3.0, 1.0], [1.0, -1.0]]], dtype=torch.float64)
        >>> mean = x.mean(1)  # along the first direction only, which is halved
        >>> one, none = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        >>> round(float(d.gain(x - mean[:, None], mean, one, none).exp()), 6)
        2.0
        """
        values, steps = self.values.to(mean.device), step.to(mean)[:, None]
        return _growth(self.energies(high), 1 + kept.to(mean)[:, None] * steps * values) - _growth(
            self.energies(mean[:, None]), 1 + steps * values
        )


def _growth(energy: Float[Tensor, "batch dim"], factor: Complex[Tensor, "batch dim"]) -> Float[Tensor, " batch"]:
    return ((energy * factor.abs().square()).sum(-1) / energy.sum(-1)).log() / 2
