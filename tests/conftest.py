"""Where the tests find real data and real models, and what they say when these are absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

# Some virtual machines advertise AMX but cannot run it: a bfloat16 product would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the hub

import pytest
import torch
from hypothesis import settings
from perturbed import other_library

# The same examples every time: a test fails for a change, not for the day. UNSMOOTH_EXPLORE=1 draws new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
if not os.environ.get("UNSMOOTH_EXPLORE"):
    settings.load_profile("repeatable")

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("UNSMOOTH_DATA", ROOT.parent / "shared" / "data"))
MODELS = Path(os.environ.get("UNSMOOTH_MODELS", ROOT / ".models"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _library() -> Iterator[None]:
    """UNSMOOTH_PERTURB=1 imitates a linear algebra library that rounds otherwise; see tests/anywhere.py."""
    with other_library() if os.environ.get("UNSMOOTH_PERTURB") else nullcontext():
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, or a skip that says so."""
    if not SHARED.is_dir():
        pytest.skip(f"real data is not at {SHARED} (set UNSMOOTH_DATA)")
    return SHARED


@pytest.fixture(scope="session")
def real_models() -> Path:
    """The folder of real pretrained models, or a skip that says so."""
    if not MODELS.is_dir():
        pytest.skip(f"real models are not at {MODELS} (run `make models`, or set UNSMOOTH_MODELS)")
    return MODELS
