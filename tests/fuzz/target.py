"""What is fuzzed: each target turns a draw of random numbers into one input, and hands it to the library.

An attempt may work, or end in one of our own errors, which say what was expected. Anything else is a raw traceback.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
from pathlib import Path

import torch


class Target:
    """Builds its good inputs once, in a folder of its own; `attempt` makes a bad one of them and tries it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def attempt(self, draw: random.Random) -> None:
        raise NotImplementedError


def vit() -> torch.nn.Module:
    import timm

    torch.manual_seed(0)
    return timm.models.VisionTransformer(img_size=16, patch_size=8, embed_dim=8, depth=2, num_heads=2, num_classes=3)


def images() -> list[torch.Tensor]:
    return [torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))]


def command(*words: object) -> int:
    """The exit code of a command line, run here."""
    from unsmooth.cli import main

    before, sys.argv, said = sys.argv, ["unsmooth", *map(str, words)], io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            main()
    except SystemExit as stop:
        if "Traceback" in said.getvalue():
            raise RuntimeError(said.getvalue()) from None
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    finally:
        sys.argv = before
    return 0
