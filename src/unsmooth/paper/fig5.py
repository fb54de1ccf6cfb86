"""Figure 5: how the eigenvalues of H are distributed in trained models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from unsmooth.analysis import load_explanation
from unsmooth.analysis.layer_weights import cast_weights, fold_weights
from unsmooth.figures.axes import swatches
from unsmooth.figures.drawing import Drawing, grid
from unsmooth.figures.eigenvalues import counts_panel
from unsmooth.metrics.tolerance import is_zero
from unsmooth.models import LayerView, view
from unsmooth.paper.depth import RANDOM, all_named, check_different, device_of, shipped_models
from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.records import earlier_result, saved_result
from unsmooth.sources import LoadedModel, load_model
from unsmooth.sources.provenance import provenance

BINS = 61  # odd: the middle one is around zero
CLAIM = (
    "the paper says: vision models skew to the negatives, language models are symmetric; it prints histograms, "
    "not numbers, and does not say whether heads are summed"
)


class Distribution(TypedDict):
    """Real parts of the eigenvalues of Σ_h H_h over all layers; shares leave out what is zero up to rounding."""

    negative: float
    by_layer: list[float]
    below_minus_one: float
    zero: float
    median: float
    count: int
    most: float
    histogram: list[int]


class Spectra(TypedDict):
    """One model's distributions, small enough to keep."""

    kind: str
    layers: int
    width: int
    reference: str
    weights: str
    bare: Distribution
    folded: Distribution


def run(context: Context) -> Result:
    """Spectra of H of all layers, from the weights alone, or from results that were saved."""
    made = provenance().to_json()
    if context.models:
        found = _named(context)
        kind = "models that you named"
    elif saved := saved_result("fig5").get("about"):
        found, made, kind = (
            saved["spectra"],
            saved["made"],
            "public models and those that ship with unsmooth, not the published ones",
        )
    elif shipped := all_named(shipped_models()):
        found = {name: _computed(name, reference, context) for name, reference in shipped}
        kind = "the models that ship with unsmooth, not the published ones"
    else:
        found = {"ViT-Ti, random weights": _random(context)}
        kind = "one untrained model, because no weights are here: not the published ones"
    return Result(
        label=f"Figure 5's form with {kind}",
        tables=[Table("Real parts of the eigenvalues of H = Σ_h H_h, all layers", _COLUMNS, _rows(found))],
        figures={"fig5": drawing(found)},
        notes=[
            CLAIM,
            *verdicts(found),
            "negative: share with Re λ < 0 of those that are not zero up to rounding, of all layers, and of the least "
            "and the most negative layer; the median is theirs too; folded: with the normalisation's weight and "
            "centring and LayerScale; a model that repeats one block counts each pass",
        ],
        about={
            "made": made,
            "models": [f"{name}={spectra['reference']}" for name, spectra in found.items()],
            "seed": context.seed,
            "spectra": found,
        },
    )


_COLUMNS = ("model", "kind", "weights", "negative %", "of a layer %", "below −1 %", "zero %", "median", "eigenvalues")
NEGATIVE, POSITIVE = 55, 45  # beyond these whole percents a distribution leans to one side


def _rows(found: dict[str, Spectra]) -> list[list[Value]]:
    rows: list[list[Value]] = []
    for name, spectra in found.items():
        for weights, d in (("bare", spectra["bare"]), ("folded", spectra["folded"])):
            ends = f"{100 * min(d['by_layer']):.0f} to {100 * max(d['by_layer']):.0f}"
            shares = [round(100 * share, 1) for share in (d["negative"], d["below_minus_one"], d["zero"])]
            rows.append([name, spectra["kind"], weights, shares[0], ends, *shares[1:], d["median"], d["count"]])
    return rows


def verdicts(found: dict[str, Spectra]) -> list[str]:
    """Whether each free model leans as the paper says of its kind, with the numbers.

    A model whose eigenvalues were held on one side says nothing about what training does.
    """
    free = {name: s for name, s in found.items() if not name.endswith(("sharpening", "smoothing"))}
    expected = {"vision": "negative", "language": "even"}
    said, wrong = [], 0
    for name, spectra in free.items():
        share = round(100 * spectra["bare"]["negative"])  # judged as it is printed
        lean = "negative" if share > NEGATIVE else "positive" if share < POSITIVE else "even"
        wrong += lean != expected[spectra["kind"]]
        said.append(f"{name} ({spectra['kind']}) {share} %, {lean}")
    if not said:
        return []
    return [f"the claim fails on {wrong} of {len(said)} models whose eigenvalues were free: {'; '.join(said)}"]


def _named(context: Context) -> dict[str, Spectra]:
    """Of every model that was named; what this item wrote earlier is taken over, with all its models."""
    names = all_named(context.models)
    earlier = {name: earlier_result(reference, "fig5").get("spectra", {}) for name, reference in names}
    check_different(model for name, spectra in earlier.items() for model in spectra or {name})
    found: dict[str, Spectra] = {}
    for name, reference in names:
        found |= earlier[name] or {name: _computed(name, reference, context)}
    return found


def _computed(name: str, reference: str, context: Context) -> Spectra:
    if reference.endswith(".json"):
        return _explained(reference)
    return spectra_of(load_model(reference, device=device_of(context)), name, context)


def _random(context: Context) -> Spectra:
    torch.manual_seed(context.seed)
    return spectra_of(load_model(RANDOM, random_init=True, device=device_of(context)), "random weights", context)


def spectra_of(loaded: LoadedModel, name: str, context: Context) -> Spectra:
    """Eigenvalues of every layer's H, bare and folded: no data is needed."""
    layers = view(loaded.model).layers
    pairs = [_eigenvalues(layer) for layer in context.track(layers, name, len(layers))]
    return _spectra(
        "vision" if loaded.modality == "images" else "language", loaded.reference, loaded.weights_hash or "", pairs
    )


def _explained(path: str) -> Spectra:
    """From a file that `unsmooth explain --out` wrote."""
    explanation = load_explanation(path)
    values: dict[int, dict[bool, Tensor]] = {}
    for row in explanation.spectra:
        values.setdefault(row["layer"], {})[row["folded"]] = torch.as_tensor(row["layer_values"])
    about = explanation.about
    pairs = [(both[False], both.get(True, both[False])) for both in values.values()]
    kind = "vision" if about.data.kind == "images" else "language"
    return _spectra(kind, about.model.reference or path, about.model.weights or "", pairs)


def _eigenvalues(layer: LayerView) -> tuple[Tensor, Tensor]:
    """Of the bare and of the folded Σ_h H_h."""
    weights = cast_weights(layer.weights(), torch.float64)
    bare, whole = (torch.linalg.eigvals((w_v @ w_proj).sum(0).mT.cpu())
                   for w_v, w_proj in ((weights.w_v, weights.w_proj), fold_weights(weights).pair))  # fmt: skip
    return bare, whole


def _spectra(kind: str, reference: str, weights: str, pairs: Sequence[tuple[Tensor, Tensor]]) -> Spectra:
    bare, folded = (distribution([pair[i] for pair in pairs]) for i in (0, 1))
    return Spectra(kind=kind, layers=len(pairs), width=len(pairs[0][0]), reference=reference, weights=weights,
                   bare=bare, folded=folded)  # fmt: skip


def distribution(layers: Sequence[Tensor]) -> Distribution:
    """Shares and a histogram of the real parts.

    >>> found = distribution([torch.tensor([-1.5 + 0j, -0.5, 0.5, 0.0])])
    >>> round(found["negative"], 3), found["below_minus_one"], found["zero"]
    (0.667, 0.25, 0.25)
    """
    zero = torch.cat([is_zero(values) for values in layers])
    real = torch.cat([values.real for values in layers]).double()
    some = real[~zero]
    most = float(np.quantile(np.abs(some.numpy()), 0.99)) if len(some) else 1.0
    counts, _ = np.histogram(np.clip(some.numpy(), -most, most), bins=BINS, range=(-most, most))
    return Distribution(
        negative=float((some < 0).double().mean()),
        by_layer=[float((v.real[~is_zero(v)] < 0).double().mean()) for v in layers],
        below_minus_one=float((real < -1).double().mean()),
        zero=float(zero.double().mean()),
        median=float(some.median()) if len(some) else math.nan,
        count=len(real),
        most=most,
        histogram=[int(count) for count in counts],
    )


def drawing(found: dict[str, Spectra]) -> Drawing:
    """One panel for each model, vision first: a histogram of the bare H, coloured by sign."""
    panels = []
    for name, spectra in sorted(found.items(), key=lambda item: item[1]["kind"] != "vision"):
        bare, folded = spectra["bare"], spectra["folded"]
        panel = counts_panel(bare["histogram"], bare["most"], title=f"{name} ({spectra['kind']})", tall=240)
        panel.text(56, 40, f"Re λ < 0: {bare['negative']:.0%}", colour="sharp")
        panel.text(56, 54, f"folded: {folded['negative']:.0%}", colour="ink")
        panels.append(panel)
    picture = grid(panels, across=min(3, len(panels)), bottom=44)
    picture.label = "Real parts of the eigenvalues of H in trained models"
    sides = (("sharp", "left of zero"), ("smooth", "right of zero"), ("zero", "around zero"))
    swatches(picture, 48, picture.height - 24, sides)
    said = "bars: bare H = Σ W_V W_proj, without exact zeros; what lies outside is in the end bars"
    picture.text(48, picture.height - 6, said, size=11 if len(panels) > 1 else 8)
    return picture


ITEM = Item(
    "fig5",
    "paper",
    "Distributions of the eigenvalues of H in trained models",
    needs="nothing: saved results of public models and of those that ship with unsmooth, a second. --model "
    "[NAME=]REFERENCE for others, or a file that `unsmooth explain --out` wrote; a second or two for each layer, no "
    "data. A file that `reproduce fig5 --out` wrote adds its models. The published ViT-B, ViT-L, "
    "DeiT-B, DeiT3-L and BERT need the hub.",
    run=run,
)
