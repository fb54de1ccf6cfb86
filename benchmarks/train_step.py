"""Our training step against a plain eager timm-style loop, and reparametrised against plain; ratios in one run.

    python -m benchmarks.train_step                 # CPU: 4 layers, patch 8, batch 32, to see that it works
    python -m benchmarks.train_step --device cuda   # the recipe cifar100: patch 2, batch 96, compiled, one CUDA graph
    python -m benchmarks.train_step --device cuda --profile plain   # only that variant, and which kernels its step runs

The eager loop is what timm's train.py does: Pillow augmentation in DataLoader workers, timm's Mixup, autocast,
clipping, AdamW. Both loops train from the same weights; the mean losses of their epochs are printed side by side.
Targets on one H200: ≥ 4× the eager loop; a reparametrised step ≤ 1.2× the plain one. Images are random: no data needed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.clock import header, synchronize
from unsmooth.control import parameter_groups
from unsmooth.training import Recipe, Speed, Trainer, build_model, find_recipe
from unsmooth.training.augment import draw_epoch
from unsmooth.training.schedule import learning_rates
from unsmooth.training.step import autocast
from unsmooth.training.variants import apply_variant

WITHOUT = {  # one short cut less each
    "nothing fused": Speed(fused=False),
    "and PyTorch's attention": Speed(fused=False, attention=None),
    "and the whole last block": Speed(fused=False, attention=None, class_token=False),
}


class Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Labelled images through torchvision's and timm's transforms."""

    def __init__(self, pixels: Tensor, labels: Tensor, recipe: Recipe) -> None:
        from timm.data.auto_augment import rand_augment_transform
        from torchvision import transforms

        fill = tuple(min(255, round(255 * m)) for m in recipe.mean)
        self.pixels, self.labels = pixels, labels
        self.transform = transforms.Compose(
            [
                transforms.ToPILImage(),
                transforms.RandomCrop(recipe.image_size, recipe.crop_padding),
                transforms.RandomHorizontalFlip(),
                rand_augment_transform("rand-m9-n2-mstd1.0", {"img_mean": fill}),
                transforms.ToTensor(),
                transforms.Normalize(recipe.mean, recipe.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.pixels[index]), int(self.labels[index])


def eager_epochs(
    pixels: Tensor, labels: Tensor, recipe: Recipe, device: torch.device, workers: int
) -> Iterator[tuple[float, float]]:
    """Seconds per step and mean loss of each epoch of the eager loop."""
    from timm.data.mixup import Mixup

    model = build_model(recipe, 0).to(device).train()
    steps = len(labels) // recipe.batch_size
    rates = learning_rates(recipe, steps, recipe.epochs).tolist()
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), lr=recipe.lr)
    mix = Mixup(recipe.mixup, recipe.cutmix, label_smoothing=recipe.label_smoothing, num_classes=recipe.classes)
    loader = torch.utils.data.DataLoader(
        Pictures(pixels, labels, recipe), recipe.batch_size, shuffle=True, drop_last=True, num_workers=workers,
        pin_memory=device.type == "cuda", persistent_workers=workers > 0,
    )  # fmt: skip
    done = 0
    while True:
        start, total = time.perf_counter(), 0.0
        for x, y in loader:
            x, target = mix(x.to(device, non_blocking=True), y.to(device, non_blocking=True))
            for group in optimizer.param_groups:
                group["lr"] = rates[done]
            optimizer.zero_grad()
            with autocast(device, recipe.precision):
                loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
            optimizer.step()
            total += loss.item()
            done += 1
        yield (time.perf_counter() - start) / steps, total / steps


def our_epochs(
    pixels: Tensor, labels: Tensor, recipe: Recipe, device: torch.device, variant: str, speed: Speed
) -> Iterator[tuple[float, float]]:
    """The same of our loop."""
    return timed(our_trainer(pixels, labels, recipe, device, variant, speed))


def our_trainer(
    pixels: Tensor, labels: Tensor, recipe: Recipe, device: torch.device, variant: str, speed: Speed
) -> Trainer:
    """Our training step of a variant."""
    model = apply_variant(build_model(recipe, 0), variant).to(device)
    rates = learning_rates(recipe, len(labels) // recipe.batch_size, recipe.epochs)
    groups = parameter_groups(model, recipe.weight_decay)
    return Trainer(model, groups, pixels.to(device), labels.to(device), recipe, rates, speed)


def timed(trainer: Trainer) -> Iterator[tuple[float, float]]:
    """Seconds per step and mean loss of each epoch."""
    epoch = 0
    while True:
        plan = draw_epoch(len(trainer.labels), trainer.recipe, 0, epoch)
        synchronize(trainer.device)
        start = time.perf_counter()
        loss = float(trainer.run_epoch(plan, seed=epoch))
        yield (time.perf_counter() - start) / len(plan), loss
        epoch += 1


def best(epochs: Iterator[tuple[float, float]], count: int) -> tuple[float, list[float]]:
    """Milliseconds per step of the fastest epoch after the first (which compiles), and all mean losses."""
    found = [next(epochs) for _ in range(count + 1)]
    return 1e3 * min(seconds for seconds, _ in found[1:]), [round(loss, 3) for _, loss in found]


def profile(trainer: Trainer, most: int = 40) -> None:
    """Print the step's time, then the kernels of one epoch by what they take of a step."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    print(f"{best(timed(trainer), 2)[0]:.2f} ms a step", flush=True)
    plan = draw_epoch(len(trainer.labels), trainer.recipe, 0, 3)
    with record(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        float(trainer.run_epoch(plan, seed=3))
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    for row in rows[:most]:
        share = row.self_device_time_total / len(plan)
        print(f"{share:9.1f} µs {row.count / len(plan):6.1f} ×  {row.key[:100]}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--variants", nargs="*", default=["sharpening", "sharpening-split", "sharpening-eigen"])
    parser.add_argument("--epochs", type=int, default=2, help="timed epochs after the first")
    parser.add_argument("--shortcuts", action="store_true", help="also without each short cut of the plain step")
    parser.add_argument("--profile", metavar="VARIANT", help="only this: the kernels of its step")
    parser.add_argument("--workers", type=int, default=8, help="DataLoader workers of the eager loop")
    options = parser.parse_args()
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    recipe = find_recipe("cifar100")
    recipe = recipe if cuda else recipe.override(["patch_size=8", "batch_size=32", "depth=4"])
    images = 50 * recipe.batch_size if cuda else 4 * recipe.batch_size
    torch.manual_seed(0)
    pixels, labels = torch.randint(256, (images, 3, 32, 32), dtype=torch.uint8), torch.arange(images) % 100
    print(f"{recipe.depth} layers, patch {recipe.patch_size}, batch {recipe.batch_size}; {header(device)}", flush=True)
    if options.profile:
        profile(our_trainer(pixels, labels, recipe, device, options.profile, Speed()))
        return
    ours = run("ours, plain", lambda: our_epochs(pixels, labels, recipe, device, "plain", Speed()), options.epochs)
    workers = options.workers if cuda else 0
    eager = run("eager timm loop", lambda: eager_epochs(pixels, labels, recipe, device, workers), options.epochs)
    print(f"eager / ours: {eager / ours:.2f}×", flush=True)
    for name, speed in WITHOUT.items() if options.shortcuts else ():
        slow = run(name, lambda speed=speed: our_epochs(pixels, labels, recipe, device, "plain", speed), options.epochs)
        print(f"{name} / ours: {slow / ours:.3f}×", flush=True)
    for variant in options.variants:
        loop = lambda name=variant: our_epochs(pixels, labels, recipe, device, name, Speed())  # noqa: E731
        print(f"{variant} / plain: {run(variant, loop, options.epochs) / ours:.3f}×", flush=True)


def run(name: str, make: Callable[[], Iterator[tuple[float, float]]], epochs: int) -> float:
    """Milliseconds per step, printed with the losses."""
    ms, losses = best(make(), epochs)
    print(f"{name}: {ms:.2f} ms a step, mean loss by epoch {losses}", flush=True)
    return ms


if __name__ == "__main__":
    main()
