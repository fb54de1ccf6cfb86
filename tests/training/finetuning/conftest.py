"""Pictures whose colour is their class, to fine-tune on."""

from __future__ import annotations

import pytest
import torch
from small_models import colour_folder, vit

from unsmooth.sources import ImageInput, LoadedModel
from unsmooth.training.finetuning import ImageJob
from unsmooth.training.finetuning.images import ImageSettings

CPU = torch.device("cpu")


@pytest.fixture(scope="session")
def job(tmp_path_factory: pytest.TempPathFactory) -> ImageJob:
    """Pictures whose colour is their class, and a small model."""
    data = colour_folder(tmp_path_factory.mktemp("data") / "colours", count=8)
    model = vit()
    model.reset_classifier(0)  # type: ignore[operator]
    loaded = LoadedModel(model.eval(), "tiny", "images", image_input=ImageInput(16))
    settings = ImageSettings(epochs=4, batch_size=6, lr=1e-3, head_lr=0.05, precision="float32")
    return ImageJob(loaded, data, settings, CPU)
