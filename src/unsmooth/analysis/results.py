"""One loader for every kind of result file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from unsmooth.analysis import sweep, token_view
from unsmooth.analysis.attributing import attribution
from unsmooth.analysis.attributing.attribution import Attribution
from unsmooth.analysis.explaining import explanation
from unsmooth.analysis.explaining.explanation import Explanation
from unsmooth.analysis.measuring import measurement
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.sweep import Sweep
from unsmooth.analysis.token_view import TokenView
from unsmooth.errors import CheckpointError
from unsmooth.sources.files import read_json, validate_file
from unsmooth.sources.hub import zoo_result

Result = Measurement | Explanation | Attribution | Sweep | TokenView
R = TypeVar("R", Measurement, Explanation, TokenView)
# Every schema that was ever written, and who reads it.
READERS: dict[str, Callable[[Mapping[str, Any]], Result]] = {
    measurement.SCHEMA: Measurement.from_json,
    explanation.SCHEMA: Explanation.from_json,
    "unsmooth.explanation/1": Explanation.from_json,
    attribution.SCHEMA: Attribution.from_json,
    sweep.SCHEMA: Sweep.from_json,
    token_view.SCHEMA: TokenView.from_json,
}


def load(path: str | Path) -> Result:
    """Read a saved result: Measurement, Explanation, Attribution, Sweep or TokenView, whichever the file holds.

    `zoo:NAME/FILE.json` is one of the zoo, such as `zoo:small-text-plain/measurement.json`: shipped, or on the hub.
    """
    if str(path).startswith("zoo:"):
        path = zoo_result(str(path))
    found = read_json(path, *READERS)
    with validate_file(path):
        return READERS[found["schema"]](found)


def load_measurement(path: str | Path) -> Measurement:
    """Read what `Measurement.save` wrote; another kind of result is an error."""
    return _only(Measurement, path)


def load_explanation(path: str | Path) -> Explanation:
    """Read what `Explanation.save` wrote; another kind of result is an error."""
    return _only(Explanation, path)


def _only(kind: type[R], path: str | Path) -> R:
    found = load(path)
    if not isinstance(found, kind):
        raise CheckpointError(
            f"{path} holds a result of another kind: expected {kind.__name__}, got {type(found).__name__}"
        )
    return found
