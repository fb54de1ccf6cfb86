"""Recipes of image classification: the paper's on CIFAR-100, and DeiT's on Tiny-ImageNet."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from unsmooth.errors import OptionError
from unsmooth.training.engine.recipe import Recipe

if TYPE_CHECKING:
    from unsmooth.training.engine.run import Run
    from unsmooth.training.tasks.images.task import ImageTask

CIFAR100_MEAN = (0.5071, 0.4865, 0.4409)
CIFAR100_STD = (0.2673, 0.2564, 0.2762)
TINY_MEAN = (0.4802, 0.4481, 0.3975)
TINY_STD = (0.2770, 0.2691, 0.2821)


@dataclass(frozen=True)
class ImageRecipe(Recipe):
    """A Vision Transformer of timm, its data, optimisation and augmentation."""

    LEAST: ClassVar[Mapping[str, float]] = MappingProxyType(
        dict.fromkeys(("image_size", "patch_size", "depth", "width", "heads", "epochs", "every"), 1)
        | {"classes": 2, "batch_size": 2, "repeats": 1}
    )
    SHARES: ClassVar[frozenset[str]] = frozenset(
        {"drop_path", "rand_augment_prob", "cutmix_share", "label_smoothing", "crop_area", "erase_prob", "mix_prob"}
    )
    LATER: ClassVar[frozenset[str]] = frozenset(
        {"crop_area", "rand_augment_increasing", "rand_augment_bicubic", "mix_prob", "erase_prob", "repeats"}
    )

    # model: a timm name and what differs from it
    timm_name: str = "vit_tiny_patch16_224"
    image_size: int = 32
    patch_size: int = 2
    depth: int = 12
    width: int = 192
    heads: int = 3
    qkv_bias: bool = False
    classes: int = 100
    drop_path: float = 0.1
    # data: what loading checks; zero images means any number
    train_images: int = 50_000
    test_images: int = 10_000
    mean: tuple[float, float, float] = CIFAR100_MEAN
    std: tuple[float, float, float] = CIFAR100_STD
    # optimisation
    epochs: int = 300
    batch_size: int = 96
    lr: float = 1.25e-4
    weight_decay: float = 0.05
    warmup_epochs: int = 5
    clip_norm: float = 5.0
    precision: str = "bf16"
    # augmentation
    crop_padding: int = 4
    crop_area: float = 0.0  # instead of the padded crop: one of at least this share of the image, resized
    repeats: int = 1  # of an image in a batch, each augmented on its own (Hoffer et al., 2020)
    flip: bool = True
    rand_augment_layers: int = 2
    rand_augment_magnitude: float = 9.0
    rand_augment_std: float = 1.0
    rand_augment_prob: float = 0.5
    rand_augment_increasing: bool = False  # timm's inc1: a higher level is always a stronger change
    rand_augment_bicubic: bool = False  # always; else bilinear half of the time
    mixup: float = 1.0
    cutmix: float = 0.8
    cutmix_share: float = 0.5
    mix_prob: float = 1.0  # share of the batches that are mixed
    erase_prob: float = 0.0  # share of the images that get a rectangle of noise (timm's mode `pixel`)
    label_smoothing: float = 0.1
    # what is written down
    every: int = 10
    metric_images: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.std) <= 0:
            raise OptionError(f"std must be positive in every channel, got {self.std}")
        if self.batch_size % 2:
            raise OptionError(f"batch_size must be even, since mixing pairs images; got {self.batch_size}")
        if self.image_size % self.patch_size:
            raise OptionError(f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}")
        if self.width % self.heads:
            raise OptionError(f"width {self.width} is not a multiple of heads {self.heads}")

    def open(self, run: Run, data: str | Path, device: torch.device, rank: int = 0, world: int = 1) -> ImageTask:
        """The images of the run's share and its model."""
        from unsmooth.training.tasks.images.task import open_task

        return open_task(self, run, data, device, rank, world)

    def write_results(self, folder: Path, data: str | Path, target: Path, **options: Any) -> None:
        """Evaluation, measurement and explanation of the model in a run's folder."""
        from unsmooth.training.tasks.images.results import write_results

        write_results(folder, data, target.parent, device=options.get("device", "cpu"))

    def check(self, run: Run, world: int = 1) -> None:
        """Image i is mixed with image n−1−i, so both must be in one process."""
        if world > 1 and self.batch_size % (2 * world):
            raise OptionError(f"batch_size {self.batch_size} does not divide into pairs among {world} processes")

    def standard(self) -> ImageRecipe:
        """The recipe of this name; for one of one's own, the paper's."""
        return RECIPES.get(self.name, RECIPES["cifar100"])

    @property
    def timm_arguments(self) -> dict[str, Any]:
        """What differs from the timm model's defaults."""
        return {
            "img_size": self.image_size,
            "patch_size": self.patch_size,
            "embed_dim": self.width,
            "depth": self.depth,
            "num_heads": self.heads,
            "qkv_bias": self.qkv_bias,
            "num_classes": self.classes,
        }


def cifar100() -> ImageRecipe:
    """Park & Kim (2022) on CIFAR-100, as the paper uses it: ViT-Ti with patch 2, 300 epochs, batch 96.

    `unsmooth train cifar100 --data PATH [--variant sharpening] [--fraction 0.1]`
    Time on one H200: up to a minute of compiling, then 6.2 ms a sharpening or smoothing step, 5.7 a plain one: 18
    minutes on all data, 9 on 50 %, 2 to 3 on 10 %. Accuracy to expect of plain, sharpening and smoothing:
    - all data: 67.53, 68.16, 65.75 % (one seed each)
    - 50 %: 57.33, 57.13, 55.30 % (one seed each)
    - 10 %: 32.79, 32.99, 28.20 % (6 to 9 seeds)
    `unsmooth reproduce poster-table2` shows them beside the poster's, `variants` all others.
    """
    return ImageRecipe(name="cifar100")


def cifar100_fast() -> ImageRecipe:
    """The same with patch 4 (65 tokens): for trying things; accuracies are lower and not the paper's.

    `unsmooth train cifar100-fast --data PATH`
    A bare step took 3.2 ms on one H200 where patch 2 took 7.2: about 8 minutes for 300 epochs on all data.
    No run of it was finished: its accuracy is not known.
    """
    return ImageRecipe(name="cifar100-fast", patch_size=4)


def cifar100_depth(depth: int) -> ImageRecipe:
    """The paper's recipe for a model of another depth, under a name of its own.

    `unsmooth train cifar100-depth24 --data PATH`
    """
    return dataclasses.replace(cifar100(), name=f"cifar100-depth{depth}", depth=depth)


def tiny_imagenet() -> ImageRecipe:
    """ViT-S at 64 px with patch 8 (65 tokens) on Tiny-ImageNet, 100 epochs: a stand-in for the paper's ImageNet.

    `unsmooth train tiny-imagenet --data PATH [--variant sharpening]`
    Model and augmentation are DeiT's (Touvron et al., 2021, table 9: RandAugment 9 and 0.5, Mixup 0.8, CutMix 1, random
    erasing 0.25, label smoothing 0.1, stochastic depth 0.1, weight decay 0.05). What an hour of training less asks for
    is of Lee et al. (2021, arXiv 2112.13492; code SPT_LSA_ViT), who publish 57.1 % for a ViT of width 192 in 100 epochs
    on these images: learning rate 1e-3, 10 epochs of warm-up, half of the batches mixed. Their batch is 128; here 512,
    which fills a GPU. The resized crop keeps at least 0.25 of an image that has 64 px (DeiT: 0.08 of one with 224), and
    no image is repeated in a batch: that costs two thirds of the images of an epoch.
    """
    return ImageRecipe(
        name="tiny-imagenet", timm_name="vit_small_patch16_224", image_size=64, patch_size=8, width=384, heads=6,
        qkv_bias=True, classes=200, train_images=100_000, mean=TINY_MEAN, std=TINY_STD, epochs=100, batch_size=512,
        lr=1e-3, warmup_epochs=10, clip_norm=1.0, crop_area=0.25, rand_augment_std=0.5, rand_augment_increasing=True,
        rand_augment_bicubic=True, mixup=0.8, cutmix=1.0, mix_prob=0.5, erase_prob=0.25,
    )  # fmt: skip


DEPTHS = (6, 24, 36)  # beside the paper's 12
RECIPES: Mapping[str, ImageRecipe] = MappingProxyType(
    {recipe.name: recipe for recipe in (cifar100(), cifar100_fast(), *map(cifar100_depth, DEPTHS), tiny_imagenet())}
)
