"""Ours: what explains one attention step in fewer numbers than the step itself, over many models.

Candidates are columns of an explanation, from γ (weights and attention, repeated for ever) to the mean field (two
numbers a head); beside them stand two bars: always guessing the more frequent sign, and the step that the same layer
made on other inputs. All but the last use the inputs whose steps they explain: none of them is a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NotRequired, TypedDict

from unsmooth.analysis import Explainer, Explanation, load_explanation
from unsmooth.analysis.explaining.tables import CANDIDATES, FORECAST, candidates, with_forecast
from unsmooth.errors import OptionError
from unsmooth.paper.columns import kept_groups
from unsmooth.paper.depth import all_named, check_different, device_of, shipped_models, spread
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.records import earlier_result, saved_result
from unsmooth.paper.steps import Steps, steps_of
from unsmooth.paper.steps import tables as step_tables
from unsmooth.prose import counted
from unsmooth.sources import load_model, open_data
from unsmooth.sources.provenance import provenance

INPUTS = 8
WITHOUT = "no-outliers"
SHIPPED = ("small-text",)  # recipes whose models are in the zoo itself
OUTLIERS_MATTER = 0.1  # of the steps, by size: what leaving outliers out has to change to be shown


class Explained(TypedDict):
    """One candidate on one model: rank correlation with its interval, right signs beside guessing."""

    model: str
    tokens: str
    layers: int
    inputs: int
    candidate: str
    spearman: float
    low: float
    high: float
    right: float
    guessing: float
    clear: bool  # right more often than guessing: the interval of the difference is above 0
    up: NotRequired[float]  # share of the steps of which it says that HFC/LFC rises
    rises: NotRequired[float]  # share of the steps in which it does


def run(context: Context) -> Result:
    """From the models that were named, from files that `explain` wrote, or from what was saved."""
    made = provenance().to_json()
    if context.models or context.recompute:
        found, steps = _computed(context)
        kind = "the models that you named" if context.models else "the models that ship with unsmooth"
    else:
        saved = saved_result("explains").get("about", {})
        if not saved.get("explained"):
            raise OptionError("no result is saved: name models with --model, or take the shipped ones with --recompute")
        found, steps, made = [*saved["explained"]], [*saved["steps"]], saved["made"]
        kept = dict(_kept(context))
        for name, explanation in kept.items():
            found += rows_of(name, explanation)
            steps += steps_of(name, explanation)
        kind = "public models and those that ship with unsmooth"
        kind += f", and on {counted(len(kept), 'larger one')} whose results are kept" if kept else ""
    return Result(
        label=f"What explains the step of one attention layer, on {kind}",
        tables=[correlations(found), signs(found), *step_tables(steps)],
        notes=[
            *in_words(found),
            "rank correlations are over layers × inputs, with 95 % intervals that draw both with replacement; signs "
            "are those of the change of log HFC/LFC over the attention sub-layer",
            "other inputs: the mean step of the same layer on the other half of the inputs, the one forecast; all "
            "other columns use the inputs that they explain",
        ],
        about={"made": made, "explained": found, "steps": steps},
    )


def _computed(context: Context) -> tuple[list[Explained], list[Steps]]:
    """Of every model that was named, or that ships; what this item wrote earlier is taken over, with all its models."""
    names = all_named(context.models or [*shipped_models(), *shipped_models(text=True)])
    data = spread(context.data or ("bundled",), len(names))
    earlier = {name: earlier_result(reference, "explains") for name, reference in names}
    check_different(
        model
        for name, result in earlier.items()
        for model in {row["model"] for row in result.get("steps", [])} or {name}
    )
    found: list[Explained] = []
    steps: list[Steps] = []
    for (name, reference), path in zip(names, data, strict=True):
        if earlier[name]:
            found += earlier[name]["explained"]
            steps += earlier[name]["steps"]
            continue
        explanation = _explained(name, reference, path, context)
        found += rows_of(name, explanation)
        steps += steps_of(name, explanation)
    return found, steps


def _kept(context: Context) -> Iterator[tuple[str, Explanation]]:
    """Explanations in zoo/results/models (or --runs) of models that are too large to ship, seed 0."""
    for group in kept_groups(context, []):
        path = group.models[0].folder / "explanation.json"
        if group.recipe not in SHIPPED and path.is_file():
            yield f"{group.recipe}, {group.variant}", load_explanation(path)


def _explained(name: str, reference: str, data: str, context: Context) -> Explanation:
    if reference.endswith(".json"):
        return load_explanation(reference)
    loaded = load_model(reference, device=device_of(context))
    batches = open_data(data, loaded, batch_size=context.batch_size, samples=context.samples or INPUTS)
    with Explainer(loaded, ("all", WITHOUT), spectra=0) as explainer:
        for batch in context.track(batches, name, batches.samples):
            explainer.update(batch)
    return explainer.result()


def rows_of(name: str, explanation: Explanation) -> list[Explained]:
    """Every candidate under every policy; without outliers only where that changes the steps."""
    first = explanation.policies[0]
    steps = {policy: explanation.frame(policy)["measured_ratio"].to_numpy() for policy in explanation.policies}
    rows = []
    for policy in explanation.policies:
        moved = abs(steps[policy] - steps[first]).sum()
        if policy != first and moved < OUTLIERS_MATTER * abs(steps[first]).sum():
            continue
        frame = with_forecast(explanation.frame(policy))
        frame = frame[frame["measured_ratio"] != 0]  # an attention that adds nothing has no sign
        for candidate, got in candidates(explanation, policy).items():
            rows.append(
                Explained(
                    model=name, tokens=policy, layers=len(explanation.about.settings.layers),
                    inputs=explanation.inputs, candidate=candidate, spearman=got.spearman, low=got.spearman_low,
                    high=got.spearman_high, right=got.accuracy, guessing=got.majority, clear=got.lead_low > 0,
                    up=float((frame[candidate] > 0).mean()), rises=float((frame["measured_ratio"] > 0).mean()),
                )
            )  # fmt: skip
    return rows


def _by_model(found: list[Explained]) -> dict[tuple[str, str], dict[str, Explained]]:
    groups: dict[tuple[str, str], dict[str, Explained]] = {}
    for row in found:
        groups.setdefault((row["model"], row["tokens"]), {})[row["candidate"]] = row
    return groups


def _label(model: str, tokens: str) -> str:
    return model if tokens == "all" else f"{model}, {'without outliers' if tokens == WITHOUT else tokens}"


def correlations(found: list[Explained]) -> Table:
    """Rank correlations with the measured step."""
    rows: list[list[Value]] = []
    for (model, tokens), group in _by_model(found).items():
        cells = (_correlation(group.get(candidate)) for candidate in CANDIDATES)
        rows.append([_label(model, tokens), *cells])
    return Table("Rank correlation with the measured step", ["model", *CANDIDATES.values()], rows)


def _correlation(row: Explained | None) -> str | None:
    if row is None or math.isnan(row["spearman"]):
        return None
    return f"{row['spearman']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})"


def signs(found: list[Explained]) -> Table:
    """How often the sign is right; a star where clearly more often than guessing."""
    rows: list[list[Value]] = []
    for (model, tokens), group in _by_model(found).items():
        cells = (f"{group[c]['right']:.0%}{'*' if group[c]['clear'] else ''}" if c in group else None
                 for c in CANDIDATES)  # fmt: skip
        rows.append([_label(model, tokens), f"{next(iter(group.values()))['guessing']:.0%}", *cells])
    return Table(
        "Right sign (*: clearly more often than always guessing the more frequent sign)",
        ["model", "guessing", *CANDIDATES.values()],
        rows,
    )


def in_words(found: list[Explained]) -> list[str]:
    """How each candidate does, counted over models, and whether any beats the forecast."""
    groups = [group for group in _by_model(found).values() if FORECAST in group]
    said = []
    for candidate, title in CANDIDATES.items():
        pairs = [(group[candidate], group[FORECAST]) for group in groups if candidate in group]
        pairs = [pair for pair in pairs if not math.isnan(pair[0]["spearman"])]
        if not pairs:
            continue
        rows = [row for row, _ in pairs]
        above = sum(row["low"] > 0 for row in rows)
        right = sum(row["clear"] for row in rows)
        values = [row["spearman"] for row in rows]
        text = (
            f"{title}: rank correlation {min(values):+.2f} to {max(values):+.2f}, its interval above 0 in {above} of "
            f"{len(rows)}; the sign clearly more often right than by guessing in {right}"
        )
        if candidate != FORECAST:
            ahead = sum(row["spearman"] > forecast["spearman"] for row, forecast in pairs)
            text += f"; a higher rank correlation than the step on other inputs in {ahead}"
        said.append(text)
    return said


ITEM = Item(
    "explains",
    "ours",
    "What explains the step of one attention layer: γ, eigen-directions, the mean path, the mean field",
    needs="nothing: saved results of public models, of those that ship with unsmooth and of larger ones, seconds. "
    "--recompute "
    "explains the shipped models on bundled inputs, about ten seconds each; --model [NAME=]REFERENCE with --data for "
    "others, or a file that `unsmooth explain --tokens all,no-outliers --out` wrote, or what `reproduce explains "
    "--out` wrote, to add models to it. --samples sets the inputs (8).",
    run=run,
)
