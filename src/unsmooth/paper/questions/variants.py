"""What the other variants do: forms of H, starts of ψ, layers, published fixes, bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from unsmooth.control.fixes import FIXES
from unsmooth.control.variant import STANDARD_DEVIATION, Variant
from unsmooth.metrics.differences import Comparison, compare_seeds, one_family
from unsmooth.paper.evidence import Evidence, last_ratio
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import accuracies, with_start

SEEDS = "nine seeds for the variants that are not told apart"


@question(
    "Which form of H: symmetric (poster), V Λ V⁻¹ (section 4) or split (footnote 2)?", "summary, question 9",
    "variants", SEEDS,
)  # fmt: skip
def forms(e: Evidence) -> Answer | None:
    """What V's freedom costs and brings."""
    names = [f"{sign}{form}" for sign in ("sharpening", "smoothing") for form in ("", "-eigen", "-split")]
    return _against_plain(e, names, lambda run: run.get("variant") in names and run.get("std") is None)


@question(
    "How should ψ start? (the paper: a standard deviation of 1 is unstable, 0.1 is not)", "paper, appendix A",
    "variants", SEEDS,
)  # fmt: skip
def initialisation(e: Evidence) -> Answer | None:
    """Each form with other standard deviations of ψ at the start, against its own."""
    own, comparisons = e.accuracy(), list[Comparison]()
    for variant in sorted({r.variant for r in e.records if r.std is not None}):
        std = STANDARD_DEVIATION[Variant.parse(variant).form]
        starts = [r for r in e.records if r.variant == variant and with_start(r) in e.starts]
        comparisons += compare_seeds(own.get(variant, {}), accuracies(starts, with_start), f"{variant}'s {std:g}")
    return _said(
        one_family(comparisons), "the form's own start",
        "Minus the same form with its own start (0.3 for the symmetric one, 0.1 for the others), accuracy in points",
        e.broken(lambda run: run.get("std") is not None),
    )  # fmt: skip


@question("In how many layers, and in which, should one sharpen?", "summary, question 2", "variants", SEEDS)
def layers(e: Evidence) -> Answer | None:
    """Sharpening in some layers, and both modes in one model."""
    names = sorted({r.variant for r in e.runs() if "@" in r.variant})
    return _against_plain(e, names, lambda run: "@" in str(run.get("variant")))


@question("Do the fixes of other papers change what their papers say they change?", "ours", "variants", SEEDS)
def fixes(e: Evidence) -> Answer | None:
    """Accuracy and HFC/LFC with each published fix."""
    return _against_plain(e, FIXES, lambda run: run.get("variant") in FIXES, "Each fix means to keep HFC/LFC up. ")


@question("Does a bound on λ (−1/s or −2/s) keep the guarantee, and what does it cost?", "ours", "variants", SEEDS)
def bounded(e: Evidence) -> Answer | None:
    """Sharpening with eigenvalues that cannot overshoot."""
    names = sorted({r.variant for r in e.runs() if "bound" in r.variant})
    return _against_plain(e, names, lambda run: "bound" in str(run.get("variant")), _exponents(e, names))


def _exponents(e: Evidence, names: Iterable[str]) -> str:
    """How often γ has the sign of the measured step, where explanations of such models are kept."""
    right = {name: share for name in ("sharpening", *names) if (share := e.exponent_right(name)) is not None}
    if not right.keys() & set(names):
        return ""
    said = ", ".join(f"{share:.0%} with {name}" for name, share in right.items())
    return f"The sign of γ is right for {said} (one model each, layers and inputs). "


def _against_plain(
    e: Evidence, names: Iterable[str], broke: Callable[[dict[str, Any]], bool], first: str = ""
) -> Answer | None:
    """Accuracy and HFC/LFC of these variants beside plain, each as one family."""
    comparisons = e.against_plain(names)
    ratios = {c.name: e.by_seed(c.name, last_ratio) for c in comparisons}
    features = compare_seeds(e.by_seed("plain", last_ratio), {name: seeds for name, seeds in ratios.items() if seeds})
    about = {c.name: f", HFC/LFC {e.ratio(c.name)}" for c in features}
    more = f" HFC/LFC of the last block (plain: {e.ratio('plain')}): {_claimed(features, 'plain')}" if features else ""
    return _said(comparisons, "plain", first + "Minus plain, accuracy in points", more + e.broken(broke), about)


def _said(
    comparisons: list[Comparison], baseline: str, what: str, more: str, about: dict[str, str] | None = None
) -> Answer | None:
    """Variants against a baseline as one family; leaning where at least one can be told from it."""
    paired = [c for c in comparisons if c.difference.pairs]
    if not paired:
        said = f"No run shares a seed with {baseline} yet." if comparisons else ""
        return ("open", "0 pairs", (said + more).strip()) if said + more else None
    few, most = (choose(c.difference.pairs for c in paired) for choose in (min, max))
    shown = [
        f"{c.name} {c.difference.text()}{(about or {}).get(c.name, '')}"
        for c in sorted(paired, key=lambda c: -c.difference.mean)
    ]
    return (
        "leaning" if any(c.differs for c in paired) else "open",
        f"{few} pairs" if few == most else f"{few} to {most} pairs",
        f"{what}: {'; '.join(shown)}. Accuracy: {_claimed(paired, baseline)}{more}",
    )


def _claimed(comparisons: list[Comparison], baseline: str) -> str:
    """Which of them are above or below the baseline after the correction."""
    above, below = (
        [c.name for c in comparisons if c.differs and (c.difference.mean > 0) == up] for up in (True, False)
    )
    rest = len(comparisons) - len(above) - len(below)
    if not above + below:
        return f"none can be told from {baseline}."
    said = [
        f"{side} {baseline} with {', '.join(names)}" for side, names in (("above", above), ("below", below)) if names
    ]
    return f"{'; '.join(said)} after Holm's correction" + (
        f"; the other{f' {rest}' if rest > 1 else ''} cannot be told from it." if rest else "."
    )
