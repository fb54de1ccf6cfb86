"""From a model in memory to one page: the shortest way through the rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from unsmooth.analysis import Subject, Sweep
    from unsmooth.sources import LoadedModel

__all__ = ["report"]


def report(
    model: nn.Module | LoadedModel | Mapping[str, nn.Module | LoadedModel],
    batches: Iterable[Any],
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    sweeps: Iterable[Sweep] = (),
    **settings: Any,
) -> Path:
    """Measure and explain a model, or several by name, and write one HTML page that opens without a network.

    Args:
        model: any supported Transformer, or a dict of them by the names that the page shows.
        batches: the inputs, as for `unsmooth.measure`; several models read them one after the other.
        out: the file of the page; it is returned.
        title: the headline; by default it is made from the names.
        sweeps: results of `unsmooth.sweep` for these models, to show what edits cost.
        settings: as for `unsmooth.analysis.analyse`: metrics, tokens, tokenizer, explain_inputs, example, …
    """
    from unsmooth.analysis import analyse
    from unsmooth.models.inputs import each_batch
    from unsmooth.page import build_report
    from unsmooth.sources import Data
    from unsmooth.sources.files import check_writable, write_result

    check_writable(out)
    models = model if isinstance(model, Mapping) else {"": model}
    given = batches if isinstance(batches, Data) else list(each_batch(batches))
    subjects = [analyse(each, given, name or None, **settings) for name, each in models.items()]
    subjects = with_sweeps(subjects, sweeps)
    return write_result(out, build_report(subjects, title=title))


def with_sweeps(subjects: Sequence[Subject], sweeps: Iterable[Sweep]) -> list[Subject]:
    """The subjects, each with the sweep of its model; of a single model in memory, which has no name, the one given."""
    from unsmooth.errors import OptionError

    found, given = list(subjects), list(sweeps)
    for sweep in given:
        hits = [i for i, subject in enumerate(found) if subject.is_of(sweep)]
        if not hits and len(found) == len(given) == 1 and sweep.about.model.reference is None:
            hits = [0]
        if not hits:
            raise OptionError(
                f"the sweep is of {sweep.about.model.name}, and the page of "
                f"{', '.join(subject.measurement.about.model.name for subject in found)}: sweep one of these"
            )
        for i in hits:
            found[i] = replace(found[i], sweep=sweep)
    return found
