"""The examples in docstrings are true, on any CPU."""

from __future__ import annotations

import ast
import doctest
import pkgutil
from importlib import import_module
from typing import Any

import pytest

import unsmooth

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(unsmooth.__path__, "unsmooth.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(import_module(name), name):
        if test.examples:  # a docstring without any is run, too, by testmod: each looks at every file ever traced
            runner.run(test)
    assert runner.failures == 0


def holds_float(value: Any) -> bool:
    """Whether a literal is or holds a float."""
    if isinstance(value, list | tuple | set):
        return any(map(holds_float, value))
    return any(map(holds_float, value.values())) if isinstance(value, dict) else isinstance(value, float)


def unrounded(test: doctest.DocTest) -> list[str]:
    """Examples that print a float as a tensor's arithmetic left it: the last digits are another CPU's choice."""
    computed, found = False, []
    for example in test.examples:
        computed |= "torch." in example.source
        try:
            wanted = ast.literal_eval(example.want.strip())
        except (SyntaxError, ValueError):
            continue
        if computed and holds_float(wanted) and "round(" not in example.source:
            found.append(f"{test.name}: {example.source.strip()}")
    return found


def test_no_example_prints_a_float_that_a_tensor_computed_without_rounding_it() -> None:
    finder = doctest.DocTestFinder()
    tests = [test for name in MODULES for test in finder.find(import_module(name))]
    assert len([test for test in tests if test.examples]) > 50
    assert [line for test in tests for line in unrounded(test)] == []


def test_the_guard_sees_an_unrounded_float() -> None:
    parse = doctest.DocTestParser().get_doctest
    text = ">>> torch.tensor([0.75]).tolist()\n[0.75]\n>>> round(torch.ones(1).item(), 6)\n1.0\n"
    assert unrounded(parse(text, {}, "case", None, None)) == ["case: torch.tensor([0.75]).tolist()"]
