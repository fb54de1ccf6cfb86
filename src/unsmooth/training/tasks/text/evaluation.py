"""How well a masked language model guesses hidden tokens of a text: loss in nats and share guessed right."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from unsmooth.errors import DataError, ForwardError, OptionError
from unsmooth.models.forward import call
from unsmooth.sources.files import write_result
from unsmooth.sources.passages import PASSAGES
from unsmooth.sources.provenance import provenance
from unsmooth.training.tasks.text.corpus import Texts, encoded
from unsmooth.training.tasks.text.masking import draw_hidden, hide

if TYPE_CHECKING:
    from unsmooth.sources import LoadedModel

SCHEMA = "unsmooth-masked/1"
SEQUENCES = 2_048  # as many as training looks at, unless told otherwise
LENGTH, MASKED = 128, 0.25  # of a sequence; the share of it that is hidden


@dataclass(frozen=True)
class MaskedEvaluation:
    """Cross-entropy in nats and accuracy on hidden tokens, over sequences without padding."""

    model: str
    weights: str | None
    data: str
    loss: float
    accuracy: float
    sequences: int
    length: int
    masked: float
    about: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"schema": SCHEMA, **asdict(self)}

    def save(self, path: str | Path) -> Path:
        """As JSON, in one step."""
        return write_result(path, json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n")


@torch.no_grad()
def evaluate_masked(
    loaded: LoadedModel,
    data: str,
    *,
    samples: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
) -> MaskedEvaluation:
    """Hide a share of the tokens of every sequence, as training does, and have the model guess them.

    `data` are paths with commas, or `bundled`. Documents follow one another with a separator; the same seed and
    batch size hide the same tokens of the same texts.
    """
    mask_id = getattr(loaded.tokenizer, "mask_token_id", None)
    if mask_id is None or not hasattr(loaded.tokenizer, "backend_tokenizer"):
        raise OptionError(f"{loaded.reference} has no tokenizer that can mask: expected a masked language model")
    if not type(loaded.model).__name__.endswith("ForMaskedLM"):
        raise OptionError(
            f"{loaded.reference} is a {type(loaded.model).__name__}, which guesses no words: expected one whose class "
            "ends in ForMaskedLM"
        )
    found = Texts.at([PASSAGES] if data == "bundled" else data.split(","))
    documents = itertools.chain(found.read("train"), found.read("validation"))
    device = next(loaded.model.parameters()).device
    loss, right, tokens, count = 0.0, 0, 0, 0
    model: Any = loaded.model.eval()
    for number, rows in enumerate(_rows(documents, loaded.tokenizer, batch_size, samples or SEQUENCES)):
        rng = torch.Generator().manual_seed(1_000_003 * seed + number)
        hidden = draw_hidden(len(rows), LENGTH, MASKED, loaded.vocabulary, rng)
        inputs, targets = hide(rows, hidden, mask_id)
        logits = call(model, {"input_ids": inputs.to(device)}).logits.float().cpu()
        chosen = logits.gather(1, hidden.positions[..., None].expand(-1, -1, logits.shape[-1]))
        loss += float(F.cross_entropy(chosen.flatten(0, 1), targets.flatten(), reduction="sum"))
        right += int((chosen.argmax(-1) == targets).sum())
        tokens, count = tokens + targets.numel(), count + len(rows)
    if not count:
        raise DataError(f"{data} gives no sequence of {LENGTH} tokens: expected more text")
    if not math.isfinite(loss):
        raise ForwardError(f"the loss of {loaded.reference} is {loss}: expected a finite number; check its weights")
    return MaskedEvaluation(
        loaded.reference, loaded.weights_hash, data if data == "bundled" else Path(data).name, loss / tokens,
        right / tokens, count, LENGTH, MASKED, provenance(device).to_json(),
    )  # fmt: skip


def _rows(documents: Iterator[str], tokenizer: Any, batch: int, most: int) -> Iterator[Tensor]:
    """Batches of packed sequences, `most` sequences in all."""
    waiting: NDArray[np.int64] = np.empty(0, np.int64)
    taken = 0
    for ids in itertools.chain(encoded(documents, tokenizer), [None]):
        waiting = waiting if ids is None else np.concatenate([waiting, ids])
        while taken < most and (len(waiting) >= batch * LENGTH or (ids is None and len(waiting) >= LENGTH)):
            rows = min(batch, len(waiting) // LENGTH, most - taken)
            yield torch.from_numpy(waiting[: rows * LENGTH].reshape(rows, LENGTH))
            waiting, taken = waiting[rows * LENGTH :], taken + rows
        if taken >= most:
            return
