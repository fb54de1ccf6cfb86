"""The official metrics of SuperGLUE, and what the best constant guess would score."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from unsmooth.training.tasks.superglue.examples import Example, SuperGlueTask


def score(task: SuperGlueTask, examples: Sequence[Example], guesses: Sequence[int]) -> dict[str, float]:
    """Each metric of the task in [0, 1], and `score`, their mean."""
    found = {name: METRICS[name](examples, guesses) for name in task.metrics}
    return {**found, "score": sum(found.values()) / len(found)}


def constant_guess(task: SuperGlueTask, examples: Sequence[Example]) -> dict[str, float]:
    """The scores of the one label that scores best when it is always guessed.

    Not the label most frequent in training: COPA's is right in 45 % of validation, below chance, and always "no"
    scores 0 by MultiRC's F1.
    """
    found = [score(task, examples, [label] * len(examples)) for label in range(len(task.labels))]
    return max(found, key=lambda scores: scores["score"])


def accuracy(examples: Sequence[Example], guesses: Sequence[int]) -> float:
    """The share that is right."""
    return sum(e.label == guess for e, guess in zip(examples, guesses, strict=True)) / len(examples)


def f1(examples: Sequence[Example], guesses: Sequence[int], label: int) -> float:
    """Harmonic mean of precision and recall for one label; 0 where it is never right."""
    pairs = [(e.label == label, guess == label) for e, guess in zip(examples, guesses, strict=True)]
    both, either = sum(a and b for a, b in pairs), sum(a + b for a, b in pairs)
    return 2 * both / either if either else 0.0


def f1_macro(examples: Sequence[Example], guesses: Sequence[int]) -> float:
    """The mean of all labels' F1, those that occur or are guessed (CB)."""
    labels = sorted({e.label for e in examples} | set(guesses))
    return sum(f1(examples, guesses, label) for label in labels) / len(labels)


def f1_answers(examples: Sequence[Example], guesses: Sequence[int]) -> float:
    """F1 of the right answers, over all answers of all questions (MultiRC's F1a)."""
    return f1(examples, guesses, 1)


def exact_match(examples: Sequence[Example], guesses: Sequence[int]) -> float:
    """The share of questions all of whose answers are judged rightly (MultiRC's EM)."""
    right: dict[tuple[int, ...], bool] = defaultdict(lambda: True)
    for e, guess in zip(examples, guesses, strict=True):
        right[e.group] &= e.label == guess
    return sum(right.values()) / len(right)


METRICS = {"accuracy": accuracy, "f1_macro": f1_macro, "f1_answers": f1_answers, "exact_match": exact_match}
