"""Our training step against a plain eager timm-style loop, with and without `fast`; ratios in one run.

    python -m benchmarks.train_step                 # CPU: 4 layers, patch 8, batch 32, to see that it works
    python -m benchmarks.train_step --device cuda --fast        # does training/fast pay, plain and sharpening? 90 s
    python -m benchmarks.train_step --device cuda   # the recipe cifar100 against the eager loop, and the variants
    python -m benchmarks.train_step --device cuda --profile plain   # only that variant, and which kernels its step runs
    python -m benchmarks.train_step --device cuda --recipe tiny-imagenet --ours   # without the eager loop
    python -m benchmarks.train_step --device cuda --steady 20     # its mean; started twice: two runs on one GPU

The eager loop is what timm's train.py does: Pillow augmentation in DataLoader workers, timm's Mixup, autocast,
clipping, AdamW. Both loops train from the same weights; the mean losses of their epochs are printed side by side.
Targets on one H200: ≥ 4× the eager loop; a reparametrised step ≤ 1.2× the plain one; `fast` stays where it pays
≥ 1.15×. Images are random: no data needed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.clock import header, synchronize
from unsmooth.control import Variant, parameter_groups
from unsmooth.training import Speed, Trainer
from unsmooth.training.engine.precision import autocast
from unsmooth.training.tasks.images import RECIPES, ImageRecipe, ImageSet, ImageTask, build_model, learning_rates

WITHOUT = {  # one short cut less each
    "nothing fused": Speed(shortcuts=("class_token", "tiled")),
    "and PyTorch's attention": Speed(shortcuts=("class_token",)),
    "and the whole last block": Speed(shortcuts=()),
}
PAYS = 1.15  # what `fast` must be worth to stay


class Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Labelled images through torchvision's and timm's transforms."""

    def __init__(self, pixels: Tensor, labels: Tensor, recipe: ImageRecipe) -> None:
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
    pixels: Tensor, labels: Tensor, recipe: ImageRecipe, device: torch.device, workers: int
) -> Iterator[tuple[float, float]]:
    """Seconds per step and mean loss of each epoch of the eager loop."""
    from timm.data.mixup import Mixup

    model = build_model(recipe, 0).to(device).train()
    steps = len(labels) // recipe.batch_size
    rates = learning_rates(recipe, steps * recipe.epochs).tolist()
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
    pixels: Tensor, labels: Tensor, recipe: ImageRecipe, device: torch.device, variant: str, speed: Speed
) -> Iterator[tuple[float, float]]:
    """The same of our loop."""
    return timed(our_trainer(pixels, labels, recipe, device, variant, speed))


def our_trainer(
    pixels: Tensor, labels: Tensor, recipe: ImageRecipe, device: torch.device, variant: str, speed: Speed
) -> Trainer:
    """Our training step of a variant."""
    model = Variant.parse(variant).apply(build_model(recipe, 0)).to(device)
    return Trainer(ImageTask(recipe, model, ImageSet(pixels, labels)), speed)


def timed(trainer: Trainer) -> Iterator[tuple[float, float]]:
    """Seconds per step and mean loss of each epoch."""
    task, stream = trainer.task, trainer.task.stream(0)
    for epoch, rates in enumerate(task.rates(task.total).split(task.chunk)):
        rows = next(stream)
        synchronize(trainer.device)
        start = time.perf_counter()
        loss = float(trainer.run_chunk(rows, rates, seed=epoch))
        yield (time.perf_counter() - start) / len(rates), loss


def steady(trainer: Trainer, seconds: float) -> tuple[float, int]:
    """Milliseconds per step in the second half of so many seconds after compiling, and how many steps these are."""
    epochs = timed(trainer)
    next(epochs)
    start, kept = time.perf_counter(), []
    for took, _ in epochs:
        since = time.perf_counter() - start
        if since > seconds / 2:
            kept.append(took)
        if since > seconds:
            break
    return 1e3 * sum(kept) / len(kept), len(kept) * trainer.task.chunk


def best(epochs: Iterator[tuple[float, float]], count: int) -> tuple[float, list[float]]:
    """Milliseconds per step of the fastest epoch after the first (which compiles), and all mean losses."""
    found = [next(epochs) for _ in range(count + 1)]
    return 1e3 * min(seconds for seconds, _ in found[1:]), [round(loss, 3) for _, loss in found]


def augmentation(pixels: Tensor, labels: Tensor, recipe: ImageRecipe, device: torch.device) -> float:
    """Milliseconds that preparing one batch takes with the device to itself; in training the next one is prepared
    beside a step."""
    task = our_trainer(pixels, labels, recipe, device, "plain", Speed()).task
    rows = {name: t[0].to(device) for name, t in next(task.stream(0)).items()}
    prepare = torch.compile(task.prepare, dynamic=False, fullgraph=True) if device.type == "cuda" else task.prepare
    prepare(rows)
    synchronize(device)
    start = time.perf_counter()
    for _ in range(10):
        prepare(rows)
    synchronize(device)
    return 1e2 * (time.perf_counter() - start)


def profile(trainer: Trainer, most: int = 40) -> None:
    """Print the step's time, then the kernels of one epoch by what they take of a step."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    print(f"{best(timed(trainer), 2)[0]:.2f} ms a step", flush=True)
    task = trainer.task
    rows, rates = next(task.stream(3 * task.chunk)), task.rates(task.total)[: task.chunk]
    with record(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        float(trainer.run_chunk(rows, rates, seed=3))
    kernels = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    for row in kernels[:most]:
        share = row.self_device_time_total / len(rates)
        print(f"{share:9.1f} µs {row.count / len(rates):6.1f} ×  {row.key[:100]}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--variants", nargs="*", default=["sharpening", "sharpening-split", "sharpening-eigen"])
    parser.add_argument("--epochs", type=int, default=2, help="timed epochs after the first")
    parser.add_argument("--fast", nargs="*", metavar="VARIANT", help="only this: what training/fast is worth")
    parser.add_argument("--shortcuts", action="store_true", help="also without each short cut of the plain step")
    parser.add_argument("--profile", metavar="VARIANT", help="only this: the kernels of its step")
    parser.add_argument("--steady", type=float, metavar="SECONDS", help="only this: the plain step's mean over a while")
    parser.add_argument("--recipe", default="cifar100", choices=sorted(RECIPES))
    parser.add_argument("--ours", action="store_true", help="not the eager loop; also what augmentation alone takes")
    parser.add_argument("--workers", type=int, default=8, help="DataLoader workers of the eager loop")
    options = parser.parse_args()
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    recipe = RECIPES[options.recipe]
    recipe = recipe if cuda else recipe.override(["patch_size=8", "batch_size=32", "depth=4"])
    images = 50 * recipe.batch_size if cuda else 4 * recipe.batch_size
    torch.manual_seed(0)
    size = recipe.image_size
    pixels = torch.randint(256, (images, 3, size, size), dtype=torch.uint8)
    labels = torch.arange(images) % recipe.classes
    print(f"{recipe.depth} layers, patch {recipe.patch_size}, batch {recipe.batch_size}; {header(device)}", flush=True)
    if options.profile:
        profile(our_trainer(pixels, labels, recipe, device, options.profile, Speed()))
        return
    if options.steady:
        took, count = steady(our_trainer(pixels, labels, recipe, device, "plain", Speed()), options.steady)
        print(f"{took:.2f} ms a step, mean of {count}", flush=True)
        return
    if options.fast is not None:
        for variant in options.fast or ("plain", "sharpening"):
            what_fast_is_worth(variant, pixels, labels, recipe, device, options.epochs)
        return
    ours = run("ours, plain", lambda: our_epochs(pixels, labels, recipe, device, "plain", Speed()), options.epochs)
    print(f"{1e3 * recipe.batch_size / ours:,.0f} images/s", flush=True)
    if options.ours:
        print(f"augmentation alone: {augmentation(pixels, labels, recipe, device):.2f} ms a step", flush=True)
    else:
        workers = options.workers if cuda else 0
        eager = run("eager timm loop", lambda: eager_epochs(pixels, labels, recipe, device, workers), options.epochs)
        print(f"eager / ours: {eager / ours:.2f}×", flush=True)
    for name, speed in WITHOUT.items() if options.shortcuts else ():
        slow = run(name, lambda speed=speed: our_epochs(pixels, labels, recipe, device, "plain", speed), options.epochs)
        print(f"{name} / ours: {slow / ours:.3f}×", flush=True)
    for variant in options.variants:
        loop = lambda name=variant: our_epochs(pixels, labels, recipe, device, name, Speed())  # noqa: E731
        print(f"{variant} / plain: {run(variant, loop, options.epochs) / ours:.3f}×", flush=True)


def what_fast_is_worth(
    variant: str, pixels: Tensor, labels: Tensor, recipe: ImageRecipe, device: torch.device, epochs: int
) -> None:
    """A step without any of training/fast over one with all of it, both compiled and captured, epochs in turns."""
    both = {
        name: our_epochs(pixels, labels, recipe, device, variant, speed)
        for name, speed in (("with", Speed()), ("without", Speed(shortcuts=())))
    }
    for loop in both.values():
        next(loop)  # compiles
    seconds = {name: float("inf") for name in both}
    for _ in range(epochs):
        for name, loop in both.items():
            seconds[name] = min(seconds[name], next(loop)[0])
    ratio = seconds["without"] / seconds["with"]
    shown = ", ".join(f"{name} fast {1e3 * value:.2f} ms a step" for name, value in seconds.items())
    print(
        f"{variant}: {shown}; fast on/off {ratio:.3f}× ({'pays' if ratio >= PAYS else 'does not pay'}: {PAYS}×)",
        flush=True,
    )


def run(name: str, make: Callable[[], Iterator[tuple[float, float]]], epochs: int) -> float:
    """Milliseconds per step, printed with the losses."""
    ms, losses = best(make(), epochs)
    print(f"{name}: {ms:.2f} ms a step, mean loss by epoch {losses}", flush=True)
    return ms


if __name__ == "__main__":
    main()
