"""Numbers and names as they may stand inside a page."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Iterable
from typing import Any


def number(value: float, digits: int = 5) -> float | None:
    """Rounded to significant digits; NaN and infinity, which JSON has no word for, become null.

    >>> number(0.123456789), number(float("inf"))
    (0.12346, None)
    """
    value = float(value)
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def numbers(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """`number` for each value."""
    return [number(value, digits) for value in values]


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, whatever the strings in it say.

    >>> script_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def csv_name(name: str) -> str:
    """A name as a cell of a table: spreadsheets run what begins with one of these as a formula.

    >>> csv_name("=cmd"), csv_name("plain")
    ("'=cmd", 'plain')
    """
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name


def packed(text: str) -> str:
    """A file to download from the page: gzip in base64, the same bytes for the same text."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "backslashreplace"), 6, mtime=0)).decode()
