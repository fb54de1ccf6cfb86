"""What an edit changed, and the way back: exactly, and only from the weights that it left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unsmooth.errors import OptionError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(repr=False)
class Edit:
    """What `edit` returns: what it changed, one row per layer and head (head −1 is the sum Σ_h H_h), and `undo()`.

    `before` and `after` hold HFC/LFC, cosine similarity and effective rank after the last block, and the loss, where
    `edit` was given data or a loss.
    """

    rows: list[dict[str, Any]]
    what: str
    _before: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    _after: list[Tensor] = field(default_factory=list)
    _share: float | None = 1.0  # how far `go` went; None while it writes
    undone: bool = False
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """Norm of the change of H, and the spectrum before and after, for every matrix that was edited.

        `min_after` and `max_after` are what the edit asks for; `min_stored` and `max_stored` what the weights have once
        they are rounded to the model's dtype, which scatters eigenvalues that were gathered at one spot.
        """
        import pandas as pd

        return pd.DataFrame(self.rows)

    @torch.no_grad()
    def go(self, share: float) -> None:
        """A share of the way from the weights before (0) to those after (1), without finding the edit again."""
        if self.undone:
            raise OptionError("this edit is undone: edit the model again")
        check_share("share", share)
        self._check_unchanged()
        self._share = None
        for (parameter, _), value in zip(self._before, self._at(share), strict=True):
            parameter.copy_(value)
        self._share = share

    @torch.no_grad()
    def undo(self) -> None:
        """Every weight bit for bit as it was before."""
        if self.undone:
            raise OptionError("this edit is undone already")
        self._check_unchanged()
        self.restore()

    @torch.no_grad()
    def restore(self) -> None:
        """What `undo` does, whatever was done to the weights since."""
        for parameter, value in self._before:
            parameter.copy_(value)
        self.undone = True

    def written(self) -> None:
        """Called when all weights are written, to know them again."""
        self._after = [parameter.detach().clone() for parameter, _ in self._before]

    def _at(self, share: float) -> Iterator[Tensor]:
        for (_, before), after in zip(self._before, self._after, strict=True):
            yield after if share == 1 else before.lerp(after, share)

    def _check_unchanged(self) -> None:
        """OptionError after a later edit, whose own undoing would then bring this one back, and after training."""
        if self._share is None:  # `go` was interrupted
            return
        values = zip(self._before, self._at(self._share), strict=True)
        if not all(torch.equal(parameter, value.to(parameter)) for (parameter, _), value in values):
            raise OptionError(
                "the weights have changed since this edit, by another edit, training or a checkpoint: undo later edits "
                "first; `restore` puts back what was there before this edit, whatever came after it"
            )

    def __repr__(self) -> str:
        moved = [row["change"] / row["size"] for row in self.rows if row["size"]]
        size = "ΔW‖ up to {:.1%} of ‖W" if self.what.startswith("sink") else "ΔH‖ up to {:.1%} of ‖H"
        share = f", ‖{size.format(max(moved))}‖" if moved else ""
        said = [f"{name} {value:.4g} → {self.after[name]:.4g}" for name, value in self.before.items()]
        many = f"{len(self.rows)} {'matrix' if len(self.rows) == 1 else 'matrices'} H"
        what = "the weights of an MLP" if self.what.startswith("sink") else many
        return "; ".join([f"Edit of {what}: {self.what}{share}{' (undone)' if self.undone else ''}", *said])


def check_share(name: str, value: float) -> None:
    """OptionError unless it is a number from 0 to 1."""
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise OptionError(f"{name} {value!r}: expected a number from 0 (nothing changes) to 1")
