"""ViT-S at 224 px: the step alone, fed from JPEG files, and a loop like timm's train.py on the same files, in one run.

    python -m benchmarks.train_imagenet                    # CPU: 32 px, 2 layers, to see that it works
    python -m benchmarks.train_imagenet --device cuda      # the recipe imagenet, 2,048 files of 500 × 375; 100 s

Also how many images a second the workers alone decode, how many torchvision decodes on the GPU, and how long a batch's
augmentation takes: what limits training is the slower of decoding and the step. Each line is printed when it is known.
Targets on one H200 (16 cores): ≥ 8,000 images/s of the step alone, ≥ 2× the other loop.
"""

from __future__ import annotations

import argparse
import io
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from benchmarks.clock import header, synchronize, take_turns
from unsmooth.control import parameter_groups
from unsmooth.training import Speed, Trainer
from unsmooth.training.engine.precision import autocast
from unsmooth.training.tasks.images import RECIPES, ImageRecipe, build_model
from unsmooth.training.tasks.images.encoded import open_encoded
from unsmooth.training.tasks.images.reading import AHEAD, loader_of, workers_for
from unsmooth.training.tasks.images.stream import StreamTask

CLASSES = 8


def write_pictures(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Class folders of JPEGs as large as ImageNet's usually are (about 110 kB at 500 × 375)."""
    from PIL import Image

    rng, blobs = np.random.default_rng(0), []
    for _ in range(16):
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).resize(
            size, Image.Resampling.BICUBIC
        )
        grain = rng.normal(0, 12, (size[1], size[0], 3))
        file = io.BytesIO()
        Image.fromarray(np.clip(np.asarray(coarse) + grain, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        blobs.append(file.getvalue())
    for split, number in (("train", count), ("val", 4 * CLASSES)):
        for i in range(number):
            home = folder / split / f"class{i % CLASSES}"
            home.mkdir(parents=True, exist_ok=True)
            (home / f"{i}.JPEG").write_bytes(blobs[i % len(blobs)])
    print(f"files of {np.mean([len(b) for b in blobs]) / 1e3:.0f} kB", flush=True)


def ours(recipe: ImageRecipe, folder: Path, device: torch.device, chunks: int) -> Iterator[float]:
    """Images a second of the step alone (the same images again and again), then fed; the first chunk compiles.

    What the workers had made while the step ran alone is used up before the clock starts.
    """
    images, test = open_encoded(folder, "train"), open_encoded(folder, "test")
    task = StreamTask(recipe, build_model(recipe, 0).to(device), images, test)
    trainer, stream = Trainer(task, Speed()), task.stream(0)
    rows, rates = next(stream), task.rates(10_000)[: task.chunk]
    start = time.perf_counter()
    float(trainer.run_chunk(rows, rates, seed=0))
    print(f"compiled in {time.perf_counter() - start:.0f} s", flush=True)
    for alone in (True, False):
        for _ in range(0 if alone else -(-AHEAD * workers_for(device) // task.chunk)):
            next(stream)
        start = time.perf_counter()
        for number in range(chunks):
            loss = trainer.run_chunk(rows, rates, seed=number)
            rows = rows if alone else next(stream)
            float(loss)
        yield chunks * task.chunk * recipe.batch_size / (time.perf_counter() - start)


def augmented(recipe: ImageRecipe, folder: Path, device: torch.device, rounds: int = 10) -> float:
    """Milliseconds that preparing one decoded batch takes with the device to itself."""
    images, test = open_encoded(folder, "train"), open_encoded(folder, "test")
    task = StreamTask(recipe, build_model(recipe, 0).to(device), images, test, workers=0)
    part = task.steps[0]
    rows = {name: t.to(device) for name, t in part.items() if name != "unreadable"}
    prepare = torch.compile(task.prepare, dynamic=False, fullgraph=True) if device.type == "cuda" else task.prepare
    return 1e3 * take_turns({"prepare": lambda: prepare(rows)}, rounds, device)["prepare"]


def decoded(recipe: ImageRecipe, folder: Path, device: torch.device, steps: int) -> float:
    """Images a second that the workers read, decode and crop, with nothing else to do."""
    images, test = open_encoded(folder, "train"), open_encoded(folder, "test")
    task = StreamTask(recipe, build_model(recipe, 0).to(device), images, test)
    loader = loader_of(task.steps, range(1 << 20), task.workers)
    next(loader)
    start = time.perf_counter()
    for _ in itertools.islice(loader, steps):
        pass
    return steps * recipe.batch_size / (time.perf_counter() - start)


def decoded_on_gpu(folder: Path, device: torch.device, count: int = 512) -> float:
    """Images a second of torchvision's decoder on the GPU, whole images, 64 at a time."""
    from torchvision.io import ImageReadMode, decode_jpeg

    files = sorted((folder / "train").glob("*/*"))[:count]
    blobs = [torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8) for file in files]
    decode_jpeg(blobs[:64], mode=ImageReadMode.RGB, device=device)
    synchronize(device)
    start = time.perf_counter()
    for at in range(0, len(blobs), 64):
        decode_jpeg(blobs[at : at + 64], mode=ImageReadMode.RGB, device=device)
    synchronize(device)
    return len(blobs) / (time.perf_counter() - start)


def timm_loop(recipe: ImageRecipe, folder: Path, device: torch.device, workers: int) -> Iterator[float]:
    """Images a second of every step of a loop like timm's train.py: its transforms in workers, eager, autocast."""
    from timm.data import Mixup, create_transform
    from timm.loss import SoftTargetCrossEntropy
    from torchvision.datasets import ImageFolder

    transform = create_transform(
        recipe.image_size, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic",
        re_prob=recipe.erase_prob, re_mode="pixel", mean=recipe.mean, std=recipe.std,
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(
        ImageFolder(str(folder / "train"), transform), recipe.batch_size, shuffle=True, drop_last=True,
        num_workers=workers, pin_memory=device.type == "cuda", persistent_workers=workers > 0,
    )  # fmt: skip
    mix = Mixup(recipe.mixup, recipe.cutmix, label_smoothing=recipe.label_smoothing, num_classes=recipe.classes)
    model, criterion = build_model(recipe, 0).to(device).train(), SoftTargetCrossEntropy()
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.lr)
    while True:
        for x, y in loader:
            start = time.perf_counter()
            x, target = mix(x.to(device, non_blocking=True), y.to(device, non_blocking=True))
            with autocast(device, recipe.precision):
                loss = criterion(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e9)
            optimizer.step()
            synchronize(device)
            yield time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--chunks", type=int, default=8, help="timed chunks of 8 steps")
    options = parser.parse_args()
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    changes = [f"classes={CLASSES}", "train_images=0", "test_images=0", "metric_images=0", "repeats=1"]
    small = ["image_size=32", "depth=2", "width=48", "batch_size=16", "chunk=2"]
    recipe = RECIPES["imagenet"].override(changes + ([] if cuda else small))
    workers = workers_for(device)
    print(f"batch {recipe.batch_size}, {recipe.image_size} px, {workers} workers; {header(device)}", flush=True)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(folder, 2048 if cuda else 64, (500, 375) if cuda else (100, 75))
        rates = ours(recipe, folder, device, options.chunks)
        alone = next(rates)
        print(f"step alone: {alone:,.0f} images/s, {1e3 * recipe.batch_size / alone:.2f} ms a step", flush=True)
        fed = next(rates)
        print(f"fed from JPEG files: {fed:,.0f} images/s", flush=True)
        print(f"workers alone: {decoded(recipe, folder, device, 2 * max(1, workers)):,.0f} images/s", flush=True)
        if cuda:
            try:
                print(f"decoding on the GPU alone: {decoded_on_gpu(folder, device):,.0f} images/s", flush=True)
            except (RuntimeError, ImportError) as error:
                print(f"decoding on the GPU: not here ({error})", flush=True)
        print(f"augmentation alone: {augmented(recipe, folder, device):.2f} ms a step", flush=True)
        steps = timm_loop(recipe, folder, device, workers)
        next(steps)
        start = time.perf_counter()
        computed = sum(next(steps) for _ in range(2 * options.chunks))
        count, elapsed = 2 * options.chunks * recipe.batch_size, time.perf_counter() - start
        print(f"timm's loop: {count / elapsed:,.0f} images/s fed, {count / computed:,.0f} computed alone", flush=True)
        print(f"ours / timm's, fed: {fed * elapsed / count:.2f}×", flush=True)


if __name__ == "__main__":
    main()
