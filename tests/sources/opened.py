"""Files as batches, for what takes images or text and has no weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from unsmooth.sources import ImageInput, open_data


class Letters:
    """A tokenizer of letters with a start (0) and an end (1) token, as Hugging Face's are called."""

    all_special_ids = (0, 1)

    def __call__(self, text: str, add_special_tokens: bool = True, max_length: int = 10**9, **_: Any) -> dict[str, Any]:
        ids = [ord(c) for c in text if c.strip()]
        return {"input_ids": [0, *ids[: max_length - 2], 1] if add_special_tokens else ids}


@dataclass
class Loaded:
    modality: str
    reference: str = "test"
    images: ImageInput | None = None
    tokenizer: Any = None
    model: torch.nn.Module = field(default_factory=torch.nn.Identity)
    vocabulary: int = 0x110000  # one per character
    padding_id: int = 9


HALF = (0.5, 0.5, 0.5)
IMAGES, TEXT = Loaded("images", images=ImageInput(8, HALF, HALF)), Loaded("text", tokenizer=Letters())


def batches(path: Path | str, loaded: Loaded, **options: Any) -> list[Any]:
    return list(open_data(path, loaded, **options))  # type: ignore[arg-type]
