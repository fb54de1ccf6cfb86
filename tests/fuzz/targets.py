"""Everything that is fuzzed."""

from __future__ import annotations

from fuzz.calls import Commands, Tensors
from fuzz.files import Data, Explanations, HuggingFace, Measurements, States, Trained
from fuzz.target import Target

TARGETS: tuple[type[Target], ...] = (
    Measurements, Explanations, Trained, HuggingFace, Data, States, Tensors, Commands,
)  # fmt: skip
