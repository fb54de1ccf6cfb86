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

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("UNSMOOTH_DATA", ROOT.parent / "shared" / "data"))
MODELS = Path(os.environ.get("UNSMOOTH_MODELS", ROOT / ".models"))


def pytest_configure(config: pytest.Config) -> None:
    """The same examples every time: a test fails for a change, not for the day. UNSMOOTH_EXPLORE=1 draws new ones."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return  # this process only hands tests out, and need not spend seconds on importing
    from hypothesis import settings

    settings.register_profile("repeatable", derandomize=True, deadline=None)
    if not os.environ.get("UNSMOOTH_EXPLORE"):
        settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of every family first: one worker then has them all, and imports and builds the families once."""
    items.sort(key=lambda item: not hasattr(getattr(item, "module", None), "Case"))


@pytest.fixture(autouse=True)
def _seeded(_seeds: None) -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _seeds() -> Iterator[None]:
    """Without a GPU, torch keeps the stack of every `manual_seed` for one that may come: milliseconds each time."""
    import torch

    with pytest.MonkeyPatch.context() as patch:
        for library in (torch.cuda, torch.xpu):
            if not library.is_available():
                patch.setattr(library, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _library() -> Iterator[None]:
    """UNSMOOTH_PERTURB=1 imitates a linear algebra library that rounds otherwise; see tests/anywhere.py."""
    from perturbed import other_library

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
