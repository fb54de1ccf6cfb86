"""Numbers, counts and lists as they stand in a sentence, a label or a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from unsmooth.prose import counted


def number_text(value: float, digits: int = 3) -> str:
    """A number for prose.

    >>> number_text(-0.012345), number_text(1234.5), number_text(3.14159e30)
    ('−0.0123', '1230', '3.14e+30')
    """
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "undefined"
    rounded = float(f"{value:.{digits}g}")
    plain = 1e-4 <= abs(rounded) < 1e9 or not rounded
    text = f"{rounded:.10f}".rstrip("0").rstrip(".") if plain else f"{rounded:.{digits}g}"
    return text.replace("-", "−")


def measured_text(value: float, digits: int = 3) -> str:
    """A measured value beside others of its kind, zeros at its end too: where 3.98 falls to 3.004, that is 3.00.

    >>> measured_text(3.004), measured_text(0.8), measured_text(101.2), measured_text(0.0), measured_text(6e-8)
    ('3.00', '0.800', '101', '0', '6e−08')
    """
    text = number_text(value, digits)
    size = abs(float(f"{value:.{digits}g}")) if math.isfinite(value) else 0.0
    if not 1e-4 <= size < 10 ** (digits - 1):
        return text
    return f"{value:.{digits - 1 - math.floor(math.log10(size))}f}".replace("-", "−")


def signed_text(value: float, digits: int = 3) -> str:
    """A change for prose.

    >>> signed_text(0.5), signed_text(-0.5)
    ('+0.5', '−0.5')
    """
    return ("+" if value > 0 else "") + number_text(value, digits)


def percent_text(share: float) -> str:
    """A share for prose, a half rounded up as the page's script does it; the space does not break.

    >>> percent_text(0.125)
    '13\\xa0%'
    """
    return f"{math.floor(share * 100 + 0.5)}\N{NO-BREAK SPACE}%" if math.isfinite(share) else "undefined"


def listed(items: Sequence[object]) -> str:
    """Items with commas and a last `and`.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def counted_between(counts: Iterable[int], what: str) -> str:
    """Numbers that may differ, with their noun.

    >>> counted_between([4, 4], "input"), counted_between([4, 2], "input")
    ('4 inputs', '2 to 4 inputs')
    """
    few, *_, many = sorted([*counts] * 2)
    return counted(many, what) if few == many else f"{few} to {counted(many, what)}"


def tick_text(value: float) -> str:
    """A number on an axis, short at any size.

    >>> tick_text(-2.5), tick_text(1e-7), tick_text(12000.0), tick_text(200000.0)
    ('−2.5', '1e−7', '12000', '2e5')
    """
    if value and not 1e-4 <= abs(value) < 1e5:
        mantissa, _, power = f"{value:.3e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}".replace("-", "−")
    return f"{value:.{5 if abs(value) >= 1e4 else 4}g}".replace("-", "−")


def ticks_text(values: Sequence[float]) -> list[str]:
    """Numbers on one axis, with as many digits as tell them apart.

    >>> ticks_text([1.0, 1.5]), ticks_text([1.29401, 1.29402])
    (['1', '1.5'], ['1.29401', '1.29402'])
    """
    said = [tick_text(value) for value in values]
    for digits in range(5, 13):
        if len(set(said)) == len(set(values)):
            break
        said = [f"{value:.{digits}g}".replace("-", "−") for value in values]
    return said


def power_text(power: float) -> str:
    """A power of ten on a logarithmic axis.

    >>> power_text(-12), power_text(2), power_text(0.30103)
    ('10⁻¹²', '100', '2')
    """
    if abs(power) <= 3 or power % 1:
        return tick_text(float(f"{10.0**power:.3g}"))
    return "10" + str(round(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def short(name: str, width: float, size: float = 12.0) -> str:
    """A name that fits so many pixels.

    >>> short("a-very-long-name", 60)
    'a-very-…'
    """
    most = max(4, int(width / (0.6 * size)))
    return name if len(name) <= most else name[: most - 1] + "…"
