"""Figure 5: how the eigenvalues of H are distributed in trained models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unsmooth.errors import MissingExtraError
from unsmooth.paper.depth import RANDOM, all_named, device_of, shipped_models
from unsmooth.paper.item import Context, Item, Result, Table, Value

if TYPE_CHECKING:
    from unsmooth.analysis import Explanation


def run(context: Context) -> Result:
    """Spectra of H of all layers, per model: no data is needed but one input to run the model on."""
    given = bool(context.models)
    context = replace(context, models=context.models or shipped_models())
    explained = {name: _explained(reference, context, False) for name, reference in all_named(context.models)}
    if not explained:
        explained = {"ViT-Ti, random weights": _explained(RANDOM, context, True)}
    kind = "models that you named" if given else "the models that ship with unsmooth, not the published ones"
    if not context.models:
        kind = "one untrained model, because no weights are here: not the published ones"
    return Result(
        label=f"Figure 5's form with {kind}",
        tables=[Table("Eigenvalues of H = Σ_h H_h by their real part, all layers, %", _COLUMNS, _rows(explained))],
        figures={"fig5": _figure(explained)},
        notes=[
            "the paper says: vision models skew to the negatives, language models are symmetric; it prints histograms, "
            "not numbers, and does not say whether heads are summed",
            "outside: below −1, or 0 up to rounding (training drives some eigenvalues of the squared form to 0)",
        ],
        about={"models": list(context.models), "seed": context.seed},
    )


_COLUMNS = ("model", "weights", "[−1, 0)", "(0, ∞)", "outside", "median", "eigenvalues")


def _rows(explained: dict[str, Explanation]) -> list[list[Value]]:
    import torch

    from unsmooth.analysis.facts import eigenvalue_shares

    rows: list[list[Value]] = []
    for name, explanation in explained.items():
        frame = explanation.spectrum_frame()
        for folded, part in frame[frame["head"] == -1].groupby("folded"):
            values = torch.complex(*(torch.tensor(part[name].to_numpy()) for name in ("real", "imag")))
            shares = eigenvalue_shares(values)
            cells = [100 * shares[name] for name in ("re_negative", "re_positive", "re_outside")]
            rows.append([name, "folded" if folded else "bare", *cells, float(part["real"].median()), len(values)])
    return rows


def _explained(reference: str, context: Context, random_init: bool) -> Explanation:
    import torch

    from unsmooth.analysis import explain
    from unsmooth.sources import load_model, open_data

    torch.manual_seed(context.seed)
    loaded = load_model(reference, random_init=random_init, device=device_of(context))
    # The spectra of H come from the weights alone; any input of the right kind serves.
    batches = open_data(context.data[0] if context.data else "random", loaded, batch_size=1, limit=1, max_length=8)
    return explain(loaded.model, batches, spectra=0, max_products=1)


def _figure(explained: dict[str, Explanation]) -> Any:
    from unsmooth.figures.plotly_explain import eigenvalue_distribution

    try:
        return eigenvalue_distribution(explained)
    except MissingExtraError:
        return None


ITEM = Item(
    "fig5",
    "paper",
    "Distributions of the eigenvalues of H in trained models",
    needs="--model [NAME=]REFERENCE for each model; the published ViT-B, ViT-L, DeiT-B, DeiT3-L and BERT need the hub. "
    "Without: the models that ship with unsmooth, seconds. No data is needed.",
    run=run,
)
