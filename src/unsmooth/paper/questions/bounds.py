"""Whether bounds on the eigenvalues keep the guarantee of Corollary 3 behind a norm."""

from __future__ import annotations

from unsmooth.control.variant import STANDARD_DEVIATION
from unsmooth.figures.text import listed
from unsmooth.metrics.differences import compare_seeds
from unsmooth.paper.evidence import TEN, Evidence, Exponent, is_bounded, points
from unsmooth.paper.item import Table, Value
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.questions.variants import MORE, against_plain
from unsmooth.paper.records import with_start
from unsmooth.training.engine.record import TrainingRecord


@question("Does a bound on λ (−1/s or −2/s) keep the guarantee, and what does it cost?", "ours", "variants", MORE)
def bounded(e: Evidence) -> Answer | None:
    """Sharpening with eigenvalues that cannot overshoot."""
    found = against_plain(
        e,
        lambda each: [with_start(r) for std in _bounded_starts(each) for r in _with_bounds(each, std)],
        lambda run: "bound" in str(run.get("variant")),
        about=_bounds,
        least=2,
    )
    if found is None:
        return None
    return found._replace(tables=(*found.tables, *(table for each in e.recipes if (table := _signs(each)))))


def _bounds(e: Evidence) -> str:
    """Bounded against free sharpening from the same start of ψ, and in how many steps γ is as guaranteed."""
    against, above = list[str](), list[str]()
    for std in _bounded_starts(e):
        groups = e.by_variant([with_start(r) for r in _with_bounds(e, std)], points)
        free = groups.pop("sharpening" + ("" if std is None else f" (ψ's std {std:g})"), {})
        against += [f"{c.name} {c.difference.text()}" for c in compare_seeds(free, groups, "sharpening")
                    if c.difference.pairs]  # fmt: skip
        if found := _exponents(e, std):
            shares = listed([f"{exponent.up:.0f} % with {name}" for name, exponent in found.items()])
            above.append(("" if std is None else f"where ψ starts at {std:g}, in ") + shares)
    said = f" Minus free sharpening of the same start, in points: {', '.join(against)}." if against else ""
    said += " A bounded variant also has |tanh ψ| where free sharpening has ψ²." if against else ""
    if not above:
        return said
    return f"{said} γ is above 0, as Corollary 3 wants it, in this share of attention's steps: {'; '.join(above)}."


def _signs(e: Evidence) -> Table | None:
    """What γ says of attention's steps in free and bounded models, and what they are."""
    rows: list[list[Value]] = [
        [name, STANDARD_DEVIATION["symmetric"] if std is None else std, x.models, *map(round, (x.up, x.rises, x.right))]
        for std in _bounded_starts(e) for name, x in _exponents(e, std).items()
    ]  # fmt: skip
    columns = ["variant", "ψ's std at the start", "models", "γ > 0, in %", "HFC/LFC rises, in %", "both agree, in %"]
    return Table(f"Steps of attention (layers by inputs) in {e.name}", columns, rows) if rows else None


def _exponents(e: Evidence, std: float | None) -> dict[str, Exponent]:
    """What γ says of the steps of free and bounded models from one start of ψ; nothing without a bounded one."""
    variants = list(dict.fromkeys(r.variant for r in _with_bounds(e, std)))
    found = {name: exponent for name in variants if (exponent := e.exponent(name, std)) is not None}
    return found if found.keys() - {"sharpening"} else {}


def _bounded_starts(e: Evidence) -> list[float | None]:
    """The starts of ψ from which bounded sharpening was trained, the form's own first; that alone if none was."""
    found = {r.std for r in e.records if is_bounded(r)}
    return [None, *sorted(std for std in found if std is not None)]


def _with_bounds(e: Evidence, std: float | None) -> list[TrainingRecord]:
    """Runs of free and of bounded sharpening from one start of ψ, free first."""
    runs = [r for r in e.records if (r.fraction, r.subset, r.std) == (TEN, 0, std)]
    chosen = [r for r in runs if r.variant == "sharpening" or is_bounded(r)]
    return sorted(chosen, key=lambda r: r.variant)
