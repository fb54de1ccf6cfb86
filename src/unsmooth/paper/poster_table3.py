"""The poster's Table 3: accuracy on CIFAR-100 by corruption intensity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unsmooth.paper.item import Context, Item, Result, Table, Value
from unsmooth.paper.published import published
from unsmooth.paper.records import TITLES, VARIANTS, Summary, beside

PATTERN = "*.corruptions.json"


def run(context: Context) -> Result:
    """Ours on regenerated CIFAR-100-C beside the published; computed now for models that are named."""
    found = _evaluations(context)
    table = published("poster-table3")
    rows: list[list[Value]] = []
    for number, severity in enumerate(table["columns"]):
        ours = {
            variant: Summary.of([100 * _accuracy(e, severity) for e in found if e["variant"] == variant])
            for variant in VARIANTS
        }
        cells = beside(ours, {v: table[v][number] for v in VARIANTS})
        rows += [[severity, TITLES[v], *cells[v]] for v in VARIANTS]
    names = ", ".join(e["model"] for e in found) or "no model yet"
    return Result(
        label=f"Mean accuracy over the 15 corruptions of regenerated CIFAR-100-C, beside the poster's: {names}",
        tables=[Table(table["about"], ["intensity", "model", "ours", "published", "difference", "note"], rows)],
        notes=[
            "regenerated CIFAR-100-C: CIFAR-C's constants and our random draws; frost's photographs are replaced by a "
            "procedural texture; the poster's own corrupted images are not public",
            "the poster's models saw all training data; a model trained on 10 % is far below it by design",
        ],
        about={e["model"]: {"images": e["clean"]["images"], "seed": e["corruptions"]["seed"]} for e in found},
    )


def _evaluations(context: Context) -> list[dict[str, Any]]:
    if context.models and context.data:
        from unsmooth.paper.depth import device_of
        from unsmooth.train.trained import evaluate_trained

        options: dict[str, Any] = {"corruptions": True, "limit": context.limit, "seed": context.seed}
        references = [text.partition("=")[2] or text for text in context.models]
        return [evaluate_trained(r, context.data[0], device=device_of(context), **options) for r in references]
    from unsmooth.models.load import zoo_folder

    folder = context.runs or zoo_folder() / "records"
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob(f"**/{PATTERN}"))]


def _accuracy(evaluation: dict[str, Any], severity: str) -> float:
    if severity == "0":
        return float(evaluation["clean"]["accuracy"])
    return float(evaluation["corruptions"]["mean"][severity])


ITEM = Item(
    "poster-table3",
    "poster",
    "Corruption robustness: accuracy on regenerated CIFAR-100-C by intensity",
    needs="results of `unsmooth evaluate MODEL --data CIFAR100 --corruptions --out NAME.corruptions.json`, shipped or "
    "in --runs FOLDER; or --model zoo:NAME --data CIFAR100 to compute them now (75 times the test set: hours on a CPU, "
    "unless --limit takes fewer images).",
    run=run,
)
