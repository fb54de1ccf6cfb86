"""`make fuzz`: every target for minutes, from a seed, with its counts printed.

python -m fuzz --minutes 10 --seed 0            # from the folder tests
python -m fuzz --only tensors --first 1234      # one input again
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from fuzz.target import Target
from fuzz.targets import TARGETS

from unsmooth.errors import UnsmoothError


def attempts(target: Target, seed: int, first: int = 0) -> Iterator[tuple[int, str, str]]:
    """Number, outcome (accepted, refused, raw) and, of a raw one, the traceback, input after input."""
    for number in count(first):
        draw = random.Random(f"{seed}/{target.name}/{number}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with _time_limit(120):
                    target.attempt(draw)
                yield number, "accepted", ""
            except UnsmoothError:
                yield number, "refused", ""
            except (KeyboardInterrupt, SystemExit, GeneratorExit):
                raise
            except BaseException:  # a panic of a Rust library is no Exception
                yield number, "raw", traceback.format_exc()


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """TimeoutError for what takes longer, where there are alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError(f"no end after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one target by name")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--inputs", type=int, help="so many of each target, instead of minutes")
    given = parser.parse_args()
    chosen = [target for target in TARGETS if given.only in (None, target.__name__.lower())]
    if not chosen:
        parser.error(f"no target {given.only}: expected one of {', '.join(t.__name__.lower() for t in TARGETS)}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # command lines name models; waiting for a network finds nothing
    total: Counter[str] = Counter()
    print(f"{'target':14}{'inputs':>8}{'accepted':>10}{'refused':>9}{'raw':>6}   seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        for make in chosen:
            target = make(Path(folder, make.__name__))
            end, found, seen = time.monotonic() + 60 * given.minutes / len(chosen), Counter[str](), Counter[str]()
            for number, outcome, trace in attempts(target, given.seed, given.first):
                found[outcome] += 1
                last = trace.strip().rpartition("\n")[2]
                if trace and not seen[last]:
                    print(f"\n{target.name} {number}:\n{trace}", file=sys.stderr)
                seen[last] += 1
                done = found.total() >= given.inputs if given.inputs else time.monotonic() > end
                if done:
                    break
            _row(target.name, found)
            total += found
    _row("all", total)
    return int(total["raw"] > 0)


def _row(name: str, found: Counter[str]) -> None:
    print(f"{name:14}{found.total():8}{found['accepted']:10}{found['refused']:9}{found['raw']:6}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
