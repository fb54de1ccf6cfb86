"""What the oldest supported versions lack, a mark each, and what the newest call by another name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

NEEDS_FSDP_ON_A_CPU = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="this torch cannot run FSDP2 on a CPU"
)
NEEDS_NEWER_DYNAMO = pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="torch 2.6 cannot compile this as one graph, or ends the process"
)


def checkpoint_activations(model: Any) -> None:
    """Hugging Face's gradient checkpointing; newer transformers deprecate its first name."""
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable()
