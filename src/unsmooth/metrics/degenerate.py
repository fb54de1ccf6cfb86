"""Samples on which a metric has no ordinary value: refused, or counted by convention and said so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool
from torch import Tensor

from unsmooth.errors import FeatureError, OptionError
from unsmooth.metrics.features import Features
from unsmooth.metrics.registry import Metric

RULES = ("error", "keep")
MEANING = {
    "nonfinite": "NaN or infinity in {}: no metric is defined on them",
    "all_zero": "all features are zero in {}: HFC/LFC and the ranks are 0/0 (nan), cosine similarity is 0",
    "zero_mean": "the mean token is zero in {}: LFC = 0, so that HFC/LFC is infinite",
    "zero_token": "a token is zero everywhere in {}: it has no direction and counts with cosine 0",
}
_KEEP = "(degenerate='keep', --degenerate keep)"


class ZeroTokens(NamedTuple):
    """Tokens that are zero everywhere, in words, and the token policies that leave them out."""

    which: str
    instead: tuple[str, ...]


@dataclass(frozen=True)
class Flags:
    """Samples on which some metric is not an ordinary number."""

    nonfinite: Bool[Tensor, " batch"]
    zero_token: Bool[Tensor, " batch"]
    zero_mean: Bool[Tensor, " batch"]
    all_zero: Bool[Tensor, " batch"]

    @classmethod
    def of(cls, f: Features) -> Flags:
        """The flags of each sample."""
        return cls(f.nonfinite, f.zero_token, f.zero_mean, f.all_zero)


def check_rule(rule: str) -> str:
    """The rule, if there is such a one."""
    if rule not in RULES:
        raise OptionError.unknown("rule for degenerate samples", rule, RULES)
    return rule


def degeneracies(
    flags: Flags, metrics: Sequence[Metric], rule: str, where: str, zeros: ZeroTokens | None = None
) -> Iterator[str]:
    """What must be said of the samples at one point; FeatureError under the rule `error`.

    NaN and infinity are always an error. What remains are zeros: the message says what the values mean, which tokens
    they are (`zeros`), where that is known, and what to do.
    """
    spoiling = {name for metric in metrics for name in metric.spoiled_by}
    always = {"nonfinite", "all_zero"}
    found = [name for name in MEANING if name in always | spoiling and bool(getattr(flags, name).any())]
    if "all_zero" in found:
        found = [name for name in found if name in always]  # it says more than its consequences
    for name in found:
        count, which = int(getattr(flags, name).sum()), ""
        if zeros is not None and rule == "error" and name == "zero_token":
            which = f" ({zeros.which})"
        said = f"{where}: {MEANING[name].format(f'1 sample{which}' if count == 1 else f'{count} samples{which}')}"
        if name == "nonfinite":
            raise FeatureError(f"{said}; look at the weights and inputs, or use a wider dtype")
        if rule == "error":
            raise FeatureError(f"{said}; {_what_to_do(name, zeros)}")
        yield said


def _what_to_do(name: str, zeros: ZeroTokens | None) -> str:
    if name != "zero_token":
        return f"keep it {_KEEP}, or leave the point out, where points can be chosen (points=, --points)"
    if zeros is not None and zeros.instead:
        policies = ",".join(zeros.instead)
        return f"leave it out (tokens='{policies}', --tokens {policies}), or keep it {_KEEP}"
    other = "" if zeros is not None else ", or choose tokens without it (tokens='no-outliers', --tokens no-outliers)"
    return f"keep it {_KEEP}{other}"
