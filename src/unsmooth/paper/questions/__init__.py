"""The open questions of the paper, its poster and their readers: a function each says what the evidence says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from unsmooth.paper.evidence import Evidence
from unsmooth.paper.item import Table

Status = Literal["settled", "leaning", "open"]
Needs = Literal["runs", "results", "models"]  # of the list `study`; of another item; of models that are too large
SURE: tuple[Status, ...] = ("settled", "leaning", "open")


class Answer(NamedTuple):
    """How sure it is, from how many, what is said, and the numbers behind it where a sentence cannot hold them."""

    status: Status
    n: str
    said: str
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Question:
    """What is asked and by whom, the command behind the answer, what would settle it, and who answers.

    `answer` gives None where there is no evidence yet: no run, or no saved result of another item.
    """

    asked: str
    by: str
    command: str
    settle: str
    answer: Callable[[Evidence], Answer | None]
    needs: Needs = "runs"

    @property
    def name(self) -> str:
        """That of the function, for links: numbers change with what is known."""
        return self.answer.__name__.replace("_", "-")


@dataclass(frozen=True)
class Finding:
    """What is known about one question, by which command, and what would settle it (nothing where it is settled)."""

    status: Status
    n: str
    answer: str
    command: str
    settle: str
    tables: Sequence[Table] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "tables": [table.to_json() for table in self.tables]}


QUESTIONS: list[Question] = []


def question(
    asked: str, by: str, command: str, settle: str, needs: Needs = "runs"
) -> Callable[[Callable[[Evidence], Answer | None]], Callable[[Evidence], Answer | None]]:
    """Put a question on the list, answered by the function below."""

    def register(answer: Callable[[Evidence], Answer | None]) -> Callable[[Evidence], Answer | None]:
        QUESTIONS.append(Question(asked, by, f"unsmooth reproduce {command}", settle, answer, needs))
        return answer

    return register


def found(asked: Question, evidence: Evidence) -> Finding:
    """What the evidence says, or that there is none."""
    if (answer := asked.answer(evidence)) is not None:
        settle = "" if answer.status == "settled" else asked.settle
        return Finding(answer.status, answer.n, answer.said, asked.command, settle, answer.tables)
    if asked.needs == "results":
        return Finding("open", "0", "No saved result is here.", asked.command, "that command with --out")
    if asked.needs == "models":
        return Finding("open", "0 models", "No result of a model is here.", asked.command, asked.settle)
    train = "`unsmooth train --list study --data PATH`"
    return Finding("open", "0 runs", "No run so far.", asked.command, train)


# at the end, where `question` is there: in this order they are put, whichever of them is imported first
from unsmooth.paper.questions import accuracy, bounds, depth, features, finetuned, theory, variants  # noqa: E402, F401
