"""What training and control do to H's eigenvalues and to features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from unsmooth.figures.text import listed
from unsmooth.metrics.differences import Comparison, compare_seeds, paired_difference
from unsmooth.paper.columns import ColumnModels, kept_groups
from unsmooth.paper.evidence import TEN, Evidence, last_ratio
from unsmooth.paper.questions import Answer, question
from unsmooth.paper.records import VARIANTS, percent, saved_result
from unsmooth.prose import counted
from unsmooth.training.engine.record import TrainingRecord


@question(
    "Does the parametrisation control what features do?", "paper, section 4; summary, question 1",
    "training", "more seeds",
)  # fmt: skip
def control(e: Evidence) -> Answer | None:
    """HFC/LFC of the last block."""
    found = _ratios(e)
    if found is None:
        return None
    right = found["sharpening"].differs and found["smoothing"].differs
    right &= found["sharpening"].difference.mean > 0 > found["smoothing"].difference.mean
    return Answer(
        "settled" if right else "open",
        f"{min(c.difference.pairs for c in found.values())} pairs",
        f"{'Yes' if right else 'Not clearly'}, on 10 % of CIFAR-100: HFC/LFC of the last block minus plain's: "
        f"{_gaps(e, found)}."
        + "".join(f" In {each.name}: {_gaps(each, theirs)}." for each in e.others if (theirs := _ratios(each)))
        + _elsewhere(e),
    )  # fmt: skip


def _ratios(e: Evidence) -> dict[str, Comparison] | None:
    """HFC/LFC of the last block against plain's, where both signs have pairs of seeds."""
    seeds = {v: e.by_seed(v, last_ratio) for v in VARIANTS}
    found = {c.name: c for c in compare_seeds(seeds.pop("plain"), seeds) if c.difference.pairs > 1}
    return found if len(found) == 2 else None


def _gaps(e: Evidence, found: Mapping[str, Comparison]) -> str:
    said = "; ".join(f"{name} {c.difference.text()}" for name, c in found.items())
    return f"{said}; plain's is {e.ratio('plain')}"


def _elsewhere(e: Evidence) -> str:
    """Recipes on other data in which smoothing leaves the features less smooth than plain training does."""
    against = _smoothing_above_plain(kept_groups(e.context, []))
    said = "This does not hold on all data: smoothing ends with a higher HFC/LFC than plain in"
    return f" {said} {listed(against)} (see the questions below)." if against else ""


@question(
    "Does plain training drift to negative eigenvalues, and does it depend on the amount of data?",
    "poster (“they learn not to”); summary, open question 1",
    "training", "seeds 1 and 2 on 50 % and on all data",
)  # fmt: skip
def drift(e: Evidence) -> Answer | None:
    """Whether plain training avoids oversmoothing by itself."""
    said, ends, pairs, settled = [], list[tuple[float, int]](), 0, False
    for share in (TEN, 0.5, 1.0):
        runs = [r for r in e.runs(share) if r.variant == "plain" and "spectrum" in r.end]
        if not runs:
            continue
        common = sorted(set.intersection(*({row["epoch"] for row in r.rows if "spectrum" in row} for r in runs)))
        first, last = ([_negative(r, epoch) for r in runs] for epoch in (common[0], common[-1]))
        found = paired_difference(first, last)
        said.append(
            f"{percent(share)} of the data: {fmean(first):.3f} after epoch {common[0]}, {fmean(last):.3f} after "
            f"{common[-1]}" + (f", a change of {found.text(3)}, up in {found.ahead} of {found.pairs} seeds"
                               if found.pairs > 1 else " (one seed)")
        )  # fmt: skip
        ends.append((fmean(last), found.pairs))
        if share == TEN:
            pairs, settled = found.pairs, found.low > 0
    if not said:
        return None
    claim = " The drift itself is settled on 10 %" if settled else ""
    if settled and len(ends) > 1 and ends == sorted(ends, key=lambda end: end[0]):
        few = counted(min(seeds for _, seeds in ends), "seed")
        claim += f"; that it grows with the data rests on as few as {few} of a share"
    return Answer(
        "leaning" if settled else "open",
        f"{pairs} seeds",
        f"Share of H's eigenvalues in [−1, 0), mean over layers. {'; '.join(said)}.{claim + '.' if claim else ''}",
    )


def _negative(record: TrainingRecord, epoch: int) -> float:
    row = next(row for row in record.rows if row["epoch"] == epoch)
    return fmean(row["spectrum"]["in_minus_one_zero"])


@question(
    "Which type of eigenvalue dominates in trained models?", "poster, Table 1",
    "poster-table1 --data CIFAR100-TEST --samples 16", "the poster's checkpoints, or ours with more seeds", "results",
)  # fmt: skip
def dominating(e: Evidence) -> Answer | None:
    """The poster's Table 1."""
    saved = saved_result("poster-table1")
    rows = {row[0]: row for row in saved["tables"][0]["rows"]} if saved else {}
    plain, sharp, smooth = (rows.get(f"cifar100-{v}") for v in ("plain", "sharpening", "smoothing"))
    if plain is None or sharp is None or smooth is None:
        return None
    ten = rows.get("cifar100-10pct-plain")
    return Answer(
        "leaning",
        "1 model each",
        f"Type (2) dominates in {plain[3]:.1f} % of the plain model's heads (poster: {plain[-1]:g} %), in "
        f"{sharp[3]:.1f} % of the sharpening one's (100 %; the rest are ties at λ = 0) and in {smooth[3]:.1f} % of the "
        "smoothing one's (0 %)." + ("" if ten is None else f" Trained on 10 %, plain has {ten[3]:.1f} %."),
    )


@question(
    "Are eigenvalues negative in vision models and symmetric in language models?",
    "paper, Figure 5; summary, question 7",
    "fig5", "the published checkpoints, and more models of each kind", "results",
)  # fmt: skip
def real_spectra(e: Evidence) -> Answer | None:
    """Figure 5."""
    notes = saved_result("fig5").get("notes", [])
    claim = next((note for note in notes if note.startswith("the claim fails")), None)
    if claim is None:
        return None
    return Answer("leaning", f"{claim.split(' models')[0].split()[-1]} models", f"Not in general: {claim}.")


@question(
    "Does control act alike on other images?", "paper, Figure 2 (ImageNet)",
    "fig2", "more seeds, and ImageNet itself (`unsmooth train imagenet --data PATH`)", "models",
)  # fmt: skip
def other_images(e: Evidence) -> Answer | None:
    """The ImageNet column of Figure 2."""
    claim = "that only the effective rank is somewhat affected in later layers"
    return _in_column(e, "ImageNet", "test accuracy in %", lambda record: 100 * record.final["accuracy"], claim)


@question(
    "Does control act alike in language models?", "paper, Figure 2 (The Pile); summary, question 7",
    "fig2", "more seeds and longer runs (`unsmooth train crammed-bert --data TEXTS --budget 15m`)", "models",
)  # fmt: skip
def language(e: Evidence) -> Answer | None:
    """The text column of Figure 2."""
    return _in_column(e, "The Pile", "held-out loss", lambda record: record.final["loss"], "a limited effect")


def _in_column(
    e: Evidence, data: str, what: str, value: Callable[[TrainingRecord], float], claim: str
) -> Answer | None:
    """What control does to the last block of a column's models, and what it costs, beside what the paper says."""
    groups = [group for group in kept_groups(e.context, []) if group.column.data == data]
    said = []
    for recipe in dict.fromkeys(group.recipe for group in groups):
        ends = [
            f"{group.variant} {_last(group):.2f}, {fmean(value(kept.record) for kept in group.models):.2f}"
            for group in groups
            if group.recipe == recipe
        ]
        said.append(f"{recipe}: " + "; ".join(ends))
    if not said:
        return None
    against = _smoothing_above_plain(groups)
    smoothing = f" Smoothing ends with a higher HFC/LFC than plain in {listed(against)}." if against else ""
    chance = ""
    if alone := [group for group in groups if len(group.models) == 1]:
        whose = "each" if len(alone) == len(groups) else listed(list(dict.fromkeys(group.variant for group in alone)))
        chance = f"; with one seed of {whose}, chance cannot be excluded"
    return Answer(
        "open",
        f"{sum(len(group.models) for group in groups)} models",
        f"HFC/LFC after the last block and {what}. {'. '.join(said)}.{smoothing} The paper reports {claim}{chance}.",
    )


def _smoothing_above_plain(groups: Sequence[ColumnModels]) -> list[str]:
    """Recipes whose smoothing model ends with a higher HFC/LFC than the plain one."""
    ends = {(group.recipe, group.variant): _last(group) for group in groups}
    recipes = dict.fromkeys(group.recipe for group in groups)
    both = [r for r in recipes if {(r, "plain"), (r, "smoothing")} <= ends.keys()]
    return [r for r in both if ends[r, "smoothing"] > ends[r, "plain"]]


def _last(group: ColumnModels) -> float:
    """HFC/LFC after the last block."""
    return fmean(curve[-1] for curve in group.curves("hfc_lfc"))


@question(
    "Must eigenvalues be bounded for training to be stable?", "paper, footnote 1",
    "variants", "larger models and learning rates",
)  # fmt: skip
def stability(e: Evidence) -> Answer | None:
    """Footnote 1: bounded eigenvalues stabilise training."""
    free = [r for each in e.recipes for r in each.all_records if r.variant in VARIANTS[1:]]
    broke = "".join(each.broken(lambda run: run.get("variant") in VARIANTS[1:]) for each in e.recipes)
    if not free and not broke:
        return None
    ended = f"±ψ² has no upper bound, and {counted(len(free), 'run')} of it ended"
    return Answer(
        "open" if broke else "leaning",
        counted(len(free), "run"),
        (f"Perhaps: {ended}, but not all.{broke}" if broke else f"No: {ended}, none broke.")
        + " Earlier, what broke was a Θ near singularity (He-normal, before its Q was taken as the start).",
    )
