"""From a model in memory to one page: the shortest way through the rooms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from unsmooth.sources import LoadedModel

__all__ = ["report"]


def report(
    model: nn.Module | LoadedModel | Mapping[str, nn.Module | LoadedModel],
    batches: Iterable[Any],
    out: str | Path = "report.html",
    *,
    title: str | None = None,
    **settings: Any,
) -> Path:
    """Measure and explain a model, or several by name, and write one HTML page that opens without a network.

    Args:
        model: any supported Transformer, or a dict of them by the names that the page shows.
        batches: what to run them on, as for `unsmooth.measure`; several models walk over it one after the other.
        out: where the page is written.
        title: the headline, made from the names by default.
        settings: as for `unsmooth.analysis.analyse`: metrics, tokens, tokenizer, explain_inputs, example, …
    """
    from unsmooth.analysis import analyse
    from unsmooth.models.forward import each_batch
    from unsmooth.page import build_report
    from unsmooth.sources import Data
    from unsmooth.sources.files import check_writable, write_result

    check_writable(out)
    models = model if isinstance(model, Mapping) else {"": model}
    given = batches if isinstance(batches, Data) else list(each_batch(batches))
    subjects = [analyse(each, given, name or None, **settings) for name, each in models.items()]
    return write_result(out, build_report(subjects, title=title))
