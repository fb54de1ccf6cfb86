"""One model over its training: the same measurement of every checkpoint, kept by the hash of its weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unsmooth.analysis.explaining.facts import eigenvalue_shares, layer_facts
from unsmooth.analysis.measuring.measurement import Measurement
from unsmooth.analysis.processes import Team
from unsmooth.analysis.results import load_measurement
from unsmooth.errors import CheckpointError, DataError, WeightsError
from unsmooth.models import view
from unsmooth.sources.files import read_object, write_result
from unsmooth.sources.loaded import LoadedModel
from unsmooth.sources.trained import MILESTONES

_STATE = "trainer_state.json"  # of Hugging Face's Trainer


@dataclass(frozen=True)
class Checkpoint:
    """One of them: its measurement, and for each layer the share of its heads' eigenvalues on the sharpening side."""

    reference: str
    step: int
    measurement: Measurement
    negative: dict[int, float] = field(default_factory=dict)  # none where weights cannot be read


def find_checkpoints(references: Iterable[str]) -> list[tuple[str, int]]:
    """References with their steps, in the order of the steps; a folder of checkpoints stands for what is in it.

    The step is the last number of a name (`checkpoint-500`, `@step1000`), or the trainer's own; else they are counted.
    """
    found: list[tuple[str, int | None]] = []
    for reference in references:
        inside = _inside(reference)
        found += [(each, _step(each)) for each in (inside or [reference])]
    if len({step for _, step in found}) < len(found) or any(step is None for _, step in found):
        return [(reference, number) for number, (reference, _) in enumerate(found)]
    return sorted(((reference, step or 0) for reference, step in found), key=lambda each: each[1])


def tracked(
    reference: str, step: int, load: Callable[[], LoadedModel], measure: Callable[[LoadedModel], Measurement],
    settings: Any, folder: Path, team: Team,
) -> Checkpoint:  # fmt: skip
    """A checkpoint, measured now or found in `folder`, where results lie by weights and `settings`.

    Of several processes that measure it together, the first one looks there and writes.
    """
    loaded = load()
    weights = loaded.weights_hash
    said = json.dumps([weights or reference, settings], sort_keys=True, default=str)
    kept = folder / f"{hashlib.sha256(said.encode()).hexdigest()[:20]}.json"
    shares = kept.with_suffix(".weights.json")
    found = team.told(_found(kept, shares) if team.first else None)
    if found is not None:
        return Checkpoint(reference, step, *found)
    measurement, negative = measure(loaded), _negative(loaded)
    if not team.first:
        return Checkpoint(reference, step, measurement, negative)
    folder.mkdir(parents=True, exist_ok=True)
    write_result(shares, json.dumps({str(layer): share for layer, share in negative.items()}) + "\n")
    if not measurement.partial:
        measurement.save(kept)
    return Checkpoint(reference, step, measurement, negative)


def _found(kept: Path, shares: Path) -> tuple[Measurement, dict[int, float]] | None:
    if not (kept.is_file() and shares.is_file()):
        return None
    negative = {int(layer): float(share) for layer, share in read_object(shares, "shares of eigenvalues").items()}
    return load_measurement(kept), negative


def check_alike(checkpoints: Sequence[Checkpoint]) -> None:
    """DataError unless all of them were measured at the same points."""
    points = {checkpoint.measurement.about.settings.points for checkpoint in checkpoints}
    if len(points) > 1:
        raise DataError("the checkpoints are of different models: their points differ, and no curve joins them")


def _negative(loaded: LoadedModel) -> dict[int, float]:
    try:
        facts = [layer_facts(layer, whole=False) for layer in view(loaded.model).layers]
    except WeightsError:
        return {}
    return {f.index: eigenvalue_shares(f.effective.heads.flatten())["re_negative"] for f in facts}


def _inside(reference: str) -> list[str]:
    """The models in a folder that is none itself, or that a run of ours kept on its way."""
    path = reference.removeprefix("hf:")
    own = os.path.join(path, MILESTONES)
    path = own if os.path.isdir(own) else path
    if not os.path.isdir(path) or os.path.isfile(os.path.join(path, "config.json")):
        return []
    folders = sorted(p for p in Path(path).iterdir() if (p / "config.json").is_file() and not p.name.startswith("."))
    if not folders:
        raise CheckpointError(
            f"no checkpoints in {path}: expected folders with a config.json, as trainers write them (unsmooth train "
            "with --keep-every)"
        )
    return [_reference(folder) for folder in folders]


def _reference(folder: Path) -> str:
    config = read_object(folder / "config.json", "a model's configuration")
    return f"hf:{folder}" if "model_type" in config else str(folder)


def _step(reference: str) -> int | None:
    state = Path(reference.removeprefix("hf:")) / _STATE
    if state.is_file():
        return int(read_object(state, "a trainer's state")["global_step"])
    name = reference.rpartition("@")[2] if "@" in reference else Path(reference).name
    numbers = re.findall(r"\d+", name)
    return int(numbers[-1]) if numbers else None
