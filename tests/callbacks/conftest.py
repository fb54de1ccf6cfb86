"""What tests with real trackers share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which every tracker keeps what it gets, and no network."""
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "TRACKIO_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("HF_HUB_OFFLINE", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny brings no database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    yield tmp_path
    # Both keep what they read from the environment for as long as the process lives; the next test has its own.
    if wandb := sys.modules.get("wandb"):
        wandb.teardown()
    if mlflow := sys.modules.get("mlflow"):
        mlflow.set_tracking_uri(None)
