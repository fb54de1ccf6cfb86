"""What sharpening and smoothing do to accuracy: with little data, over seeds, on corrupted images, with depth."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean
from typing import Any

from unsmooth.figures.text import listed
from unsmooth.metrics.differences import (
    LEVEL,
    Difference,
    Spread,
    compare_seeds,
    holm,
    p_text,
    paired_difference,
    spread,
)
from unsmooth.paper.evidence import TEN, Evidence
from unsmooth.paper.poster_table2 import draws_against_plain
from unsmooth.paper.published import published
from unsmooth.paper.questions import Answer, Status, question
from unsmooth.paper.records import VARIANTS, percent
from unsmooth.prose import counted
from unsmooth.training.engine.record import TrainingRecord


@question(
    "Does sharpening help with little data?", "poster, Table 2; summary of the paper",
    "poster-table2", "other data sets and recipes, each with nine seeds",
)  # fmt: skip
def little_data(e: Evidence) -> Answer | None:
    """The poster's Table 2."""
    comparisons = {c.name: c for c in e.against_plain(("smoothing", "sharpening"))}
    found = comparisons.get("sharpening")
    if found is None:
        return None
    table = published("poster-table2")
    theirs = table["sharpening"][2][0] - table["plain"][2][0]
    d = found.difference
    outside = theirs > d.high or theirs < d.low
    status: Status = "settled" if found.differs else "leaning" if outside else "open"
    where = f"lies {'outside' if outside else 'inside'} that interval" if d.pairs > 1 else "has nothing to stand beside"
    return Answer(
        status,
        counted(d.pairs, "pair"),
        f"On 10 % of CIFAR-100 {found.claim(about_spread=False)}; sharpening is ahead in {d.ahead} of "
        f"{counted(d.pairs, 'seed')}. The poster's gain of {theirs:+.2f} points {where}.{_other_subsets(e)}"
        + "".join(_elsewhere(each, "sharpening") + _other_subsets(each) for each in e.others),
    )


def _elsewhere(e: Evidence, variant: str) -> str:
    """What another recipe says of a variant's accuracy."""
    found = (c for c in e.against_plain(VARIANTS[1:]) if c.name == variant)
    return "".join(f" In {e.name} {c.claim(about_spread=False)}." for c in found)


def _other_subsets(e: Evidence) -> str:
    """The same difference on other draws of the 10 %, and how much it spreads over draws."""
    said = []
    for subset in sorted({r.subset for r in e.runs(TEN, None)} - {0}):
        for c in e.against_plain(("sharpening",), TEN, subset):
            if c.difference.pairs:
                said.append(f"{c.difference.text()} (n = {c.difference.pairs})")
    if not said:
        return ""
    found = e.accuracy(TEN, None)
    over = draws_against_plain(found["plain"], found["sharpening"])
    assert over is not None
    return f" Other draws of the images: {', '.join(said)} points; over {over.pairs} draws {over.text()}."


@question(
    "Does sharpening make training less a matter of luck?", "ours",
    "variants", "a second data set: the first runs were not made for this question",
)  # fmt: skip
def spread_over_seeds(e: Evidence) -> Answer | None:
    """Suggested by three seeds, tested on the others."""
    found = e.accuracy()
    plain, sharp = found.get("plain", {}), found.get("sharpening", {})
    if min(len(plain), len(sharp)) < 4:
        return None
    late = [[v for (_, seed), v in group.items() if seed > 2] for group in (plain, sharp)]
    all_seeds, new = spread([*plain.values()], [*sharp.values()]), spread(*late)
    said = (
        f"Over {len(plain)} and {len(sharp)} seeds, the standard deviation of plain's accuracy is "
        f"{all_seeds.ratio:.1f} times that of sharpening (95 % {all_seeds.low:.1f} to {all_seeds.high:.1f}; "
        f"Brown–Forsythe p {p_text(all_seeds.brown_forsythe, '= ')}, permutation p "
        f"{p_text(all_seeds.permutation, '= ')}). "
    )
    if len(late[0]) > 3:
        said += (
            f"Seeds 0 to 2 had suggested this; the others alone give {new.ratio:.1f} times (p "
            f"{p_text(new.brown_forsythe, '= ')} and p {p_text(new.permutation, '= ')}). "
        )
    said += (
        "So few seeds find no ratio with 80 % power."
        if math.isnan(all_seeds.detectable)
        else "With so many seeds Brown and Forsythe's test finds a ratio of "
        f"{all_seeds.detectable:.1f} with 80 % power, a smaller one less often."
    )
    both = max(all_seeds.brown_forsythe, all_seeds.permutation) < LEVEL
    contradicted = False
    for each in e.others:
        if (s := _spread_elsewhere(each)) is not None:
            contradicted |= s.high < all_seeds.low
            said += (
                f" In {each.name}, it is {s.ratio:.1f} times that of sharpening "
                f"(95 % {s.low:.1f} to {s.high:.1f}; p {p_text(s.brown_forsythe, '= ')} and p "
                f"{p_text(s.permutation, '= ')})."
            )
    said += " The intervals do not meet, so this is not what sharpening does in every recipe." if contradicted else ""
    n = f"{len(plain)} + {len(sharp)} runs"
    return Answer("leaning" if both and not contradicted else "open", n, said)


def _spread_elsewhere(e: Evidence) -> Spread | None:
    """The same in another recipe, where enough seeds could show it."""
    found = e.accuracy()
    s = spread([*found.get("plain", {}).values()], [*found.get("sharpening", {}).values()])
    return s if s.smallest < LEVEL else None


@question(
    "Does smoothing cost accuracy, and why?", "poster, Table 2",
    "poster-table2; unsmooth reproduce training", "more seeds",
)  # fmt: skip
def smoothing_costs(e: Evidence) -> Answer | None:
    """The poster's Table 2, and why."""
    comparisons = {share: e.against_plain(("smoothing",), share) for share in (1.0, 0.5, TEN)}
    shown = [f"{percent(share)}: {c.difference.text()}" + ("" if c.difference.pairs > 1 else ", one seed")
             for share, found in comparisons.items() for c in found if c.difference.pairs]  # fmt: skip
    if not shown:
        return None
    zero = []
    for share in (1.0, 0.5, TEN):
        ends = [r.end["spectrum"] for r in e.runs(share) if r.variant == "smoothing" and "spectrum" in r.end]
        lost = [1 - fmean(s["in_minus_one_zero"]) - fmean(s["positive"]) for s in ends]
        zero += [f"{100 * fmean(lost):.0f} % ({percent(share)} of the data)"] if lost else []
    at_ten = comparisons[TEN]
    claimed = bool(at_ten) and at_ten[0].differs
    costs = claimed and at_ten[0].difference.mean < 0
    first = "Yes, on 10 % of CIFAR-100" if costs else "No, on 10 % of CIFAR-100" if claimed else "Not clearly"
    said = f"{first}. Accuracy of smoothing minus that of plain, in points: {'; '.join(shown)}."
    if zero:
        said += (
            f" Eigenvalues of the smoothing models that end at zero, where attention adds nothing: {', '.join(zero)}."
        )
    if zero and costs:
        said += " This may be the reason; it was not tested."
    pairs = counted(at_ten[0].difference.pairs if at_ten else 0, "pair")
    said += "".join(_elsewhere(each, "smoothing") for each in e.others)
    return Answer("settled" if claimed else "open", pairs, said)


@question(
    "If sharpening helps, is it optimisation or generalisation?", "summary, question 5",
    "findings", "runs stopped at equal training loss; this was looked at after the runs were made",
)  # fmt: skip
def mechanism(e: Evidence) -> Answer | None:
    """Losses and calibration at the end of training."""
    differences, said = _losses(e)
    if not differences:
        return None
    lower = [what for what, (d, p) in differences.items() if p < LEVEL and d.mean < 0]
    gains = any(c.differs and c.difference.mean > 0 for c in e.against_plain(VARIANTS[1:]) if c.name == "sharpening")
    although = "" if gains else ", although accuracy is not higher"
    if "training loss" in lower:
        said += f" So {listed(lower)} can be claimed to be lower{although}: sharpening fits the training images better."
    pairs = [d.pairs for d, _ in differences.values()]
    elsewhere = [f" In {each.name}: {more}" for each in e.others if (more := _losses(each)[1])]
    return Answer(
        "leaning" if lower else "open",
        f"{pairs[-1]} pairs",
        f"Sharpening minus plain on 10 %: {said}" + "".join(elsewhere),
    )


def _losses(e: Evidence) -> tuple[dict[str, tuple[Difference, float]], str]:
    """Sharpening's against plain's, each with a p that is corrected for all of them, and the same in words."""
    quantities: dict[str, Callable[[TrainingRecord], Any]] = {
        "training loss": lambda r: r.end.get("train_loss"),
        "test loss": lambda r: r.final.get("loss"),
        "calibration error": lambda r: r.final.get("calibration_error"),
    }
    found: dict[str, Difference] = {}
    for what, value in quantities.items():
        (c,) = compare_seeds(e.by_seed("plain", value), {"sharpening": e.by_seed("sharpening", value)})
        if c.difference.pairs:
            found[what] = c.difference
    if not found:
        return {}, ""
    adjusted = holm([d.p for d in found.values()])
    tested = {what: (d, p) for (what, d), p in zip(found.items(), adjusted, strict=True)}
    said = [f"{what} {d.text(3)}" + (f", p {p_text(p, '= ')}" if d.pairs > 1 else "")
            for what, (d, p) in tested.items()]  # fmt: skip
    return tested, f"{'; '.join(said)} (Holm for {len(tested)})."


@question(
    "Does sharpening make models robust to corrupted images?", "poster, Table 3",
    "poster-table3", "the corrupted images for seeds 1 to 8 (a few minutes each)",
)  # fmt: skip
def corrupted(e: Evidence) -> Answer | None:
    """The poster's Table 3."""
    said, beyond = [], list[Difference]()
    for share in (1.0, TEN):
        plain, sharp = (e.corruptions.get((variant, share), {}) for variant in ("plain", "sharpening"))
        seeds = sorted(plain.keys() & sharp.keys())
        if not seeds:
            continue
        clean, *corrupted = (
            paired_difference([plain[seed][i] for seed in seeds], [sharp[seed][i] for seed in seeds]) for i in range(6)
        )
        said.append(f"{percent(share)}: {clean.text()} on clean images, {', '.join(d.text() for d in corrupted)} at "
                    "intensities 1 to 5")  # fmt: skip
        extra = [fmean(sharp[s][1:]) - fmean(plain[s][1:]) - (sharp[s][0] - plain[s][0]) for s in seeds]
        beyond.append(paired_difference([0.0] * len(seeds), extra))
    if not said:
        return None
    table, few = published("poster-table3"), min(d.pairs for d in beyond)
    theirs = [s[0] - p[0] for s, p in zip(table["sharpening"], table["plain"], strict=True)]
    alone = "; one seed has no interval" if few == 1 else ""
    return Answer(
        "leaning" if any(p < 0.05 for p in holm([d.p for d in beyond])) else "open",
        counted(few, "seed"),
        f"Sharpening minus plain in points, {'; '.join(said)}; the poster: {theirs[0]:+.2f} clean, then "
        f"{', '.join(f'{g:+.2f}' for g in theirs[1:])}. Beyond the gap on clean images it is, over all intensities, "
        f"{' and '.join(d.text() for d in beyond)}{alone}.",
    )
