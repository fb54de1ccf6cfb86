"""Samples on which a metric has no ordinary value: refused, or counted by convention and said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unsmooth.errors import FeatureError, OptionError
from unsmooth.metrics.engine import MEANING, Flags
from unsmooth.metrics.registry import Metric

RULES = ("error", "keep")
# Which metrics a degeneracy takes the meaning from; a metric not named here keeps its ordinary value.
_TOUCHES = {
    "zero_token": {"cosine_similarity", "vita2022"},
    "zero_mean": {"hfc_lfc", "hfc_lfc_spectral"},
}


def check_rule(rule: str) -> str:
    """The rule, if there is such a one."""
    if rule not in RULES:
        raise OptionError.unknown("rule for degenerate samples", rule, RULES)
    return rule


def degeneracies(flags: Flags, metrics: Sequence[Metric], rule: str, where: str) -> Iterator[str]:
    """What must be said of the samples at one point; FeatureError under the rule `error`.

    NaN and infinity are always an error. What remains are zeros: the message says what the values mean.
    """
    names = {metric.name for metric in metrics}
    found = [name for name in MEANING if bool(getattr(flags, name).any()) and names & _TOUCHES.get(name, names)]
    if "all_zero" in found:
        found = [name for name in found if name not in _TOUCHES]  # it says more than its consequences
    for name in found:
        said = f"{where}: {MEANING[name].format(int(getattr(flags, name).sum()))}"
        if name == "nonfinite":
            raise FeatureError(f"{said}; look at the weights and inputs, or use a wider dtype")
        if rule == "error":
            raise FeatureError(f"{said}; leave the point out, choose other tokens, or keep it (degenerate='keep')")
        yield said
