"""A model of a command line that no registered row matches gets the row that is found by running it on its data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from unsmooth.errors import NoRowError, UnknownModelError
from unsmooth.models.family import Family
from unsmooth.models.finding import find_family
from unsmooth.models.inputs import main_input, rows_of
from unsmooth.models.registry import families, keep_for, kept_for, match, register_family
from unsmooth.models.view import module_of

FOUND = "found:"  # begins the names of such rows
SAMPLES = 2  # of the first batch: every module's inputs and outputs are kept while a row is sought


def recognise(model: nn.Module, batches: Iterable[Any]) -> Family | None:
    """The row that was found and registered; None where one is registered already, or the same was found before.

    A row that was found on another model of the class is no proof: an option of the configuration may move or add a
    norm. So each model gets its own, and the class the last one, for copies of the model.

    Refusals by name (no softmax attention, several towers, …) stand; UnknownModelError also where none can be found.
    """
    model, fact = module_of(model), ""
    try:
        if not match(model)[2].name.startswith(FOUND) or kept_for(model) is not None:
            return None
    except NoRowError as lacking:
        fact = f"{lacking.fact} By running it, "
    first = next(iter(batches), None)
    if first is None:  # whoever measures says what to do about no data
        return None
    try:
        row = find_family(model, rows_of(main_input(first), slice(SAMPLES)), f"{FOUND}{type(model).__name__}")
    except UnknownModelError as reason:
        raise UnknownModelError(f"{fact}{reason}") from reason
    known = row in families()
    keep_for(model, register_family(row))
    return None if known else row


def found_said(row: Family) -> str:
    """One sentence on what was found."""
    blocks = f"{_PLACES[row.placement]} in {row.blocks or 'itself'}"
    attention = "its attention's weights" if row.attention is not None else "no weights that give its attention"
    return (
        f"no family matches this model, so its row was found by running it on the first samples ({blocks}, {attention})"
        "; it adds up there, but it is found, not tested like a family"
    )


_PLACES = {
    "pre": "pre-norm blocks",
    "post": "post-norm blocks",
    "parallel": "parallel blocks",
    "parallel-shared": "parallel blocks behind one norm",
}
