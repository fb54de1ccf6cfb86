"""Every error a user can meet: what was expected, what came, what to do."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterable


class UnsmoothError(Exception):
    """Base of all errors raised on purpose; the command line prints its message and exits with 1."""


class UnknownModelError(UnsmoothError):
    """No family's row matches this model."""


class NoRowError(UnknownModelError):
    """No row knows this model's classes, which says nothing against having one found; `fact` is all but what to do."""

    def __init__(self, fact: str, remedy: str) -> None:
        super().__init__(f"{fact} {remedy}")
        self.fact = fact


class CompiledModelError(UnsmoothError):
    """A compiled module's code knows only what was there when it was made."""


class PointError(UnsmoothError):
    """A point does not exist in this model, or did not fire exactly once per forward pass."""


class FeatureError(UnsmoothError):
    """Features that no metric is defined on: NaN, infinity, one token, nothing left by the mask."""


class ForwardError(UnsmoothError, RuntimeError):
    """The model itself failed on a batch: inputs of a shape, length or dtype that it does not take."""


class WeightsError(UnsmoothError):
    """Weights or attention that a family cannot give, or that do not reproduce the module's output."""


class CheckpointError(UnsmoothError):
    """A file that is truncated, of another kind, or does not fit the model."""


class DataError(UnsmoothError):
    """No data at the path, or data of a kind that cannot be read."""


class OutputError(UnsmoothError, OSError):
    """A result that cannot be written where it should go."""


class OptionError(UnsmoothError, ValueError):
    """An unknown option value."""

    @classmethod
    def unknown(cls, what: str, got: object, valid: Iterable[object]) -> OptionError:
        """An error that lists the valid values.

        >>> print(OptionError.unknown("norm", "l1", ["fro", "spectral"]))
        unknown norm 'l1': expected one of 'fro', 'spectral'
        """
        return cls(f"unknown {what} {got!r}: expected one of {', '.join(map(repr, valid))}")


class MissingExtraError(UnsmoothError, ImportError):
    """An optional dependency is not installed."""

    @classmethod
    def needed(cls, package: str, extra: str, purpose: str) -> MissingExtraError:
        """An error that names the extra to install; while an import error is handled, with what that says."""
        why = sys.exception()
        there = isinstance(why, ImportError) and (not isinstance(why, ModuleNotFoundError) or _installed(package))
        state = f"which is installed but cannot be imported ({why})" if there else "which is not installed"
        return cls(f"{purpose} needs {package}, {state}: pip install 'unsmooth[{extra}]'")


def _installed(package: str) -> bool:
    """Whether it is there, so that what is missing is a package that it imports itself."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def first_line(error: BaseException) -> str:
    """Of what another library says, which may be pages or nothing; with the next one where it ends in a colon.

    >>> first_line(RuntimeError("no such layer\\nTraceback …")), first_line(KeyError())
    ('no such layer', 'KeyError')
    >>> first_line(ValueError("not valid:\\n  5 layers, 3 types"))
    'not valid: 5 layers, 3 types'
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[: 2 if lines[0].endswith(":") else 1])


def visible(text: str) -> str:
    r"""Text from a file as a terminal may show it: control characters and halves of a character spelled out.

    >>> visible("\x1b[2Jgone")
    '\\x1b[2Jgone'
    """
    return _CONTROL.sub(lambda found: _spelled(ord(found[0])), text)


def _spelled(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


#: But tabs and new lines, and not the halves that stand for bytes of a file's name (U+DC80 to U+DCFF).
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udc7f\udd00-\udfff]")
