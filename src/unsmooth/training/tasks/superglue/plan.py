"""How many seeds of which tasks fit into the time that is left: fewer seeds of the longest tasks first."""

from __future__ import annotations

from collections.abc import Mapping

Runs = dict[str, int]  # seeds by task


def affordable(wanted: Mapping[str, int], done: Mapping[str, int], seconds: Mapping[str, float], left: float) -> Runs:
    """Seeds of every task, those that are done included, so that what is not done yet takes at most `left` seconds.

    `seconds` is what one seed of a task takes; what has none costs nothing as far as anybody knows. The longest
    task gives up seeds, down to one, then the next; only then whole tasks are left out, the longest first. So the small
    tasks, which need their seeds most, keep them.

    >>> wanted, seconds = {"RTE": 5, "BoolQ": 3}, {"RTE": 1.0, "BoolQ": 10.0}
    >>> affordable(wanted, {}, seconds, left=36.0), affordable(wanted, {}, seconds, left=25.0)
    ({'RTE': 5, 'BoolQ': 3}, {'RTE': 5, 'BoolQ': 2})
    >>> affordable(wanted, {}, seconds, left=12.0), affordable(wanted, {"RTE": 1}, seconds, left=9.0)
    ({'RTE': 2, 'BoolQ': 1}, {'RTE': 5})
    """
    tasks = sorted(wanted, key=lambda task: seconds.get(task, 0.0))
    for kept in (tasks[:count] for count in range(len(tasks), 0, -1)):
        runs = {task: count for task, count in wanted.items() if task in kept}
        for task in reversed(kept):
            while runs[task] > 1 and _cost(runs, done, seconds) > left:
                runs[task] -= 1
        if _cost(runs, done, seconds) <= left:
            return runs
    return {}


def _cost(runs: Runs, done: Mapping[str, int], seconds: Mapping[str, float]) -> float:
    return sum(max(0, count - done.get(task, 0)) * seconds.get(task, 0.0) for task, count in runs.items())
