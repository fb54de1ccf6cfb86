"""Tests of what the oldest supported torch lacks: each mark says what."""

from __future__ import annotations

import pytest
import torch

NEEDS_FSDP_ON_A_CPU = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="this torch cannot run FSDP2 on a CPU"
)
NEEDS_NEWER_DYNAMO = pytest.mark.skipif(
    torch.__version__.startswith("2.6."), reason="torch 2.6 cannot compile this model as one graph"
)
