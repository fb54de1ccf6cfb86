"""Samples on which a metric has no ordinary value: refused, or counted by convention and said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unsmooth.errors import FeatureError, OptionError
from unsmooth.metrics.engine import MEANING, Flags
from unsmooth.metrics.registry import Metric

RULES = ("error", "keep")


def check_rule(rule: str) -> str:
    """The rule, if there is such a one."""
    if rule not in RULES:
        raise OptionError.unknown("rule for degenerate samples", rule, RULES)
    return rule


def degeneracies(flags: Flags, metrics: Sequence[Metric], rule: str, where: str) -> Iterator[str]:
    """What must be said of the samples at one point; FeatureError under the rule `error`.

    NaN and infinity are always an error. What remains are zeros: the message says what the values mean.
    """
    spoiling = {name for metric in metrics for name in metric.spoiled_by}
    always = {"nonfinite", "all_zero"}
    found = [name for name in MEANING if name in always | spoiling and bool(getattr(flags, name).any())]
    if "all_zero" in found:
        found = [name for name in found if name in always]  # it says more than its consequences
    for name in found:
        said = f"{where}: {MEANING[name].format(int(getattr(flags, name).sum()))}"
        if name == "nonfinite":
            raise FeatureError(f"{said}; look at the weights and inputs, or use a wider dtype")
        if rule == "error":
            raise FeatureError(f"{said}; leave the point out, choose other tokens, or keep it (degenerate='keep')")
        yield said
