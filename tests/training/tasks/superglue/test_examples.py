"""SuperGLUE's files become examples, and its official metrics are what scikit-learn's definitions give."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unsmooth.errors import DataError, OptionError
from unsmooth.training.tasks.superglue.examples import TASKS, Example, find_task, read_examples
from unsmooth.training.tasks.superglue.scores import constant_guess, exact_match, f1, f1_macro, score

COUNTS = {  # train, val: the official numbers of examples
    "BoolQ": (9427, 3270), "CB": (250, 56), "COPA": (400, 100), "MultiRC": (27243, 4848), "RTE": (2490, 277),
    "WiC": (5428, 638), "WSC": (554, 104),
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", TASKS)
def test_the_official_files_are_read_whole(shared_data: Path, name: str) -> None:
    task = TASKS[name]
    splits = [read_examples(shared_data / "superglue", task, split) for split in ("train", "val")]
    assert tuple(map(len, splits)) == COUNTS[name]
    for example in (e for split in splits for e in split):
        assert len(example.choices) == task.choices
        assert 0 <= example.label < len(task.labels)
        assert all(text.strip() for pair in example.choices for text in pair)
    assert len({e.label for e in splits[1]}) == len(task.labels)


@pytest.mark.shared
def test_wsc_marks_the_span_and_the_pronoun(shared_data: Path) -> None:
    first = read_examples(shared_data / "superglue", TASKS["WSC"], "train")[0]
    ((text, claim),) = first.choices
    assert text.startswith("[ Mark ] told Pete")
    assert "[ He ] should have" in text
    assert claim == "He is Mark"


@pytest.mark.parametrize(
    ("span", "pronoun", "marked"),
    [
        (("Mark Twain", 4), ("he", 1), "When [ he ] was young, [ Mark Twain ] travelled with his mother."),
        (("his mother.", 8), ("his", 8), "When he was young, Mark Twain travelled with [ [ his ] mother. ]"),
    ],
)
def test_wsc_marks_a_pronoun_before_the_span_or_in_it(
    span: tuple[str, int], pronoun: tuple[str, int], marked: str
) -> None:
    target = {
        f"{name}_{key}": value
        for name, pair in (("span1", span), ("span2", pronoun))
        for key, value in zip(("text", "index"), pair, strict=True)
    }
    text = "When he was young, Mark Twain travelled with his mother."
    (example,) = TASKS["WSC"].read({"text": text, "target": target, "label": True}, TASKS["WSC"])
    assert example.choices[0] == (marked, f"{pronoun[0]} is {span[0]}")


@pytest.mark.shared
def test_the_best_constant_guess_of_validation(shared_data: Path) -> None:
    folder, found = shared_data / "superglue", {}
    for name, task in TASKS.items():
        found[name] = constant_guess(task, read_examples(folder, task, "val"))
    assert found["BoolQ"]["accuracy"] == pytest.approx(2033 / 3270)
    assert found["CB"]["accuracy"] == pytest.approx(28 / 56)
    assert found["CB"]["f1_macro"] == pytest.approx(2 * 28 / (28 + 56) / 3)
    assert found["COPA"]["accuracy"] == pytest.approx(55 / 100)  # the label that is rarer in training
    assert found["MultiRC"]["f1_answers"] > 0.5  # always "yes"


labels = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30)


@given(labels)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(pairs: list[tuple[int, int]]) -> None:
    examples, guesses = [Example((), label) for label, _ in pairs], [guess for _, guess in pairs]
    for label in range(3):
        right = sum(a == b == label for a, b in pairs)
        guessed, there = sum(b == label for _, b in pairs), sum(a == label for a, _ in pairs)
        precision, recall = (right / n if n else 0.0 for n in (guessed, there))
        expected = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        assert f1(examples, guesses, label) == pytest.approx(expected)
    seen = {label for pair in pairs for label in pair}
    assert f1_macro(examples, guesses) == pytest.approx(sum(f1(examples, guesses, k) for k in seen) / len(seen))


def test_a_question_counts_only_when_all_its_answers_are_judged_rightly() -> None:
    examples = [Example((), 1, (0, 0)), Example((), 0, (0, 0)), Example((), 1, (0, 1))]
    assert exact_match(examples, [1, 0, 0]) == 0.5
    assert exact_match(examples, [1, 1, 1]) == 0.5
    assert score(TASKS["MultiRC"], examples, [1, 0, 1]) == {"f1_answers": 1.0, "exact_match": 1.0, "score": 1.0}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "JSONDecodeError"),
        (b"[1]", "TypeError"),
        (
            b'{"premise": "a", "hypothesis": "b", "label": "maybe"}',
            "ValueError: label 'maybe', expected",
        ),
        (b'{"premise": "a", "label": "entailment"}', "KeyError"),
        (b'{"premise": "\xff"}', "UnicodeDecodeError"),
        (b'{"premise": null, "hypothesis": "b", "label": "entailment"}', "TypeError: premise is None, expected text"),
    ],
)
def test_a_broken_record_is_named_by_its_line(tmp_path: Path, line: bytes, why: str) -> None:
    (tmp_path / "RTE").mkdir()
    good = json.dumps({"premise": "a", "hypothesis": "b", "label": "entailment"}).encode()
    (tmp_path / "RTE" / "val.jsonl").write_bytes(good + b"\n" + line)
    with pytest.raises(DataError, match=rf"val\.jsonl, line 2: not a record of RTE \({why}"):
        read_examples(tmp_path, TASKS["RTE"], "val")


@pytest.mark.parametrize("name", ["COPA", "WiC", "WSC", "MultiRC", "BoolQ"])
@pytest.mark.shared
def test_what_is_no_text_is_never_written_as_text(shared_data: Path, name: str) -> None:
    """A null became the word None."""
    with (shared_data / "superglue" / name / "val.jsonl").open() as file:
        record = json.loads(next(file))

    def without(value: Any) -> Iterator[Any]:
        """Copies in which one text is null."""
        for key, inner in enumerate(value) if isinstance(value, list) else value.items():
            for other in [None] if isinstance(inner, str) else without(inner) if isinstance(inner, list | dict) else []:
                changed = copy.deepcopy(value)
                changed[key] = other
                yield changed

    broken = list(without(record))
    assert len(broken) >= 2
    for each in broken:
        with pytest.raises((TypeError, KeyError, AttributeError)):
            list(TASKS[name].read(each, TASKS[name]))


def test_missing_and_empty_files_and_unknown_tasks_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file at .*expected SuperGLUE's own layout"):
        read_examples(tmp_path, TASKS["CB"], "val")
    (tmp_path / "CB").mkdir()
    (tmp_path / "CB" / "val.jsonl").write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        read_examples(tmp_path, TASKS["CB"], "val")
    assert find_task("boolq").name == "BoolQ"
    with pytest.raises(OptionError, match="unknown SuperGLUE task 'ReCoRD'"):
        find_task("ReCoRD")
