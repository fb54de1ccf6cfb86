"""A step of the crammed BERT: ours against Hugging Face's Trainer on the same model and batch, and the variants.

    python -m benchmarks.train_text                 # CPU: 2 layers, to see that it works
    python -m benchmarks.train_text --device cuda   # the recipe crammed-bert, batch 512 × 128
    python -m benchmarks.train_text --device cuda --profile plain   # only that variant, and which kernels its step runs
    python -m benchmarks.train_text --device cuda --fast            # only this: what training/fast is worth

Targets on one H200: ≥ 500,000 tokens a second plain, a reparametrised step ≤ 1.1× the plain one, ≥ 2.5× the Trainer.
Tokens are random: no data needed.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.clock import header, synchronize
from benchmarks.train_step import best, profile, timed
from unsmooth.control import Variant
from unsmooth.sources.shards import write_shards
from unsmooth.training import Speed, Trainer
from unsmooth.training.tasks.text.corpus import Corpus
from unsmooth.training.tasks.text.model import build_model
from unsmooth.training.tasks.text.recipe import RECIPES, TextRecipe
from unsmooth.training.tasks.text.task import TextTask

STEPS = 20  # of one timed chunk


class Words:
    """As much of a tokenizer as a task needs."""

    pad_token_id, cls_token_id, sep_token_id, mask_token_id = 0, 2, 3, 4


def corpus(recipe: TextRecipe, folder: Path) -> Corpus:
    """Random tokens."""
    ids = np.random.default_rng(0).integers(5, recipe.vocabulary, 4 * recipe.batch_size * recipe.length)
    shards = write_shards([ids], folder, length=recipe.length, vocabulary=recipe.vocabulary, key="random")
    return Corpus(Words(), shards, shards)


def our_trainer(
    recipe: TextRecipe, found: Corpus, variant: str, device: torch.device, speed: Speed | None = None
) -> Trainer:
    """Our step of a variant."""
    model = Variant.parse(variant).apply(build_model(recipe, recipe.vocabulary, found.tokenizer, 0)).to(device)
    return Trainer(TextTask(recipe, model, found), speed)


def measured(trainer: Trainer, chunks: int = 2) -> tuple[float, list[float], float]:
    """Milliseconds a step, the chunks' losses, and the seconds until the first chunk was done."""
    start, loop = time.perf_counter(), timed(trainer)
    first = next(loop)
    compiling = time.perf_counter() - start
    ms, losses = best(itertools.chain([first], loop), chunks)
    return ms, losses, compiling


class Sequences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences with labels at a quarter of their places, as a collator for masked language models makes them."""

    def __init__(self, found: Corpus, count: int, share: float) -> None:
        self.found, self.count, self.share = found, count, share

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = self.found.train.rows(torch.tensor([index % len(self.found.train)]))[0]
        hidden = torch.rand(len(ids)) < self.share
        inputs = torch.where(hidden, torch.full_like(ids, Words.mask_token_id), ids)
        return {"input_ids": inputs, "labels": torch.where(hidden, ids, -100)}


def hugging_face(recipe: TextRecipe, found: Corpus, device: torch.device, steps: int) -> float:
    """Milliseconds a step of the Trainer with the same batch, bf16 and fused AdamW where there is a GPU."""
    from transformers import Trainer as HfTrainer
    from transformers import TrainerCallback, TrainingArguments

    model: nn.Module = build_model(recipe, recipe.vocabulary, found.tokenizer, 0)
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            synchronize(device)
            times.append(time.perf_counter())

    cuda = device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=recipe.batch_size, bf16=cuda,
            use_cpu=not cuda, learning_rate=recipe.lr, report_to=[], save_strategy="no", logging_strategy="no",
            dataloader_num_workers=8 if cuda else 0, optim="adamw_torch_fused" if cuda else "adamw_torch",
            disable_tqdm=True,
        )  # fmt: skip
        data = Sequences(found, steps * recipe.batch_size, recipe.masked)
        HfTrainer(model=model, args=arguments, train_dataset=data, callbacks=[Clock()]).train()
    return 1e3 * (times[-1] - times[2]) / (len(times) - 3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--variants", nargs="*", default=["sharpening", "sharpening-split"])
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument("--fast", action="store_true", help="only this: the plain step with and without training/fast")
    parser.add_argument("--profile", metavar="VARIANT", help="only this: the kernels of its step")
    options = parser.parse_args()
    device = torch.device(options.device)
    small = ["depth=2", "width=64", "heads=2", "inner=64", "vocabulary=512", "length=32", "batch_size=16"]
    size = [f"chunk={STEPS}", f"every={STEPS}", f"steps={10 * STEPS}"]
    recipe = RECIPES["crammed-bert"].override([*([] if device.type == "cuda" else small), *size, *options.set])
    tokens = recipe.batch_size * recipe.length
    print(f"{recipe.depth} layers of {recipe.width}, batch {recipe.batch_size} × {recipe.length}; {header(device)}")
    with tempfile.TemporaryDirectory() as folder:
        found = corpus(recipe, Path(folder) / "tokens")
        if options.profile:
            profile(our_trainer(recipe, found, options.profile, device))
            return
        plain = 0.0
        for name, speed in {
            "ours, plain": Speed(),
            **({"without fast": Speed(shortcuts=())} if options.fast else {}),
        }.items():
            ms, losses, until = measured(our_trainer(recipe, found, "plain", device, speed))
            plain = plain or ms
            print(
                f"{name}: {ms:.1f} ms a step, {1e3 * tokens / ms:,.0f} tokens/s, {ms / plain:.3f}×; losses {losses}; "
                f"{until:.0f} s until the first chunk was done",
                flush=True,
            )
        if options.fast:
            return
        other = hugging_face(recipe, found, device, 12)
        print(f"Trainer: {other:.1f} ms a step; Trainer / ours {other / plain:.2f}×", flush=True)
        for variant in options.variants:
            here, _, _ = measured(our_trainer(recipe, found, variant, device))
            print(f"{variant}: {here:.1f} ms a step, {here / plain:.3f}× plain", flush=True)


if __name__ == "__main__":
    main()
