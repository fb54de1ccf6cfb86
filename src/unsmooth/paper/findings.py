"""Ours: every open question of the paper, its poster and their readers, with what the records say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from unsmooth.errors import DataError
from unsmooth.metrics.differences import Comparison, compare_seeds, holm, p_text, paired_difference, spread
from unsmooth.paper.item import Context, Item, Result, Table
from unsmooth.paper.published import published
from unsmooth.paper.records import (
    VARIANTS,
    Run,
    Summary,
    accuracies,
    json_files,
    load_records,
    percent,
    provenance,
    records_folder,
)

if TYPE_CHECKING:
    from unsmooth.figures.drawing import Drawing

Status = Literal["settled", "leaning", "open"]
Record = dict[str, Any]
TEN = 0.1


@dataclass(frozen=True)
class Finding:
    """What is known about one question, by which command, and what would settle it (nothing where it is settled)."""

    status: Status
    n: str
    answer: str
    command: str
    settle: str


NO_RUN = Finding(
    "open",
    "0 runs",
    "No run so far.",
    "unsmooth reproduce variants",
    "`unsmooth train --list study --data PATH`, two to three minutes a run on one H200",
)
NO_RESULT = Finding("open", "0", "No saved result is here.", "unsmooth reproduce list", "the command with --out")


class Evidence:
    """All records and saved results, read once."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.notes: list[str] = []
        self.records = load_records(context, self.notes, any_start=True, any_subset=True)

    def runs(self, share: float | None = TEN, subset: int | None = 0) -> list[Record]:
        """Runs that started as the paper says, on one share of the data and one draw of the images."""
        return [
            r
            for r in self.records
            if r.get("std") is None and share in (None, r["fraction"]) and subset in (None, r["subset"])
        ]

    def accuracy(self, share: float = TEN, subset: int | None = 0) -> dict[str, dict[Run, float]]:
        """Accuracy in % by variant and seed."""
        return accuracies(self.runs(share, subset))

    def by_seed(self, variant: str, value: Callable[[Record], Any]) -> dict[int, float]:
        """A value of each run on 10 % that has it."""
        runs = [r for r in self.runs() if r["variant"] == variant]
        return {r["seed"]: float(value(r)) for r in runs if value(r) is not None}

    def against_plain(self, names: Iterable[str], share: float = TEN, subset: int | None = 0) -> list[Comparison]:
        """These variants against plain, corrected as one family."""
        found = self.accuracy(share, subset)
        return compare_seeds(found.get("plain", {}), {name: found[name] for name in names if name in found})

    @cached_property
    def starts(self) -> dict[str, dict[Run, float]]:
        """Accuracy by variant and standard deviation of ψ at the start."""
        chosen = [r for r in self.records if r.get("std") is not None and r["fraction"] == TEN]
        return accuracies({**r, "variant": f"{r['variant']}, ψ's std {r['std']:g}"} for r in chosen)

    @cached_property
    def depths(self) -> dict[int, list[Record]]:
        """Runs on 10 % by the model's depth."""
        from unsmooth.training.tasks import RECIPES

        found: dict[int, list[Record]] = {12: [r for r in self.runs() if r["variant"] in VARIANTS]}
        for name in RECIPES:
            if match := re.fullmatch(r"cifar100-depth(\d+)", name):
                found[int(match[1])] = load_records(self.context, [], recipe=name)
        return {depth: found[depth] for depth in sorted(found) if found[depth]}

    @cached_property
    def corruptions(self) -> dict[tuple[str, float], Record]:
        """Accuracy on corrupted images by variant and share."""
        found = {}
        for _, content in json_files(records_folder(self.context), "*.corruptions.json", []):
            if {"variant", "fraction", "clean", "corruptions"} <= content.keys():
                found[content["variant"], content["fraction"]] = content
        return found

    def saved(self, item: str) -> dict[str, Any]:
        """A result of another item that was kept in zoo/results; empty where it is not there."""
        from unsmooth.sources.trained import zoo_folder

        path = zoo_folder() / "results" / f"{item}.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return found


Answer = Callable[[Evidence], Finding | None]
QUESTIONS: dict[Answer, tuple[str, str]] = {}  # who says what from the evidence: the question, and who asked it


def question(asked: str, by: str) -> Callable[[Answer], Answer]:
    """Put a question on the list; the function answers None where there is no evidence yet."""

    def register(answer: Answer) -> Answer:
        QUESTIONS[answer] = (asked, by)
        return answer

    return register


@question("Does sharpening help with little data?", "poster, Table 2; summary of the paper")
def little_data(e: Evidence) -> Finding | None:
    """The poster's Table 2."""
    comparisons = {c.name: c for c in e.against_plain(("smoothing", "sharpening"))}
    found = comparisons.get("sharpening")
    if found is None:
        return None
    table = published("poster-table2")
    theirs = table["sharpening"][2][0] - table["plain"][2][0]
    d = found.difference
    outside = theirs > d.high
    status: Status = "settled" if found.differs else "leaning" if outside else "open"
    where = "lies outside" if outside else "lies inside"
    return Finding(
        status,
        f"{d.pairs} pairs",
        f"On 10 % of CIFAR-100 {found.claim(about_spread=False)}; sharpening is ahead in {d.ahead} of {d.pairs} seeds. "
        f"The poster's gain of {theirs:+.2f} points {where} that interval." + _other_subsets(e),
        "unsmooth reproduce poster-table2",
        "other data sets and recipes, each with nine seeds",
    )


def _other_subsets(e: Evidence) -> str:
    """The same difference on other draws of the 10 %."""
    said = []
    for subset in sorted({r["subset"] for r in e.runs(TEN, None)} - {0}):
        for c in e.against_plain(("sharpening",), TEN, subset):
            if c.difference.pairs:
                said.append(f"{c.difference.text()} (n = {c.difference.pairs})")
    if not said:
        return ""
    both = e.against_plain(("sharpening",), TEN, None)[0].difference
    return f" Other draws of the images: {', '.join(said)} points; all {both.pairs} pairs together {both.text()}."


@question("Does sharpening make training less a matter of luck?", "ours")
def spread_over_seeds(e: Evidence) -> Finding | None:
    """Suggested by three seeds, tested on the others."""
    found = e.accuracy()
    plain, sharp = found.get("plain", {}), found.get("sharpening", {})
    late = [[v for (_, seed), v in group.items() if seed > 2] for group in (plain, sharp)]
    if min(len(plain), len(sharp)) < 4:
        return None
    all_seeds, new = spread([*plain.values()], [*sharp.values()]), spread(*late)
    said = (
        f"Standard deviations of the accuracy over {len(plain)} and {len(sharp)} seeds stand {all_seeds.ratio:.1f} : 1 "
    )
    said += (
        f"(95 % {all_seeds.low:.1f} to {all_seeds.high:.1f}; Brown–Forsythe p = {all_seeds.brown_forsythe:.3f}, "
        f"permutation p = {all_seeds.permutation:.3f}). "
    )
    if len(late[0]) > 3:
        said += (
            f"Seeds 0 to 2 had suggested it; the others alone give {new.ratio:.1f} : 1 (p = {new.brown_forsythe:.3f} "
            f"and {new.permutation:.3f}). "
        )
    said += f"So many seeds find a ratio of {all_seeds.detectable:.1f} in four of five studies, no smaller one."
    both = max(all_seeds.brown_forsythe, all_seeds.permutation) < 0.05
    return Finding(
        "leaning" if both else "open",
        f"{len(plain)} + {len(sharp)} runs",
        said,
        "unsmooth reproduce variants",
        "a second data set: the first runs were not made for this question",
    )


@question("Does the parametrisation control what features do?", "paper, section 4; summary, question 1")
def control(e: Evidence) -> Finding | None:
    """HFC/LFC of the last block."""
    seeds = {v: e.by_seed(v, _last_ratio) for v in VARIANTS}
    found = {c.name: c for c in compare_seeds(seeds.pop("plain"), seeds) if c.difference.pairs > 1}
    if len(found) < 2:
        return None
    right = found["sharpening"].differs and found["smoothing"].differs
    right &= found["sharpening"].difference.mean > 0 > found["smoothing"].difference.mean
    said = "; ".join(f"{name} {c.difference.text()}" for name, c in found.items())
    return Finding(
        "settled" if right else "open",
        f"{min(c.difference.pairs for c in found.values())} pairs",
        f"{'Yes' if right else 'Not clearly'}, on 10 % of CIFAR-100: HFC/LFC of the last block minus plain's: {said}; "
        f"plain's is {_ratio(e, 'plain')}.",
        "unsmooth reproduce training",
        "" if right else "more seeds",
    )


@question("Does smoothing cost accuracy, and why?", "poster, Table 2")
def smoothing_costs(e: Evidence) -> Finding | None:
    """The poster's Table 2, and why."""
    comparisons = {share: e.against_plain(("smoothing",), share) for share in (1.0, 0.5, TEN)}
    shown = [f"{percent(share)}: {c.difference.text()}" + ("" if c.difference.pairs > 1 else ", one seed")
             for share, found in comparisons.items() for c in found if c.difference.pairs]  # fmt: skip
    if not shown:
        return None
    zero = []
    for share in (1.0, 0.5, TEN):
        ends = [_end(r)["spectrum"] for r in e.runs(share) if r["variant"] == "smoothing" and "spectrum" in _end(r)]
        lost = [1 - fmean(s["in_minus_one_zero"]) - fmean(s["positive"]) for s in ends]
        zero += [f"{100 * fmean(lost):.0f} % ({percent(share)} of the data)"] if lost else []
    at_ten = comparisons[TEN]
    settled = bool(at_ten) and at_ten[0].differs
    return Finding(
        "settled" if settled else "open",
        f"{at_ten[0].difference.pairs if at_ten else 0} pairs",
        f"Yes. Smoothing minus plain in points: {'; '.join(shown)}. Held above zero, part of its eigenvalues ends at "
        f"zero, where attention adds nothing: {', '.join(zero)}. That this is the reason is a reading, not a test.",
        "unsmooth reproduce poster-table2; unsmooth reproduce training",
        "" if settled else "more seeds",
    )


@question(
    "Does plain training drift to negative eigenvalues, and does it depend on the amount of data?",
    "poster (“they learn not to”); summary, open question 1",
)
def drift(e: Evidence) -> Finding | None:
    """Whether plain training avoids oversmoothing by itself."""
    said, pairs, settled, ends = [], 0, False, {}
    for share in (TEN, 0.5, 1.0):
        runs = [r for r in e.runs(share) if r["variant"] == "plain" and "spectrum" in _end(r)]
        if not runs:
            continue
        common = sorted(set.intersection(*({row["epoch"] for row in r["epochs"] if "spectrum" in row} for r in runs)))
        first, last = ([_negative(r, epoch) for r in runs] for epoch in (common[0], common[-1]))
        found = paired_difference(first, last)
        ends[share] = fmean(last)
        said.append(
            f"{percent(share)} of the data: {fmean(first):.3f} after epoch {common[0]}, {fmean(last):.3f} after "
            f"{common[-1]}" + (f", a change of {found.text(3)}, up in {found.ahead} of {found.pairs} seeds"
                               if found.pairs > 1 else " (one seed)")
        )  # fmt: skip
        if share == TEN:
            pairs, settled = found.pairs, found.low > 0
    if not said:
        return None
    return Finding(
        "leaning" if settled else "open",
        f"{pairs} seeds",
        f"Share of H's eigenvalues in [−1, 0), mean over layers. {'; '.join(said)}. "
        + (
            "The drift itself is settled on 10 %; that it grows with the data rests on one seed each."
            if settled
            else ""
        ),
        "unsmooth reproduce training",
        "seeds 1 and 2 on 50 % and on all data",
    )


@question("Which type of eigenvalue dominates in trained models?", "poster, Table 1")
def dominating(e: Evidence) -> Finding | None:
    """The poster's Table 1."""
    saved = e.saved("poster-table1")
    if not saved:
        return None
    rows = {row[0]: row for row in saved["tables"][0]["rows"]}
    plain, sharp, smooth = (rows.get(f"cifar100-{v}") for v in ("plain", "sharpening", "smoothing"))
    if plain is None or sharp is None or smooth is None:
        return None
    ten = rows.get("cifar100-10pct-plain")
    return Finding(
        "leaning",
        "1 model each",
        f"Type (2) dominates in {plain[3]:.1f} % of the plain model's heads (poster: {plain[-1]:g} %), in "
        f"{sharp[3]:.1f} % of the sharpening one's (100 %; the rest are ties at λ = 0) and in {smooth[3]:.1f} % of the "
        "smoothing one's (0 %)." + ("" if ten is None else f" Trained on 10 %, plain has {ten[3]:.1f} %."),
        "unsmooth reproduce poster-table1 --data CIFAR100-TEST --samples 16",
        "the poster's checkpoints, or ours with more seeds",
    )


@question("Does sharpening make models robust to corrupted images?", "poster, Table 3")
def corrupted(e: Evidence) -> Finding | None:
    """The poster's Table 3."""
    found = e.corruptions
    said = []
    for share in (1.0, TEN):
        plain, sharp = found.get(("plain", share)), found.get(("sharpening", share))
        if plain is None or sharp is None:
            continue
        gaps = [100 * (sharp["corruptions"]["mean"][s] - plain["corruptions"]["mean"][s]) for s in "12345"]
        clean = 100 * (sharp["clean"]["accuracy"] - plain["clean"]["accuracy"])
        said.append(f"{percent(share)}: {clean:+.2f} on clean images, {', '.join(f'{g:+.2f}' for g in gaps)} at "
                    "intensities 1 to 5")  # fmt: skip
    if not said:
        return None
    table = published("poster-table3")
    theirs = [s[0] - p[0] for s, p in zip(table["sharpening"], table["plain"], strict=True)]
    return Finding(
        "open",
        "1 seed",
        f"Sharpening minus plain in points, {'; '.join(said)}; the poster: {theirs[0]:+.2f} clean, then "
        f"{', '.join(f'{g:+.2f}' for g in theirs[1:])}. What is beyond the gap on clean images is small, and one "
        "seed has no interval.",
        "unsmooth reproduce poster-table3",
        "the corrupted images for seeds 1 to 8 (a few minutes each)",
    )


@question("Which form of H: symmetric (poster), V Λ V⁻¹ (section 4) or split (footnote 2)?", "summary, question 9")
def forms(e: Evidence) -> Finding | None:
    """What V's freedom costs and brings."""
    names = [f"{sign}-{form}" for sign in ("sharpening", "smoothing") for form in ("eigen", "split")]
    return _compared(e, e.against_plain(["sharpening", "smoothing", *names]), ratios=True)


@question("How should ψ start? (the paper: a standard deviation of 1 is unstable, 0.1 is not)", "paper, appendix A")
def initialisation(e: Evidence) -> Finding | None:
    """Runs with other standard deviations of ψ at the start."""
    return _compared(e, compare_seeds(e.accuracy().get("plain", {}), e.starts))


@question("In how many layers, and in which, should one sharpen?", "summary, question 2")
def layers(e: Evidence) -> Finding | None:
    """Sharpening in some layers, and both modes in one model."""
    names = sorted({r["variant"] for r in e.runs() if "@" in r["variant"]})
    return _compared(e, e.against_plain(names), ratios=True)


@question("Do the fixes of other papers change what their papers say they change?", "ours")
def fixes(e: Evidence) -> Finding | None:
    """Accuracy and HFC/LFC with each published fix."""
    from unsmooth.control.peers import PEERS

    return _compared(e, e.against_plain(PEERS), ratios=True)


@question("Does a bound on λ (−1/s or −2/s) keep the guarantee, and what does it cost?", "ours")
def bounded(e: Evidence) -> Finding | None:
    """Sharpening with eigenvalues that cannot overshoot."""
    names = sorted({r["variant"] for r in e.runs() if "bound" in r["variant"]})
    return _compared(e, e.against_plain(names), ratios=True)


def _compared(e: Evidence, comparisons: list[Comparison], ratios: bool = False) -> Finding | None:
    """Variants against plain as one family; leaning where at least one can be told from it."""
    if not comparisons:
        return None
    few, most = (choose(c.difference.pairs for c in comparisons) for choose in (min, max))
    claimed = [c for c in comparisons if c.differs]
    said = []
    for c in sorted(comparisons, key=lambda c: -c.difference.mean):
        ratio = _ratio(e, c.name) if ratios else ""
        said.append(f"{c.name} {c.difference.text()}" + (f", HFC/LFC {ratio}" if ratio else ""))
    plain = f"; plain's HFC/LFC is {_ratio(e, 'plain')}" if ratios else ""
    return Finding(
        "leaning" if claimed else "open",
        f"{few} pairs" if few == most else f"{few} to {most} pairs",
        f"Minus plain in points: {'; '.join(said)}{plain}. {_claimed(comparisons, claimed)}",
        "unsmooth reproduce variants",
        "nine seeds for the variants that are not told apart",
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


def _ratio(e: Evidence, name: str) -> str:
    ends = e.by_seed(name, _last_ratio).values()
    return f"{fmean(ends):.2f}" if ends else ""


@question("Does accuracy fall with depth where features smooth?", "the literature; summary, question 10")
def depth(e: Evidence) -> Finding | None:
    """The claim behind the whole literature."""
    if len(e.depths) < 2:
        return None
    said = []
    for layers_, records in e.depths.items():
        found = accuracies(records)
        shown = []
        for variant in VARIANTS:
            summary = Summary.of([*found.get(variant, {}).values()])
            ends = [
                _end(r)["smoothing"]["hfc_lfc"][-1]
                for r in records
                if r["variant"] == variant and "smoothing" in _end(r)
            ]
            if summary is not None:
                shown.append(f"{variant} {summary}" + (f", HFC/LFC {fmean(ends):.2f}" if ends else ""))
        said.append(f"{layers_} layers: {'; '.join(shown)}")
    few = min(len(records) for records in e.depths.values())
    return Finding(
        "leaning" if few >= 6 else "open",
        f"{min(len({r['seed'] for r in rs}) for rs in e.depths.values())} or more seeds",
        f"Accuracy in % on 10 % of the data, and HFC/LFC of the last block. {'. '.join(said)}.",
        "unsmooth reproduce findings",
        "more seeds and a longer training at depth",
    )


@question("If sharpening helps, is it optimisation or generalisation?", "summary, question 5")
def mechanism(e: Evidence) -> Finding | None:
    """Summary 003, question 5: is it optimisation or generalisation?"""
    said, pairs = [], 0
    quantities: dict[str, Callable[[Record], Any]] = {
        "training loss": lambda r: _end(r).get("train_loss"),
        "test loss": lambda r: r["final"].get("loss"),
        "calibration error": lambda r: r["final"].get("calibration_error"),
    }
    differences = {}
    for what, value in quantities.items():
        (c,) = compare_seeds(e.by_seed("plain", value), {"sharpening": e.by_seed("sharpening", value)})
        if c.difference.pairs:
            differences[what] = c.difference
    if not differences:
        return None
    adjusted = holm([d.p for d in differences.values()])
    for (what, d), p in zip(differences.items(), adjusted, strict=True):
        said.append(f"{what} {d.text(3)}" + (f", p {p_text(p, '= ')}" if d.pairs > 1 else ""))
        pairs = d.pairs
    lower = [what for (what, d), p in zip(differences.items(), adjusted, strict=True) if p < 0.05 and d.mean < 0]
    return Finding(
        "leaning" if lower else "open",
        f"{pairs} pairs",
        f"Sharpening minus plain on 10 %: {'; '.join(said)} (Holm for {len(differences)})."
        + (f" So {', '.join(lower)} can be claimed to be lower, although accuracy is not higher: sharpening fits "
           "the training images better." if "training loss" in lower else ""),
        "unsmooth reproduce findings",
        "runs stopped at equal training loss; this was looked at after the runs were made",
    )  # fmt: skip


@question("Does control act alike in language models?", "paper, Figure 2 (The Pile); summary, question 7")
def language(e: Evidence) -> Finding | None:
    """Nobody trained one in three variants yet."""
    return Finding(
        "open",
        "0 runs",
        "No language model of ours was trained plain, sharpening and smoothing; the paper reports a limited effect.",
        "unsmooth reproduce fig2",
        "a small masked language model in all three variants (`unsmooth train`)",
    )


@question(
    "Are eigenvalues negative in vision models and symmetric in language models?",
    "paper, Figure 5; summary, question 7",
)
def real_spectra(e: Evidence) -> Finding | None:
    """Figure 5."""
    saved = e.saved("fig5")
    claim = next((note for note in saved.get("notes", []) if note.startswith("the claim fails")), None)
    if claim is None:
        return None
    return Finding(
        "leaning",
        f"{claim.split(' models')[0].split()[-1]} models",
        f"Not in general: {claim}.",
        "unsmooth reproduce fig5",
        "the published checkpoints, and more models of each kind",
    )


@question(
    "Where does the theory part from a real block (symmetry, heads, normalisation, constants, MLP)?",
    "paper, section 5; summary, open question 2 and question 8",
)
def assumptions(e: Evidence) -> Finding | None:
    """Section 5 of the paper: normalisation, feed-forward layers, symmetric A and H; summary, open question 2."""
    saved = e.saved("relax")
    if not saved:
        return None
    rows = {(row[0], row[1]): row for row in saved["tables"][0]["rows"]}
    names = list(dict.fromkeys(row[0] for row in saved["tables"][0]["rows"]))
    said = [f"{name} {rows[name, 'sharpening'][5]}" for name in names if (name, "sharpening") in rows]
    n = rows[names[0], "sharpening"][7]
    return Finding(
        "settled",
        f"{n} layers a rung",
        "It parts at the LayerNorm. Share of layers held below zero in which HFC/LFC rises, as Corollary 3 says: "
        f"{'; '.join(said)}. For layers held above zero its verdict stays right for repeated layers.",
        "unsmooth reproduce relax",
        "",
    )


@question(
    "How fast do features smooth or sharpen, and does the limit say anything about few layers?",
    "paper, section 5; summary, open question 3 and question 10",
)
def rates(e: Evidence) -> Finding | None:
    """Summary, open question 3."""
    saved = e.saved("relax")
    if not saved:
        return None
    rows = {(row[0], row[1]): row for row in saved["tables"][0]["rows"]}
    linear = [row for (name, _), row in rows.items() if "LayerNorm" not in name and not name.startswith("trained")][:8]
    once = rows.get(("trained block, run once", "sharpening"))
    exact = all(row[3] == row[4] for row in linear)
    return Finding(
        "leaning",
        f"{linear[0][7]} layers a rung",
        ("Without a norm the predicted and the measured HFC/LFC after 128 layers are the same; " if exact else "")
        + "the rate is γ for HFC/LFC and κ for cosine similarity and effective rank (docs, theory). "
        + ("" if once is None else f"For one pass of a trained sharpening block the sign of γ is right in {once[6]} of "
           f"{once[7]} layers only: the limit is no forecast of a step."),
        "unsmooth reproduce relax",
        "a rate that holds under normalisation",
    )  # fmt: skip


@question("What is the “change” of the paper's Tables 1 to 3?", "paper, Tables 1 to 3")
def readings(e: Evidence) -> Finding | None:
    """Which reading of "change" the paper's Tables 1 to 3 have."""
    said = [f"Table {i}: {saved['notes'][0]}" for i in (1, 2, 3) if (saved := e.saved(f"table{i}"))]
    if not said:
        return None
    return Finding(
        "leaning",
        "6 models",
        ". ".join(said) + ".",
        "unsmooth reproduce table1 --data CIFAR100-TEST --samples 256",
        "the authors' code",
    )


@question(
    "When does rank collapse, and what does the residual connection do?",
    "paper, Theorem 3 and Corollary 2; summary, questions 3 and 4",
)
def rank_collapse(e: Evidence) -> Finding | None:
    """Summary 003, questions 3 and 4."""
    from unsmooth.paper.fig1 import run as fig1

    rows = {str(row[0]): row for row in fig1(Context()).tables[0].rows}
    many = next(row for name, row in rows.items() if "multiplicities" in name)
    without = next(row for name, row in rows.items() if "no residual" in name)
    return Finding(
        "settled",
        "4 layers",
        f"With one dominating pair the rank goes to 1; where both multiplicities exceed 1 it stays (effective rank "
        f"{many[7]:.2f} after {many[4]} layers). Without the residual connection HFC/LFC goes to {without[5]:.0e}, "
        "although H's eigenvalues are negative.",
        "unsmooth reproduce fig1",
        "",
    )


@question("Must eigenvalues be bounded for training to be stable?", "paper, footnote 1")
def stability(e: Evidence) -> Finding | None:
    """Footnote 1: bounded eigenvalues stabilise training."""
    broken = [note for note in e.notes if " broke: " in note]
    free = [r for r in e.records if r["variant"] in ("sharpening", "smoothing")]
    if not free:
        return None
    return Finding(
        "leaning",
        f"{len(free)} runs",
        f"No: ±ψ² has no upper bound, and {len(free)} runs of it ended"
        + (f"; broken: {'; '.join(broken)}" if broken else ", none broke")
        + ". What did break was a Θ near singularity (He-normal, before its Q was taken as the start).",
        "unsmooth reproduce variants",
        "larger models and learning rates",
    )


def _end(record: Record) -> Record:
    epochs = record.get("epochs") or [{}]
    found: Record = epochs[-1]
    return found


def _last_ratio(record: Record) -> float | None:
    """HFC/LFC of the last block at the end of training."""
    found: Record = _end(record).get("smoothing", {})
    return found["hfc_lfc"][-1] if found else None


def _negative(record: Record, epoch: int) -> float:
    row = next(row for row in record["epochs"] if row["epoch"] == epoch)
    return fmean(row["spectrum"]["in_minus_one_zero"])


def run(context: Context) -> Result:
    """Every question that the records or the saved results say something about."""
    e = Evidence(context)
    if not e.records:
        raise DataError("no record of a run of the recipe cifar100: `unsmooth train cifar100 …`, or --runs FOLDER")
    found = [(*about, ask(e) or _nothing(ask)) for ask, about in QUESTIONS.items()]
    order = ("settled", "leaning", "open")
    found.sort(key=lambda entry: order.index(entry[2].status))
    numbered = list(enumerate(found, 1))
    return Result(
        label=f"What is settled, leaning or open, from the records of {len(e.records)} runs and saved results",
        tables=[Table("Open questions", ["question", "status", "n"],
                      [[f"{n}. {asked}", f.status, f.n] for n, (asked, _, f) in numbered])],
        figures={"findings": drawing(e)},
        notes=[
            *(f"{n}. {f.answer} ({f.command})" + (f" Would settle it: {f.settle}." if f.settle else "")
              for n, (_, _, f) in numbered),
            "intervals are 95 %, Student's, paired by seed; ± is the standard deviation over seeds",
            *e.notes,
        ],
        about={
            "findings": [{"question": asked, "asked by": by, **vars(f)} for asked, by, f in found],
            "runs": provenance(e.records),
        },
    )  # fmt: skip


def _nothing(ask: Answer) -> Finding:
    return NO_RESULT if ask in (dominating, real_spectra, assumptions, rates, readings) else NO_RUN


def drawing(e: Evidence) -> Drawing:
    """Every variant's accuracy on 10 % minus plain's: a dot for each seed, the mean with its interval."""
    from unsmooth.figures.axes import Panel, ticks
    from unsmooth.figures.drawing import Drawing
    from unsmooth.figures.trained import RUN_COLOURS

    found = e.accuracy() | e.starts
    plain = found.pop("plain", {})
    comparisons = [c for c in compare_seeds(plain, found) if c.difference.pairs]
    comparisons.sort(key=lambda c: -c.difference.mean)
    gaps = {c.name: [found[c.name][s] - plain[s] for s in found[c.name] if s in plain] for c in comparisons}
    values = [v for group in gaps.values() for v in group] + [0.0]
    values += [v for c in comparisons if c.difference.pairs > 2 for v in (c.difference.low, c.difference.high)]
    low, high = min(values) - 0.4, max(values) + 0.4
    picture = Drawing(900, 90 + 20 * len(comparisons))
    panel = Panel(picture, 300, 34, 570, 20 * max(1, len(comparisons)), (low, high), (0.0, 1.0))
    picture.text(300, 20, "accuracy on 10 % of CIFAR-100 minus plain's, points", size=12, bold=True, colour="ink")
    bottom = panel.top + panel.height
    for tick in ticks(low, high, 8):
        picture.line([(panel.x(tick), panel.top), (panel.x(tick), bottom)], "soft" if tick == 0 else "line")
        said = f"{tick:+g}".replace("-", "−") if tick else "0"
        picture.text(panel.x(tick), bottom + 14, said, anchor="middle", size=10)
    for number, c in enumerate(comparisons):
        y = panel.top + 20 * number + 10
        colour = RUN_COLOURS.get(re.split("[-@,]", c.name)[0], "ink")
        picture.text(292, y + 4, f"{c.name} (n = {c.difference.pairs})", anchor="end", colour="ink",
                     bold=c.differs)  # fmt: skip
        picture.dots([(panel.x(gap), y) for gap in gaps[c.name]], colour, 5, 0.45)
        ends = (c.difference.low, c.difference.high)
        if c.difference.pairs > 2:
            picture.line([(panel.x(max(low, min(high, end))), y) for end in ends], colour, 2)
        picture.dots([(panel.x(c.difference.mean), y)], colour, 9, 1)
    said = "small dots: one seed each; line: 95 % interval of the mean, from three seeds on; "
    picture.text(30, bottom + 36, said + "bold: differs from plain after Holm's correction")
    return picture


ITEM = Item(
    "findings",
    "ours",
    "Every open question of the paper, the poster and their readers: settled, leaning or open",
    needs="the records of training runs and the saved results that ship with unsmooth, or --runs FOLDER; seconds.",
    run=run,
)
