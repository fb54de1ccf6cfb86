"""A step of fine-tuning the crammed BERT on 16 texts: our kernels against Hugging Face's own code, both captured.

    python -m benchmarks.finetune_step                 # CPU: 2 layers, to see that it works
    python -m benchmarks.finetune_step --device cuda   # the recipe crammed-bert, texts as long as SuperGLUE's

Tokens are random and half of every text is padding on average: no data needed. Weights are those of a model that was
not trained, and the times do not depend on them.
"""

from __future__ import annotations

import argparse
import time

import torch

from benchmarks.clock import header, synchronize
from benchmarks.train_text import Words
from unsmooth.training import Speed, Trainer
from unsmooth.training.engine.task import FastPath
from unsmooth.training.tasks.superglue.classifier import PairClassifier, copied_encoder, new_head
from unsmooth.training.tasks.superglue.examples import TASKS, Example, SuperGlueTask
from unsmooth.training.tasks.superglue.finetune import FineTuneTask, FineTuning, Split
from unsmooth.training.tasks.text.model import build_model
from unsmooth.training.tasks.text.recipe import RECIPES

STEPS = 40  # of one timed chunk
LENGTHS = {"COPA": 48, "WiC": 80, "RTE": 128, "MultiRC": 256}  # of the longest text


class WithoutKernels(FineTuneTask):
    """By the encoder's own code."""

    def fast_path(self, speed: Speed, half: bool) -> FastPath:
        """None."""
        return FastPath()


def split(task: SuperGlueTask, count: int, length: int, vocabulary: int) -> Split:
    """Random tokens, padded behind."""
    rng = torch.Generator().manual_seed(0)
    ids = torch.randint(5, vocabulary, (count, task.choices, length), generator=rng)
    ends = torch.randint(1, length + 1, (count, task.choices, 1), generator=rng)
    labels = torch.randint(len(task.labels), (count,), generator=rng).tolist()
    return Split([Example((), label) for label in labels], ids, torch.arange(length) < ends)


def milliseconds(trainer: Trainer, rounds: int) -> float:
    """Of a step, in the best of some chunks after one that compiles and captures."""
    stream, best = trainer.task.stream(0), float("inf")
    rates = torch.full((trainer.task.chunk,), 1e-5)
    for turn in range(rounds + 1):
        rows = next(stream)
        synchronize(trainer.device)
        start = time.perf_counter()
        trainer.run_chunk(rows, rates, seed=turn)
        synchronize(trainer.device)
        if turn:
            best = min(best, 1e3 * (time.perf_counter() - start) / trainer.task.chunk)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tasks", nargs="*", default=[*LENGTHS], choices=[*LENGTHS])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    device, how = torch.device(options.device), FineTuning()
    cuda = device.type == "cuda"
    small = ["depth=2", "width=64", "heads=2", "inner=64", "vocabulary=512"]
    recipe = RECIPES["crammed-bert"].override([] if cuda else small)
    model = build_model(recipe, recipe.vocabulary, Words(), 0)
    print(f"{recipe.depth} layers of {recipe.width}, {how.batch_size} texts; {header(device)}", flush=True)
    for name in options.tasks:
        task = TASKS[name]
        count = (STEPS if cuda else 2) * how.batch_size
        data = split(task, count, LENGTHS[name], recipe.vocabulary)
        times = []
        for kind in (FineTuneTask, WithoutKernels):
            pair = PairClassifier(copied_encoder(model), new_head(recipe.width, task, 0)).to(device)
            trainer = Trainer(kind(task, pair, data, data, how, seed=0), Speed(compile_mode=None))
            times.append(milliseconds(trainer, options.rounds if cuda else 1))
            del trainer
        ours, theirs = times
        shape = f"{task.choices} × {LENGTHS[name]} tokens"
        print(f"{name} ({shape}): ours {ours:.2f} ms, theirs {theirs:.2f}, {theirs / ours:.2f}×", flush=True)


if __name__ == "__main__":
    main()
