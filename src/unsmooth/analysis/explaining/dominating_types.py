"""Only the dominating types, as the poster counts them: no exponents, so large models take less time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from unsmooth.models import capture_attention, view
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.models.inputs import each_batch
from unsmooth.theory.heads import head_verdicts
from unsmooth.theory.spectrum import spectrum_of_attention, spectrum_of_h

if TYPE_CHECKING:
    import pandas as pd


def dominating_types(model: nn.Module, batches: Iterable[Any]) -> pd.DataFrame:
    """One row per layer, head and input: type and endpoint for the bare H with step 1 (see `type_shares`)."""
    import pandas as pd

    v = view(model)
    weights = [layer.weights() for layer in v.layers]
    spectra = [spectrum_of_h(w.w_v, w.w_proj, layer=False).heads for w in weights]
    rows: list[dict[str, Any]] = []
    seen = 0

    def count(index: int, attention: Tensor) -> None:
        for i, heads in enumerate(attention):
            found = head_verdicts(spectra[index], spectrum_of_attention(heads), False, attention.dtype)
            rows.extend(
                {"layer": index, "head": h, "input": seen + i, "paper_kind": kind, "paper_endpoint": end}
                for h, (kind, end) in enumerate(zip(found.kinds, found.endpoints, strict=True))
            )

    with evaluating(model), capture_attention(v, count):
        for batch in each_batch(batches):
            call(model, to_model(batch, model))
            seen = 1 + max(row["input"] for row in rows)
    return pd.DataFrame(rows)
