"""The seven tasks of SuperGLUE as examples of one shape: one or more pairs of texts, and which label is right.

ReCoRD is not among them. The text formats are plain: no span features, the word or pronoun in question is marked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unsmooth.errors import DataError, OptionError

Pair = tuple[str, str]


@dataclass(frozen=True)
class Example:
    """`choices` are scored: one, by as many logits as there are labels, or several, by one logit each.

    `group` is the question to which an answer belongs (MultiRC).
    """

    choices: tuple[Pair, ...]
    label: int
    group: tuple[int, ...] = ()


@dataclass(frozen=True)
class SuperGlueTask:
    """One task: its labels, how a record reads, how it is scored, and how it is fine-tuned."""

    name: str
    labels: tuple[object, ...]  # as the files have them, in the order of the logits
    read: Callable[[dict[str, Any], SuperGlueTask], Iterable[Example]]
    metrics: tuple[str, ...] = ("accuracy",)  # the score is their mean
    length: int = 128
    epochs: int = 5
    seeds: int = 3

    @property
    def choices(self) -> int:
        """Pairs of texts in an example."""
        return 2 if self.name == "COPA" else 1

    @property
    def outputs(self) -> int:
        """Logits for each pair."""
        return 1 if self.choices > 1 else len(self.labels)

    def label(self, value: object) -> int:
        """The index of a label in the files."""
        if value not in self.labels or isinstance(value, bool) != isinstance(self.labels[0], bool):
            raise ValueError(f"label {value!r}, expected one of {', '.join(map(repr, self.labels))}")
        return self.labels.index(value)


def _text(record: dict[str, Any], name: str) -> str:
    """The text under this name."""
    if not isinstance(found := record[name], str):
        raise TypeError(f"{name} is {found!r}, expected text")
    return found


def _boolq(r: dict[str, Any], task: SuperGlueTask) -> Iterator[Example]:
    yield Example(((_text(r, "question"), _text(r, "passage")),), task.label(r["label"]))


def _entailment(r: dict[str, Any], task: SuperGlueTask) -> Iterator[Example]:
    yield Example(((_text(r, "premise"), _text(r, "hypothesis")),), task.label(r["label"]))


def _copa(r: dict[str, Any], task: SuperGlueTask) -> Iterator[Example]:
    asked = {"cause": "What was the cause?", "effect": "What happened as a result?"}[r["question"]]
    first = f"{_text(r, 'premise')} {asked}"
    yield Example(((first, _text(r, "choice1")), (first, _text(r, "choice2"))), task.label(r["label"]))


def _multirc(r: dict[str, Any], task: SuperGlueTask) -> Iterator[Example]:
    for question in r["passage"]["questions"]:
        for answer in question["answers"]:
            pair = (f"{_text(question, 'question')} {_text(answer, 'text')}", _text(r["passage"], "text"))
            yield Example((pair,), task.label(answer["label"]), (r["idx"], question["idx"]))


def _wic(r: dict[str, Any], task: SuperGlueTask) -> Iterator[Example]:
    pair = (f"{_text(r, 'word')}: {_text(r, 'sentence1')}", _text(r, "sentence2"))
    yield Example((pair,), task.label(r["label"]))


def _wsc(r: dict[str, Any], task: SuperGlueTask) -> Iterator[Example]:
    words, target = r["text"].split(), r["target"]
    starts, ends = [], []
    for span in ("span1", "span2"):  # either may come first, or lie in the other
        start, count = target[f"{span}_index"], len(target[f"{span}_text"].split())
        if not 0 <= start < len(words):
            raise ValueError(f"{span}_index {start} is outside the text of {len(words)} words")
        starts.append(start)
        ends.append(min(start + count, len(words)))
    marked: list[str] = []
    for i in range(len(words) + 1):
        marked += ["]"] * ends.count(i) + ["["] * starts.count(i) + words[i : i + 1]
    yield Example(((" ".join(marked), f"{target['span2_text']} is {target['span1_text']}"),), task.label(r["label"]))


TASKS = {
    task.name: task
    for task in (
        SuperGlueTask("BoolQ", (False, True), _boolq, length=256),
        SuperGlueTask(
            "CB", ("contradiction", "entailment", "neutral"), _entailment, ("accuracy", "f1_macro"), epochs=10, seeds=5
        ),
        SuperGlueTask("COPA", (0, 1), _copa, epochs=10, seeds=5),
        SuperGlueTask("MultiRC", (0, 1), _multirc, ("f1_answers", "exact_match"), length=256),
        SuperGlueTask("RTE", ("not_entailment", "entailment"), _entailment, seeds=5),
        SuperGlueTask("WiC", (False, True), _wic),
        SuperGlueTask("WSC", (False, True), _wsc, epochs=10, seeds=5),
    )
}


def find_task(name: str) -> SuperGlueTask:
    """The task of this name, however it is capitalised."""
    found = next((task for key, task in TASKS.items() if key.lower() == name.lower()), None)
    if found is None:
        raise OptionError.unknown("SuperGLUE task", name, TASKS)
    return found


def read_examples(folder: str | Path, task: SuperGlueTask, split: str) -> list[Example]:
    """All examples of a split, from `FOLDER/NAME/SPLIT.jsonl`."""
    path, content = _content(folder, task, split)
    found: list[Example] = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found += task.read(json.loads(line.decode("utf-8-sig")), task)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}"
            raise DataError(f"{path}, line {number}: not a record of {task.name} ({what})") from error
    if not found:
        raise DataError(f"{path} is empty: expected one record per line")
    return found


def files_hash(folder: str | Path, task: SuperGlueTask) -> str:
    """Of the files that a task reads: scores of others are not to be mixed with these."""
    digest = hashlib.blake2b(digest_size=8)
    for split in ("train", "val"):
        digest.update(hashlib.blake2b(_content(folder, task, split)[1]).digest())
    return digest.hexdigest()


def _content(folder: str | Path, task: SuperGlueTask, split: str) -> tuple[Path, bytes]:
    path = Path(folder) / task.name / f"{split}.jsonl"
    if not path.is_file():
        raise DataError(f"no file at {path}: expected SuperGLUE's own layout, a folder per task with {split}.jsonl")
    return path, path.read_bytes()


def check_files(folder: str | Path) -> None:
    """DataError where a task's files are not there or cannot be read: better now than when a model is trained."""
    for task in TASKS.values():
        for split in ("train", "val"):
            read_examples(folder, task, split)
