"""A slice of `make fuzz` that takes seconds: no input ends in a raw traceback."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from fuzz.__main__ import attempts
from fuzz.damage import damaged_bytes, damaged_json
from fuzz.target import Target
from fuzz.targets import TARGETS

pytest.importorskip("timm")
pytest.importorskip("transformers")
pytest.importorskip("pyarrow")


@pytest.mark.parametrize("make", TARGETS, ids=lambda make: make.__name__.lower())
def test_damaged_inputs_work_or_are_refused_by_name(make: type[Target], tmp_path: Path) -> None:
    for number, outcome, trace in islice(attempts(make(tmp_path / "fuzz"), seed=0), 12):
        assert outcome != "raw", f"python -m fuzz --only {make.__name__.lower()} --first {number} --inputs 1\n{trace}"


def test_a_seed_draws_the_same_damage_and_the_damage_is_some() -> None:
    import random

    good = {"a": [1, 2, {"b": "c"}], "d": None}
    drawn = [damaged_json(random.Random(seed), good) for seed in range(50)]
    assert drawn == [damaged_json(random.Random(seed), good) for seed in range(50)]
    assert len(set(drawn)) > 40
    assert len({damaged_bytes(random.Random(seed), b"content" * 9) for seed in range(50)}) > 40


def test_an_error_that_is_not_ours_is_counted_as_raw(tmp_path: Path) -> None:
    class Broken(Target):
        def attempt(self, draw: object) -> None:
            raise KeyError("x")

    assert next(attempts(Broken(tmp_path / "x"), seed=0))[1] == "raw"
