"""Lists of runs, most telling first; one command spends whatever device time there is.

python -m unsmooth.train.runs --list ten-percent --data PATH --out DIR
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any

from unsmooth.control import PEERS
from unsmooth.errors import OptionError, WeightsError
from unsmooth.files import write_atomically
from unsmooth.train.journal import FAILURE_SCHEMA, RECORD, read_log, write_record
from unsmooth.train.loop import Run, TrainingError, command_of, train
from unsmooth.train.recipes import DEPTHS, find_recipe
from unsmooth.train.step import Speed

POSTER = ("plain", "sharpening", "smoothing")
STARTS = (0.01, 0.1, 0.3, 1.0)  # standard deviations of ψ
PARTS = ("first-half", "second-half", "alternate")
ALONE = ("0", "5", "11")  # the first, a middle and the last of 12 layers


def run_list(name: str) -> list[Run]:
    """The runs of one item of the plan."""
    recipe = find_recipe("cifar100")
    poster = [Run(recipe, variant, seed, 0.1) for seed in (0, 1, 2) for variant in POSTER]
    others = [
        Run(recipe, f"{mode}-{form}", seed, 0.1)
        for seed in (0, 1, 2)
        for form in ("split", "eigen")
        for mode in ("sharpening", "smoothing")
    ]
    lists = {
        "all-data": [Run(recipe, variant) for variant in POSTER],
        "ten-percent": poster,
        "half": [Run(recipe, variant, 0, 0.5) for variant in POSTER],
        "forms": others,
        "initialisation": [Run(recipe, "sharpening-eigen", 0, 0.1, std=s) for s in STARTS],
        "ratio": [Run(recipe, f"sharpening@{part}", 0, 0.1) for part in PARTS],
        "peers": [Run(recipe, name, 0, 0.1) for name in PEERS],
        "study": _study(),
    }
    if name not in lists:
        raise OptionError.unknown("list of runs", name, lists)
    return lists[name]


def _study() -> list[Run]:
    """What the paper leaves open, on 10 % and with several seeds; runs of `forms` with seed 0 are its first."""
    recipe, seeds, signs = find_recipe("cifar100"), (0, 1, 2), ("sharpening", "smoothing")
    mixed = [f"{a}@first-half+{b}@second-half" for a, b in (signs, signs[::-1])]
    layers = [f"sharpening@{part}" for part in (*PARTS, *ALONE)] + mixed
    smoothing = [Run(recipe, "smoothing", seed, 0.1) for seed in range(3, 9)]
    subsets = [Run(recipe, v, seed, 0.1, subset=s) for s in (1, 2) for seed in seeds for v in ("plain", "sharpening")]
    forms = [Run(recipe, f"{v}-{form}", seed, 0.1) for seed in (1, 2) for form in ("split", "eigen") for v in signs]
    starts = [
        Run(recipe, variant, seed, 0.1, std=std)
        for seed in seeds
        for variant in ("sharpening-eigen", "sharpening")
        for std in STARTS
    ]
    ratio = [Run(recipe, variant, seed, 0.1) for seed in seeds for variant in layers]
    peers = [Run(recipe, name, seed, 0.1) for seed in seeds for name in PEERS]
    depths = [Run(find_recipe(f"cifar100-depth{d}"), v, seed, 0.1) for seed in (0, 1) for d in DEPTHS for v in POSTER]
    return [*smoothing, *subsets, *forms, *starts, *ratio, *peers, *depths]


def run_all(runs: list[Run], data: Path, out: Path, records: Path, minutes: float, **options: Any) -> None:
    """Each run that has no record yet, until the time is up; a run that would not fit is not started."""
    started, longest = time.monotonic(), 0.0
    for run in runs:
        target = records / f"{run.name}.json"
        if target.exists() or (records / f"{run.name}.failed.json").exists():
            print(f"{run.name}: done already", flush=True)
            continue
        left = minutes * 60 - (time.monotonic() - started)
        if left < longest:
            print(f"{run.name}: not started, {left:.0f} s left", flush=True)
            break
        before = time.monotonic()
        folder = out / run.name
        try:
            record = train(run, data, folder, progress=_say, tensorboard=False, **options)
        except (TrainingError, WeightsError) as error:  # that training breaks is a result too; the other runs go on
            failure = {"run": run.name, "command": command_of(run), "failed": str(error), "epochs": read_log(folder)}
            write_record(records / f"{run.name}.failed.json", failure, FAILURE_SCHEMA)
            print(f"{run.name}: {error}", flush=True)
            continue
        longest = max(longest, time.monotonic() - before)
        write_atomically(target, (folder / RECORD).read_bytes())
        shown = f"{100 * record['final']['accuracy']:.2f} %"
        print(f"{run.name}: {shown} in {record['minutes']:.2f} min", flush=True)


def _say(epoch: int, epochs: int, row: dict[str, Any]) -> None:
    if "test" in row:
        loss, accuracy = row["train_loss"], row["test"]["accuracy"]
        print(f"  {epoch}/{epochs} loss {loss:.3f} accuracy {accuracy:.4f} {row['minutes']} min", flush=True)


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--list", required=True, help="all-data, ten-percent, half, forms, initialisation, ratio, peers, study"
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--records", type=Path, default=Path("zoo/records"))
    parser.add_argument("--minutes", type=float, default=1e9, help="start no run that would end later")
    parser.add_argument("--seeds", type=int, nargs="*", help="only these seeds")
    parser.add_argument("--variants", nargs="*", help="only these variants")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument("--compile-mode", default="default")
    parser.add_argument("--attention", default="tiled")
    options = parser.parse_args()
    runs = [dataclasses.replace(run, recipe=run.recipe.override(options.set)) for run in run_list(options.list)]
    runs = [run for run in runs if options.seeds is None or run.seed in options.seeds]
    runs = [run for run in runs if options.variants is None or run.variant in options.variants]
    speed = Speed(compile_mode=options.compile_mode, attention=options.attention)
    run_all(runs, options.data, options.out, options.records, options.minutes, speed=speed)


if __name__ == "__main__":
    main()
