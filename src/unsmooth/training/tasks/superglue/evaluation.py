"""A model's SuperGLUE scores: every task with its seeds, kept after each run, so that interrupted work goes on."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unsmooth.errors import CheckpointError
from unsmooth.sources.files import alone, cache_folder, read_json, validate_file, write_result
from unsmooth.sources.provenance import default_device, provenance
from unsmooth.training.engine.precision import as_computed, precision_on
from unsmooth.training.engine.step import Speed
from unsmooth.training.tasks.superglue.classifier import check_positions, check_takes_text
from unsmooth.training.tasks.superglue.examples import TASKS, Example, SuperGlueTask, files_hash, read_examples
from unsmooth.training.tasks.superglue.finetune import FineTuner, FineTuning, Split
from unsmooth.training.tasks.superglue.plan import affordable
from unsmooth.training.tasks.superglue.scores import constant_guess

if TYPE_CHECKING:
    from unsmooth.sources import LoadedModel

SCHEMA = "unsmooth-superglue/1"
NOTE = (
    "Fine-tuned on the train split and scored on the validation split; ReCoRD is left out. Where the pre-training text "
    "holds Wikipedia, it may hold the articles behind BoolQ's passages."
)
Progress = Callable[[str, int, dict[str, Any]], None]


@dataclass
class SuperGlue:
    """Scores by task and seed, what the best constant guess would score (`majority`), and how it was done."""

    model: dict[str, Any]
    settings: dict[str, Any]
    scores: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    majority: dict[str, dict[str, float]] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    continued: list[dict[str, Any]] = field(default_factory=list)  # `about` of runs of another day, commit or device
    protocol: dict[str, Any] = field(default_factory=dict)  # which seeds were wanted and run, and the time it took
    data: dict[str, str] = field(default_factory=dict)  # a hash of each task's files

    def mean(self, task: str) -> tuple[float, float, int]:
        """Mean, standard deviation over seeds and number of seeds of a task's score."""
        values = [found["score"] for found in self.scores[task].values()]
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else float("nan"), len(values)

    @property
    def average(self) -> float:
        """The mean over the tasks that have a score."""
        return statistics.fmean(self.mean(task)[0] for task in self.scores)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"schema": SCHEMA, "note": NOTE, **asdict(self)}

    def save(self, path: str | Path) -> Path:
        """As JSON, in one step."""
        return write_result(path, json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> SuperGlue:
        """What `save` wrote."""
        found = read_json(path, SCHEMA)
        with validate_file(path):
            scores = {
                str(task): {int(seed): {str(k): float(v) for k, v in each.items()} for seed, each in seeds.items()}
                for task, seeds in found["scores"].items()
            }
            protocol = dict(found.get("protocol", {}))  # not in files of 0.1
            data = {str(task): str(each) for task, each in found.get("data", {}).items()}  # files of 0.1 have none
            continued = [dict(each) for each in found.get("continued", [])]
            about = dict(found["about"])
            settings = as_computed(found["settings"], str(about.get("hardware", "")))
            return cls(found["model"], settings, scores, found["majority"], about, continued, protocol, data)

    def made_by(self, about: dict[str, Any]) -> None:
        """Note by which code and on what a run was made, where no run before it was made so."""
        if about not in (self.about, *self.continued):
            self.continued.append(about)


def evaluate_superglue(
    loaded: LoadedModel,
    folder: str | Path,
    tasks: Sequence[SuperGlueTask] = tuple(TASKS.values()),
    *,
    how: FineTuning | None = None,
    seeds: int | None = None,
    minutes: float | None = None,
    out: str | Path | None = None,
    device: str | torch.device | None = None,
    speed: Speed | None = None,
    progress: Progress | None = None,
) -> SuperGlue:
    """Fine-tune a text encoder on each task with each seed; `seeds` replaces the tasks' own numbers (5 or 3).

    With `out` every finished run is kept there, and the same call goes on after the last one. `minutes` is the time for
    all of it: where it is short, fewer seeds are run, then fewer tasks, and `protocol` says so. Small tasks come first.
    """
    check_takes_text(loaded)
    device, how = torch.device(device or default_device()), how or FineTuning()
    how = replace(how, precision=precision_on(device, how.precision))
    with _claimed(out):
        return _evaluate(loaded, folder, tasks, how, seeds, minutes, out, device, speed, progress)


@contextmanager
def _claimed(out: str | Path | None) -> Iterator[None]:
    """Hold the file of the scores: two processes would write theirs over each other's."""
    if out is None:
        yield
        return
    name = hashlib.blake2b(os.fsencode(Path(out).resolve()), digest_size=16).hexdigest()
    otherwise = f"another process is writing its scores to {out}: wait for it to end, or choose another --out"
    with alone(cache_folder() / "locks" / name, otherwise):
        yield


def _evaluate(
    loaded: LoadedModel, folder: str | Path, tasks: Sequence[SuperGlueTask], how: FineTuning, seeds: int | None,
    minutes: float | None, out: str | Path | None, device: torch.device, speed: Speed | None, progress: Progress | None,
) -> SuperGlue:  # fmt: skip
    about = provenance(device).to_json()
    result = _begin(loaded, how, about, out)
    for name in (task.name for task in tasks if task.name in result.data):
        if result.data[name] != files_hash(folder, TASKS[name]):
            raise CheckpointError(f"{out} holds scores of other files of {name}: choose another --out")
    wanted = {task: task.seeds if seeds is None else seeds for task in tasks}
    started, before = time.monotonic(), float(result.protocol.get("minutes", 0.0))
    pool = ThreadPoolExecutor(1)
    try:
        work = _Work(loaded, folder, wanted, how, result, device, speed, pool)
        while True:
            left = float("inf") if minutes is None else 60 * (minutes - before) - (time.monotonic() - started)
            done = {name: len(found) for name, found in result.scores.items()}
            run = work.next_run(affordable({t.name: n for t, n in wanted.items()}, done, work.seconds(), left))
            scores = None if run is None else work.run(*run)
            if scores is not None:
                result.made_by(about)
            spent = before + (time.monotonic() - started) / 60
            result.protocol = _protocol(result, wanted, minutes, spent, work.milliseconds)
            if out is not None:
                result.save(out)
            if run is None or scores is None:
                return result
            if progress is not None:
                progress(*run, scores)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Work:
    """What is fine-tuned: one task at a time, its captured step kept for all its seeds.

    While a GPU is at work, the texts of the next tasks are tokenised; a CPU would only be slowed down.
    """

    def __init__(
        self, loaded: LoadedModel, folder: str | Path, wanted: Mapping[SuperGlueTask, int], how: FineTuning,
        result: SuperGlue, device: torch.device, speed: Speed | None, pool: Executor,
    ) -> None:  # fmt: skip
        self.loaded, self.how, self.result, self.device, self.speed = loaded, how, result, device, speed
        self.wanted = tuple(wanted)
        self.tasks = {t.name: t for t, count in wanted.items() if len(result.scores.get(t.name, {})) < count}
        self.milliseconds: dict[str, float] = dict(result.protocol.get("milliseconds_per_step", {}))
        self.took: dict[str, float] = {}  # seconds of one seed
        self.tokens: dict[str, int] = {}  # that one seed learns from: what its time is in proportion to
        self.splits: dict[str, Callable[[], tuple[Split, Split]]] = {}
        self._tuner: FineTuner | None = None
        read = {}
        for name, task in self.tasks.items():
            check_positions(loaded, task, self._length(task))
            train, val = read[name] = [read_examples(folder, task, split) for split in ("train", "val")]
            result.majority[name], result.data[name] = constant_guess(task, val), files_hash(folder, task)
            self.tokens[name] = len(train) * task.choices * self._length(task) * (how.epochs or task.epochs)
        for name in sorted(read, key=self.tokens.__getitem__):
            tokenise = partial(self._tokenise, read[name], self._length(self.tasks[name]))
            self.splits[name] = pool.submit(tokenise).result if device.type == "cuda" else tokenise

    def _length(self, task: SuperGlueTask) -> int:
        return self.how.length or task.length

    def _tokenise(self, both: Sequence[list[Example]], length: int) -> tuple[Split, Split]:
        train, val = (Split.of(examples, self.loaded.tokenizer, length) for examples in both)
        return train, val

    def seconds(self) -> dict[str, float]:
        """Of one seed of every task: as the last one took, or in proportion to its tokens."""
        pace = self._seconds_per_token()
        return {name: self.took.get(name, pace * tokens) for name, tokens in self.tokens.items()}

    def _seconds_per_token(self) -> float:
        """Of the longest inputs that were timed, also before an interruption, and of these the last, the largest task.

        Steps of short inputs wait for the host, and a run of a hundred steps says little of one of thousands.
        """
        order = [*self.milliseconds]
        known = [t for t in self.wanted if t.name in order]
        if not known:
            return 0.0
        last = max(known, key=lambda t: (self._length(t), order.index(t.name)))
        return self.milliseconds[last.name] / (1e3 * self.how.batch_size * last.choices * self._length(last))

    def next_run(self, runs: Mapping[str, int]) -> tuple[str, int] | None:
        """The smallest task that has a seed left; the one at hand first, for its step is captured."""
        left = {
            name: [seed for seed in range(runs.get(name, 0)) if seed not in self.result.scores.get(name, {})]
            for name in sorted(self.tasks, key=self.tokens.__getitem__)
        }
        at_hand = self._tuner.task.task.name if self._tuner else ""
        names = [name for name in (at_hand, *left) if left.get(name)]
        return (names[0], left[names[0]][0]) if names else None

    def run(self, name: str, seed: int) -> dict[str, float]:
        """Fine-tune and score."""
        if self._tuner is None or self._tuner.task.task.name != name:
            self._tuner = None  # its memory first
            splits = self.splits[name]()
            self._tuner = FineTuner(self.loaded.model, self.tasks[name], *splits, self.how, self.device, self.speed)
        scores = self._tuner.run(seed)
        self.result.scores.setdefault(name, {})[seed] = scores
        self.took[name], self.milliseconds[name] = self._tuner.seconds, round(self._tuner.milliseconds, 3)
        return scores


def _protocol(
    so_far: SuperGlue, tasks: Mapping[SuperGlueTask, int], minutes: float | None, spent: float, pace: dict[str, float]
) -> dict[str, Any]:
    """Which seeds were asked for, by this call or an earlier one for other tasks, and which were run."""
    asked = {**so_far.protocol.get("seeds_wanted", {}), **{task.name: count for task, count in tasks.items()}}
    wanted = {name: asked[name] for name in TASKS if name in asked}
    run = {name: len(so_far.scores.get(name, {})) for name in wanted}
    kept = all(run[name] >= count for name, count in wanted.items())
    short = [f"{name} {run[name]} of {count}" for name, count in wanted.items() if run[name] < count]
    said = "every task with every seed" if kept else f"not every seed was run: {', '.join(short)}"
    limit = {} if minutes is None else {"minutes_given": minutes}
    return {
        "kept": kept, "said": said, "seeds_wanted": wanted, "seeds_run": run, **limit, "minutes": round(spent, 2),
        "milliseconds_per_step": pace,
    }  # fmt: skip


def _begin(loaded: LoadedModel, how: FineTuning, about: dict[str, Any], out: str | Path | None) -> SuperGlue:
    model = {"reference": loaded.reference, "weights": loaded.weights_hash}
    new = SuperGlue(model, asdict(how), about=about)
    if out is None or not Path(out).exists():
        return new
    old = SuperGlue.load(out)
    if (old.model.get("weights"), old.settings) != (model["weights"], new.settings):
        raise CheckpointError(f"{out} holds scores of another model or other settings: choose another --out")
    return old
