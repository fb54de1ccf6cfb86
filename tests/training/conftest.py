"""A small labelled image set on disk, in the layouts that training reads."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from unsmooth.training.tasks.images.recipe import RECIPES, ImageRecipe

CLASSES, PER_CLASS, SIZE = 4, 12, 32


def make_images(per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Coloured noise whose mean colour tells the class; the channel means are about CIFAR-100's."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES), per_class)
    tint = np.array([[-25, 0, 25], [25, 0, -25], [-25, 25, 0], [25, -25, 0]])[labels]
    base = np.array([129, 124, 112]) + tint
    noise = rng.normal(0, 55, (len(labels), SIZE, SIZE, 3))
    order = rng.permutation(len(labels))
    pixels = np.clip(base[:, None, None, :] + noise, 0, 255).astype(np.uint8)
    return pixels[order], labels[order]


def write_parquet(folder: Path, split: str, pixels: np.ndarray, labels: np.ndarray, shards: int = 1) -> None:
    """HF layout: `img` with encoded bytes, `fine_label`, feature metadata with the class names."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    names = [f"class {c}" for c in range(CLASSES)]
    features = {
        "info": {"features": {"img": {"_type": "Image"}, "fine_label": {"names": names, "_type": "ClassLabel"}}}
    }
    metadata = {b"huggingface": json.dumps(features).encode()}
    for shard in range(shards):
        blobs = []
        for image in pixels[shard::shards]:
            file = io.BytesIO()
            Image.fromarray(image).save(file, "PNG")
            blobs.append({"bytes": file.getvalue(), "path": "image.png"})
        table = pa.table({"img": blobs, "fine_label": labels[shard::shards].tolist()})
        path = folder / f"{split}-{shard:05d}-of-{shards:05d}.parquet"
        pq.write_table(table.replace_schema_metadata(metadata), path)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parquet, 48 training and 16 test images of four classes."""
    folder = tmp_path_factory.mktemp("tiny")
    write_parquet(folder, "train", *make_images(PER_CLASS, 0), shards=2)
    write_parquet(folder, "test", *make_images(4, 1))
    return folder


TINY = [
    *("depth=2", "width=24", "heads=2", "patch_size=8", "classes=4", "train_images=0", "test_images=0"),
    *("epochs=4", "every=1", "batch_size=8", "warmup_epochs=1", "lr=1e-3", "metric_images=4", "precision=float32"),
]


@pytest.fixture(scope="session")
def tiny_recipe() -> ImageRecipe:
    """Two layers, width 24, six steps an epoch."""
    return RECIPES["cifar100-fast"].override(TINY)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
