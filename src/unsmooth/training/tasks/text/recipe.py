"""Recipes of masked language models: the crammed BERT, and one small enough to ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from unsmooth.errors import OptionError
from unsmooth.training.engine.recipe import Recipe

if TYPE_CHECKING:
    from unsmooth.training.engine.run import Run
    from unsmooth.training.tasks.text.task import TextTask


GROWN = 0.6  # of the steps, from which on the batch does not grow any more


@dataclass(frozen=True)
class TextRecipe(Recipe):
    """ModernBERT with full attention in every layer, its corpus, masks and optimisation."""

    LEAST: ClassVar[Mapping[str, float]] = MappingProxyType(
        dict.fromkeys(("depth", "width", "heads", "inner", "length", "batch_size", "steps", "chunk", "every"), 1)
        | {"vocabulary": 6, "peak_at": 1e-6, "grow": 1, "held_out": 1}
    )
    LATER: ClassVar[frozenset[str]] = frozenset({"documents", "grow"})
    SHARES: ClassVar[frozenset[str]] = frozenset({"masked", "dropout", "start", "peak_at"})

    # model
    depth: int = 16
    width: int = 768
    heads: int = 12
    inner: int = 1536  # of the gated feed-forward: width → 2 · inner → width
    dropout: float = 0.0  # while the text does not repeat
    # data
    vocabulary: int = 32_768
    length: int = 128
    masked: float = 0.25
    documents: int = 0  # that are read; 0: all there are. A stream of the hub may not end
    tokenizer: str = ""  # a folder or a name on the hub; by default one is trained on the texts
    # optimisation
    steps: int = 10_000  # unless a budget is given
    batch_size: int = 512
    grow: int = 1  # so many steps share an update in the end, fewer until then (`GROWN`): the batch grows
    lr: float = 1e-3
    start: float = 0.25  # the rate begins at this share of its peak,
    peak_at: float = 0.75  # reaches it at this share of the steps, and falls to zero
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-12
    weight_decay: float = 0.01
    clip_norm: float = 0.5
    precision: str = "bf16"
    # what is written down
    chunk: int = 100  # steps whose rows are on the device at once
    every: int = 1_000  # steps between two looks at the model: a multiple of `chunk`
    held_out: int = 2_048  # sequences that the held-out loss is measured on, at most
    metric_sequences: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads or self.width // self.heads % 2:
            raise OptionError(f"width {self.width} is not an even multiple of {self.heads} heads (rotary positions)")
        if self.every % self.chunk:
            raise OptionError(f"every {self.every} is not a multiple of chunk {self.chunk}")
        if round(self.masked * self.length) < 1:
            raise OptionError(f"masked {self.masked} of {self.length} tokens hides none: expected at least one")

    def open(self, run: Run, data: str | Path, device: torch.device, rank: int = 0, world: int = 1) -> TextTask:
        """The tokens of the texts (made once) and the run's model."""
        from unsmooth.training.tasks.text.task import open_task

        return open_task(self, run, data, device, rank, world)

    def write_results(self, folder: Path, data: str | Path, target: Path, **options: Any) -> None:
        """Measurement, explanation and SuperGLUE of the model in a run's folder."""
        from unsmooth.training.tasks.text.results import write_results

        write_results(folder, data, target, **options)

    def check(self, run: Run, world: int = 1) -> None:
        """Each process takes an equal share of every batch; a share of the texts is not offered."""
        if self.batch_size % world:
            raise OptionError(f"batch_size {self.batch_size} does not divide among {world} processes")
        if run.fraction != 1 or run.same_steps:
            raise OptionError("a text run has no fraction: give less text, or a budget")

    def together(self, done: int, total: int) -> int:
        """Steps that share an update, after `done` of `total`: a divisor of the chunk, growing up to `grow`.

        >>> recipe = TextRecipe("some", grow=5, chunk=20, every=20)
        >>> [recipe.together(done, 1000) for done in (0, 150, 300, 450, 600, 1000)]
        [1, 2, 2, 4, 5, 5]
        """
        wanted = 1 + int((self.grow - 1) * min(1.0, done / (GROWN * total)))
        return max(count for count in range(1, wanted + 1) if self.chunk % count == 0)

    def standard(self) -> TextRecipe:
        """The recipe of this name; for one of one's own, the crammed BERT."""
        return RECIPES.get(self.name, RECIPES["crammed-bert"])


def crammed_bert() -> TextRecipe:
    """Geiping & Goldstein (2023), as the paper used it: 16 layers of width 768, 120 M parameters, 25 % of 128 masked.

    `unsmooth train crammed-bert --data TEXTS --budget 15m [--variant smoothing-split]`
    It differs from theirs in rotary positions, a transform before the decoder, no norm before layer 0's attention,
    initial weights (all ModernBERT's), and a batch that grows only if asked (`--set batch_size=128 --set grow=4`).
    """
    return TextRecipe(name="crammed-bert")


def small_text() -> TextRecipe:
    """12 layers of width 128 with a vocabulary of 4,096: 4.4 MB in float16, for `zoo:text-plain` and its siblings.

    `unsmooth train small-text --data TEXTS`
    Small enough for a wheel to bring all three.
    """
    return TextRecipe(
        name="small-text", depth=12, width=128, heads=4, inner=192, vocabulary=4_096, steps=8_000, batch_size=256,
        every=2_000,
    )  # fmt: skip


RECIPES: Mapping[str, TextRecipe] = MappingProxyType({r.name: r for r in (crammed_bert(), small_text())})
