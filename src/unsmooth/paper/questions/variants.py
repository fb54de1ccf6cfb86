"""What the other variants do: forms of H, starts of ψ, layers, published fixes, bounds."""

from __future__ import annotations

from unsmooth.metrics.differences import Comparison, compare_seeds
from unsmooth.paper.evidence import Evidence
from unsmooth.paper.questions import Answer, question

SEEDS = "nine seeds for the variants that are not told apart"


@question(
    "Which form of H: symmetric (poster), V Λ V⁻¹ (section 4) or split (footnote 2)?", "summary, question 9",
    "variants", SEEDS,
)  # fmt: skip
def forms(e: Evidence) -> Answer | None:
    """What V's freedom costs and brings."""
    names = [f"{sign}-{form}" for sign in ("sharpening", "smoothing") for form in ("eigen", "split")]
    return _compared(e, e.against_plain(["sharpening", "smoothing", *names]), ratios=True)


@question(
    "How should ψ start? (the paper: a standard deviation of 1 is unstable, 0.1 is not)", "paper, appendix A",
    "variants", SEEDS,
)  # fmt: skip
def initialisation(e: Evidence) -> Answer | None:
    """Runs with other standard deviations of ψ at the start."""
    return _compared(e, compare_seeds(e.accuracy().get("plain", {}), e.starts))


@question("In how many layers, and in which, should one sharpen?", "summary, question 2", "variants", SEEDS)
def layers(e: Evidence) -> Answer | None:
    """Sharpening in some layers, and both modes in one model."""
    return _compared(e, e.against_plain(sorted({r.variant for r in e.runs() if "@" in r.variant})), ratios=True)


@question("Do the fixes of other papers change what their papers say they change?", "ours", "variants", SEEDS)
def fixes(e: Evidence) -> Answer | None:
    """Accuracy and HFC/LFC with each published fix."""
    from unsmooth.control.fixes import FIXES

    return _compared(e, e.against_plain(FIXES), ratios=True)


@question("Does a bound on λ (−1/s or −2/s) keep the guarantee, and what does it cost?", "ours", "variants", SEEDS)
def bounded(e: Evidence) -> Answer | None:
    """Sharpening with eigenvalues that cannot overshoot."""
    return _compared(e, e.against_plain(sorted({r.variant for r in e.runs() if "bound" in r.variant})), ratios=True)


def _compared(e: Evidence, comparisons: list[Comparison], ratios: bool = False) -> Answer | None:
    """Variants against plain as one family; leaning where at least one can be told from it."""
    if not comparisons:
        return None
    few, most = (choose(c.difference.pairs for c in comparisons) for choose in (min, max))
    claimed = [c for c in comparisons if c.differs]
    said = []
    for c in sorted(comparisons, key=lambda c: -c.difference.mean):
        ratio = e.ratio(c.name) if ratios else ""
        said.append(f"{c.name} {c.difference.text()}" + (f", HFC/LFC {ratio}" if ratio else ""))
    plain = f"; plain's HFC/LFC is {e.ratio('plain')}" if ratios else ""
    return (
        "leaning" if claimed else "open",
        f"{few} pairs" if few == most else f"{few} to {most} pairs",
        f"Minus plain in points: {'; '.join(said)}{plain}. {_claimed(comparisons, claimed)}",
    )


def _claimed(comparisons: list[Comparison], claimed: list[Comparison]) -> str:
    below = [c.name for c in claimed if c.difference.mean < 0]
    above = [c.name for c in claimed if c.difference.mean > 0]
    said = [f"{side} plain after Holm's correction: {', '.join(names)}" for side, names in
            (("Below", below), ("Above", above)) if names]  # fmt: skip
    rest = len(comparisons) - len(claimed)
    if not said:
        return "None can be told from plain."
    return "; ".join(said) + (f"; the other {rest} cannot be told from it." if rest else ".")
