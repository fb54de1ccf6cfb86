"""Masked language modelling on tokens that stream from disk; which tokens are hidden is drawn on the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn
from torch.nn import functional as F

from unsmooth.models import view
from unsmooth.sources.files import cache_folder
from unsmooth.training.engine.observe import observe
from unsmooth.training.engine.order import Order
from unsmooth.training.engine.precision import autocast
from unsmooth.training.engine.run import Run
from unsmooth.training.engine.schedule import triangle
from unsmooth.training.engine.step import Speed
from unsmooth.training.engine.task import Batch, FastPath, Optimisation, Rows, Task
from unsmooth.training.fast.encoder import FastEncoder, fits
from unsmooth.training.tasks.text.corpus import Corpus, open_corpus
from unsmooth.training.tasks.text.masking import Hidden, draw_hidden, hide
from unsmooth.training.tasks.text.model import build_model, masked_logits, save_model
from unsmooth.training.tasks.text.recipe import TextRecipe

EVALUATED = 128  # sequences at once


class TextTask(Task):
    """Sequences of the corpus, shuffled anew in every pass, with fresh masks each time."""

    def __init__(
        self, recipe: TextRecipe, model: nn.Module, corpus: Corpus, *, seed: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        self.recipe, self.model, self.corpus = recipe, model, corpus
        self.seed, self.rank, self.world = seed, rank, world
        self.device = next(model.parameters()).device
        self.data_hash = corpus.train.key
        self.mask_id = int(corpus.tokenizer.mask_token_id)  # a number: compiled code reads it
        self.total, self.chunk, self.every = recipe.steps, recipe.chunk, recipe.every
        self.grows = recipe.grow > 1
        self.order = Order(len(corpus.train), seed)
        self._short: FastEncoder | None = None  # how a GPU computes the loss
        self.optimisation = Optimisation(
            weight_decay=recipe.weight_decay,
            betas=(recipe.beta1, recipe.beta2),
            eps=recipe.eps,
            clip_norm=recipe.clip_norm,
            precision=recipe.precision,
        )

    def stream(self, step: int) -> Iterator[Rows]:
        """Chunks of ids and of draws: of every batch of all processes, this one's rows."""
        size, share = self.recipe.batch_size, self.recipe.batch_size // self.world
        mine = slice(self.rank * share, (self.rank + 1) * share)
        while True:
            steps = self.chunk - step % self.chunk
            chosen = self.order.take(step * size, steps * size).view(steps, size)[:, mine]
            ids = self.corpus.train.rows(chosen.flatten()).view(steps, share, -1)
            draws = [self._draw(size, 1_000_003 * self.seed + step + i) for i in range(steps)]
            yield {
                "ids": ids,
                "positions": torch.stack([draw.positions[mine] for draw in draws]),
                "words": torch.stack([draw.words[mine] for draw in draws]),
            }
            step += steps

    def _draw(self, rows: int, seed: int) -> Hidden:
        rng = torch.Generator().manual_seed(seed)
        return draw_hidden(rows, self.recipe.length, self.recipe.masked, self.corpus.train.vocabulary, rng)

    def prepare(self, rows: Rows) -> Batch:
        """Hide the tokens drawn."""
        hidden = Hidden(rows["positions"], rows["words"])
        inputs, targets = hide(rows["ids"], hidden, self.mask_id)
        return inputs, hidden.positions, targets

    def loss(self, *batch: Tensor) -> Float[Tensor, ""]:
        """Cross-entropy of the hidden tokens."""
        inputs, positions, targets = batch
        if self._short is not None:
            return self._short.loss(inputs, positions, targets)
        return F.cross_entropy(masked_logits(self.model, inputs, positions).float().flatten(0, 1), targets.flatten())

    def fast_path(self, speed: Speed, half: bool) -> FastPath:
        """Kernels and short cuts for ModernBERT in bfloat16."""
        wanted = half and speed.attention is None and speed.shortcuts != ()
        self._short = FastEncoder(self.model, speed) if wanted and fits(self.model) else None
        return self._short or FastPath()

    def together(self, done: int, total: int) -> int:
        """As the recipe says."""
        return self.recipe.together(done, total)

    def rates(self, total: int) -> Float32[Tensor, step]:
        """A triangle over all steps."""
        return triangle(self.recipe.lr, total, self.recipe.start, self.recipe.peak_at)

    @torch.no_grad()
    def evaluate(self, model: nn.Module, final: bool = False) -> dict[str, Any]:
        """Loss in nats and accuracy on hidden tokens of held-out text, the same ones every time."""
        held, precision = self.corpus.validation, "float32" if final else self.recipe.precision
        count, training = min(len(held), self.recipe.held_out), model.training
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        tokens = 0
        model.eval()
        for start in range(0, count, EVALUATED):
            ids = held.rows(torch.arange(start, min(start + EVALUATED, count)))
            draw = self._draw(EVALUATED, start)  # by the sequence's number alone
            rows = {"ids": ids, "positions": draw.positions[: len(ids)], "words": draw.words[: len(ids)]}
            inputs, positions, targets = self.prepare({name: t.to(self.device) for name, t in rows.items()})
            with autocast(self.device, precision):
                logits = masked_logits(model, inputs, positions)
            loss += F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum").double()
            right += (logits.argmax(-1) == targets).sum()
            tokens += targets.numel()
        model.train(training)
        return {"loss": float(loss) / tokens, "accuracy": int(right) / tokens, "sequences": count}

    def observe(self, model: nn.Module) -> dict[str, Any]:
        """Smoothing of held-out sequences, nothing hidden, and the spectrum of H."""
        count = min(len(self.corpus.validation), self.recipe.metric_sequences)
        backbone: nn.Module = model.model  # type: ignore[assignment]
        rows = self.corpus.validation.rows(torch.arange(count)).to(self.device)
        return observe(backbone, rows.split(16) if count else ())

    def save(self, model: nn.Module, folder: Path, about: dict[str, Any]) -> str:
        """A Hugging Face folder with its tokenizer."""
        return save_model(model, self.corpus.tokenizer, folder, {**about, "recipe": self.recipe.as_dict()})


def open_task(recipe: TextRecipe, run: Run, data: str | Path, device: torch.device, rank: int, world: int) -> TextTask:
    """The run's texts and model."""
    corpus = open_texts(recipe, data)
    built = build_model(recipe, corpus.train.vocabulary, corpus.tokenizer, run.seed)
    model = run.control.apply(built, run.std, run.seed).to(device)
    view(model)  # `observe` needs it: better refused now than after the first steps
    return TextTask(recipe, model, corpus, seed=run.seed, rank=rank, world=world)


def open_texts(recipe: TextRecipe, data: str | Path) -> Corpus:
    """The tokens of the texts, made now if nobody has; several paths are separated by commas."""
    return open_corpus(
        str(data).split(","),
        cache_folder() / "tokens",
        length=recipe.length,
        vocabulary=recipe.vocabulary,
        tokenizer=recipe.tokenizer or None,
        documents=recipe.documents or None,
    )
