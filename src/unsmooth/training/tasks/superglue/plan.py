"""How many seeds of which tasks fit into the time that is left: fewer seeds first, then fewer tasks."""

from __future__ import annotations

from collections.abc import Mapping

Runs = dict[str, int]  # seeds by task


def affordable(wanted: Mapping[str, int], done: Mapping[str, int], seconds: Mapping[str, float], left: float) -> Runs:
    """Seeds of every task, those that are done included, so that what is not done yet takes at most `left` seconds.

    `seconds` is what one seed of a task takes; what has none costs nothing as far as anybody knows. The largest task is
    the first to be left out.

    >>> wanted, seconds = {"RTE": 5, "BoolQ": 3}, {"RTE": 1.0, "BoolQ": 10.0}
    >>> affordable(wanted, {}, seconds, left=36.0), affordable(wanted, {}, seconds, left=25.0)
    ({'RTE': 5, 'BoolQ': 3}, {'RTE': 2, 'BoolQ': 2})
    >>> affordable(wanted, {"RTE": 1}, seconds, left=9.0)
    {'RTE': 5}
    """

    def cost(runs: Mapping[str, int]) -> float:
        return sum(max(0, count - done.get(task, 0)) * seconds.get(task, 0.0) for task, count in runs.items())

    tasks = sorted(wanted, key=lambda task: seconds.get(task, 0.0))
    for kept in (tasks[:count] for count in range(len(tasks), 0, -1)):
        for most in range(max(wanted.values()), 0, -1):
            runs = {task: min(wanted[task], most) for task in wanted if task in kept}
            if cost(runs) <= left:
                return runs
    return {}
