"""Whether a step can be recorded as a CUDA graph, which the code of other people's models may not allow."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch


def waits_for_host(step: Callable[[], None]) -> bool:
    """Whether a step waits for the device or copies from the host, which no graph may hold.

    Asked before the step is recorded, for a recording that breaks off leaves the device's random generator unusable.
    Libraries leave out some checks while a stream is recorded, so they are told that it is.
    """
    mode, recorded = torch.cuda.get_sync_debug_mode(), torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = lambda: True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode")  # a prototype, says PyTorch
            torch.cuda.set_sync_debug_mode("error")
        step()
    except RuntimeError as error:
        if "synchronizing" not in str(error):
            raise
        return True
    finally:
        torch.cuda.is_current_stream_capturing = recorded
        torch.cuda.set_sync_debug_mode(mode)
    return False
