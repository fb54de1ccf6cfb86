"""How the rows of a matrix are shared out among the programs of a kernel (CUDA, Triton)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton


@dataclass(frozen=True)
class Strip:
    """How the rows are shared out; no choice of it changes what is computed but for rounding."""

    rows: int  # that a program takes at a time
    columns: int  # of GELU; LayerNorm needs them all
    warps: int
    programs: int = 0  # a multiprocessor; 0: as many as there are tiles
    stages: int = 1  # tiles that are on their way from memory at a time

    def launched(self, rows: int, device: torch.device, beside: int = 1) -> int:
        """Programs along the rows; `beside` of them lie side by side along the columns."""
        tiles = triton.cdiv(rows, self.rows)
        if not self.programs:
            return tiles
        count = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
        return min(tiles, max(1, count * self.programs // beside))
