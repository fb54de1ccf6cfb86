"""The poster's Table 2: accuracy on CIFAR-100 by share of the training data."""

from __future__ import annotations

from typing import Any

from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.published import published
from unsmooth.paper.records import TITLES, VARIANTS, Summary, beside, load_records, provenance


def run(context: Context) -> Result:
    """Ours beside the published: from the records of our runs, or computed now for models that are named."""
    records = _evaluated(context) if context.models and context.data else load_records(context)
    table = published("poster-table2")
    rows: list[list[Value]] = []
    used = []
    for number, share in enumerate(table["columns"]):
        ours: dict[str, Summary | None] = {}
        for variant in VARIANTS:
            same = [r for r in records if r["variant"] == variant and r["fraction"] == float(share)]
            mine = [r for r in same if not r["same_steps"] and r["std"] is None]
            ours[variant] = Summary.of([100 * r["final"]["accuracy"] for r in mine])
            used += mine
        cells = beside(ours, {v: table[v][number] for v in VARIANTS})
        rows += [[f"{100 * float(share):g} %", TITLES[v], *cells[v]] for v in VARIANTS]
    there = sum(row[2] is not None for row in rows)
    return Result(
        label=f"Our runs of the recipe cifar100 beside the poster's; {there} of {len(rows)} cells have runs",
        tables=[Table(table["about"], ["data kept", "model", "ours", "published", "difference", "note"], rows)],
        notes=[
            "± is the standard deviation over seeds for ours; the poster does not say what its ± is",
            "signs: ViT⁺ has positive eigenvalues (smoothing), ViT⁻ negative ones (sharpening)",
        ],
        about=provenance(used),
    )


def _evaluated(context: Context) -> list[dict[str, Any]]:
    """The records of the named models, with the accuracy that they have now."""
    from unsmooth.files import read_json
    from unsmooth.paper.depth import device_of
    from unsmooth.train.trained import evaluate_trained, trained_folder

    found = []
    for text in context.models:
        reference = text.partition("=")[2] or text
        config = read_json(trained_folder(reference) / "config.json", "unsmooth-model/1")
        clean = evaluate_trained(reference, context.data[0], limit=context.limit, device=device_of(context))["clean"]
        about = {key: config.get(key) for key in ("run", "variant", "seed", "fraction")}
        found.append({**about, "same_steps": False, "std": None, "final": clean})
    return found


ITEM = Item(
    "poster-table2",
    "poster",
    "Data efficiency: accuracy on CIFAR-100 with 100, 50 and 10 % of the training data",
    needs="the records of training runs that ship with unsmooth, seconds; --runs FOLDER for your own (`unsmooth train "
    "cifar100 --fraction …`, about 20, 10 and 2.5 minutes each on one H200). --model zoo:NAME --data CIFAR100 "
    "computes the accuracy of these models now. Cells without a run stay empty.",
    run=run,
)
