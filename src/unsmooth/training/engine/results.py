"""A folder of results holds those of one model: what is there of another would be taken for this one's."""

from __future__ import annotations

from pathlib import Path

from unsmooth.errors import CheckpointError
from unsmooth.sources.files import read_object
from unsmooth.training.engine.record import RECORD, TrainingRecord

SCORES = "superglue.json"  # names its weights by another hash, and checks it itself


def check_results(target: Path, folder: Path) -> None:
    """CheckpointError where `target` holds results that are not of the finished run in `folder`.

    Results are made when training has ended, so of a run that has not ended there can be none.
    """
    files = sorted(target.glob("*.json"))
    if not files:
        return
    try:
        record = TrainingRecord.load(folder)
    except CheckpointError:
        record = None
    for path in files:
        run, weights = _whose(path)
        if record is None:
            why = f"and {folder} has no finished run yet"
        elif run != record.run:
            why = f"not of {record.run}"
        elif weights and record.weights and weights != record.weights:
            why = f"by other weights than those in {folder}"
        else:
            continue
        raise CheckpointError(
            f"{path} is of {run or 'another model'}, {why}: results of two models would be mixed; choose another "
            f"--results, or delete {target}"
        )


def has_results(target: Path, run: str) -> bool:
    """Whether all results of the run of this name are there: its record comes last."""
    path = target / RECORD
    return path.is_file() and _whose(path)[0] == run


def _whose(path: Path) -> tuple[str | None, str | None]:
    """The run that a result is of, and the hash of its weights, as far as the file says."""
    found = read_object(path, "a result; delete the file, and the same command makes it again")
    model = found.get("model")
    about = model if isinstance(model, dict) else found
    weights = about.get("weights") if path.name != SCORES else None
    return about.get("run") or about.get("reference"), weights
