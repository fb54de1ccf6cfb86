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
from unsmooth.sources.loaded import IMAGENET_MEAN, IMAGENET_STD
from unsmooth.training.engine.recipe import Recipe
from unsmooth.training.engine.task import Optimisation

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
        | {"classes": 2, "batch_size": 2, "repeats": 1, "chunk": 1, "test_crop": 0.1}
    )
    SHARES: ClassVar[frozenset[str]] = frozenset(
        {
            "drop_path",
            "rand_augment_prob",
            "cutmix_share",
            "label_smoothing",
            "crop_area",
            "erase_prob",
            "mix_prob",
            "test_crop",
        }
    )
    LATER: ClassVar[frozenset[str]] = frozenset(
        {"crop_area", "rand_augment_increasing", "rand_augment_bicubic", "mix_prob", "erase_prob", "repeats", "pool"}
        | {"stream", "test_crop", "unreadable", "chunk", "positions"}
    )
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType(
        {
            **Recipe.CHOICES,
            "pool": ("token", "avg"),
            "positions": ("learned", "waves"),
            "unreadable": ("skip", "refuse"),
        }
    )

    # model: a timm name and what differs from it
    timm_name: str = "vit_tiny_patch16_224"
    image_size: int = 32
    patch_size: int = 2
    depth: int = 12
    width: int = 192
    heads: int = 3
    qkv_bias: bool = False
    pool: str = "token"  # or avg: without a class token
    positions: str = "learned"  # or waves: fixed sines and cosines of both coordinates
    classes: int = 100
    drop_path: float = 0.1
    # data: what loading checks; zero images means any number
    train_images: int = 50_000
    test_images: int = 10_000
    mean: tuple[float, float, float] = CIFAR100_MEAN
    std: tuple[float, float, float] = CIFAR100_STD
    stream: bool = False  # images of any size, read and cropped while training
    test_crop: float = 0.875  # of a stream: share of the scaled image that is evaluated
    unreadable: str = "skip"  # of a stream: another image is taken in its place, or the run ends
    chunk: int = 8  # of a stream: steps whose images are copied to the device together
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
        if self.positions == "waves" and self.width % 4:
            raise OptionError(f"waves of two coordinates need a width that is a multiple of 4, got {self.width}")
        if self.stream and not self.crop_area:
            raise OptionError("a stream holds images of any size: crop_area must be above 0")

    def open(self, run: Run, data: str | Path, device: torch.device, rank: int = 0, world: int = 1) -> ImageTask:
        """The images of the run's share and its model."""
        from unsmooth.training.tasks.images.stream import open_stream
        from unsmooth.training.tasks.images.task import open_task

        return (open_stream if self.stream else open_task)(self, run, data, device, rank, world)

    def write_results(self, folder: Path, data: str | Path, target: Path, **options: Any) -> None:
        """Evaluation, measurement and explanation of the model in a run's folder."""
        from unsmooth.training.tasks.images.results import write_results

        write_results(folder, data, target, **options)

    def check(self, run: Run, world: int = 1) -> None:
        """Image i is mixed with image n−1−i, so both must be in one process."""
        if world > 1 and self.batch_size % (2 * world):
            raise OptionError(f"batch_size {self.batch_size} does not divide into pairs among {world} processes")

    def standard(self) -> ImageRecipe:
        """The recipe of this name; for one of one's own, the paper's."""
        return RECIPES.get(self.name, RECIPES["cifar100"])

    @property
    def optimisation(self) -> Optimisation:
        """AdamW with the recipe's values."""
        return Optimisation(weight_decay=self.weight_decay, clip_norm=self.clip_norm, precision=self.precision)

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
        } | ({"global_pool": "avg", "class_token": False, "fc_norm": False} if self.pool == "avg" else {})


def cifar100() -> ImageRecipe:
    """Park & Kim (2022) on CIFAR-100, as the paper uses it: ViT-Ti with patch 2, 300 epochs, batch 96.

    `unsmooth train cifar100 --data PATH [--variant sharpening] [--fraction 0.1]`
    Time on one H200: up to a minute of compiling, then 6.2 ms a sharpening or smoothing step, 5.7 a plain one: 18
    minutes on all data, 9 on 50 %, 2 to 3 on 10 %. Accuracy to expect of plain, sharpening and smoothing:
    - all data: 67.53, 68.16, 65.75 % (one seed each)
    - 50 %: 57.33, 57.13, 55.30 % (one seed each)
    - 10 %: 32.79, 32.99, 28.48 % (9 seeds each)
    `unsmooth reproduce poster-table2` shows them beside the poster's, `variants` all others.
    """
    return ImageRecipe(name="cifar100")


def cifar100_fast() -> ImageRecipe:
    """The same with patch 4 (65 tokens), 50 epochs and a learning rate of 5e-4: for trying things, and for the study.

    `unsmooth train cifar100-fast --data PATH`
    On 10 % of the images these are 2,600 steps. A bare step took 3.2 ms on one H200 where patch 2 took 7.2, so a run is
    well under two minutes there. Accuracies are not the paper's: compare within the recipe.
    """
    return dataclasses.replace(cifar100(), name="cifar100-fast", patch_size=4, epochs=50, lr=5e-4, every=25)


def cifar100_small() -> ImageRecipe:
    """12 layers of width 64 and patch 8 (17 tokens), 16 epochs: for a CPU, on which the list `study` can be trained.

    `unsmooth train cifar100-small --data PATH --fraction 0.1`
    On 10 % of the images these are 1,600 steps, about a minute and a half on one core. Learning rate and batch fit so
    few steps, and nothing augments the images but crops and flips, for the models underfit. Accuracies (14 % or so)
    are far below those of the paper's model: compare within the recipe.
    """
    return dataclasses.replace(
        cifar100(), name="cifar100-small", patch_size=8, width=64, heads=2, epochs=16, batch_size=50, lr=2e-3,
        warmup_epochs=2, drop_path=0.0, rand_augment_layers=0, mix_prob=0.0, every=16,
    )  # fmt: skip


def of_depth(recipe: ImageRecipe, depth: int) -> ImageRecipe:
    """The same recipe for a model of another depth, under a name of its own.

    `unsmooth train cifar100-fast-depth24 --data PATH`
    """
    return dataclasses.replace(recipe, name=f"{recipe.name}-depth{depth}", depth=depth)


def tiny_imagenet() -> ImageRecipe:
    """ViT-S at 64 px with patch 8 (65 tokens) on Tiny-ImageNet, 100 epochs: a stand-in for the paper's ImageNet.

    `unsmooth train tiny-imagenet --data PATH [--variant sharpening]`
    Model and augmentation are DeiT's (Touvron et al., 2021, table 9: RandAugment 9 and 0.5, Mixup 0.8, CutMix 1, random
    erasing 0.25, label smoothing 0.1, stochastic depth 0.1, weight decay 0.05). What an hour of training less asks for
    is of Lee et al. (2021, arXiv 2112.13492; code SPT_LSA_ViT), who publish 57.1 % for a ViT of width 192 in 100 epochs
    on these images: 10 epochs of warm-up, half of the batches mixed. Their batch is 128; here 256: with 512, which
    halves the steps, plain ended at 44.3 % (learning rate 1e-3). The resized crop keeps at least 0.25 of an image that
    has 64 px (DeiT: 0.08 of one with 224), and no image is repeated in a batch: that costs two thirds of the images of
    an epoch. The learning rate was chosen between 5e-4 and 1e-3 by plain runs of 8 epochs. A sharpening step on an H200
    takes 10.7 ms: seven minutes for 100 epochs. docs/imagenet.md says what its runs reach.
    """
    return ImageRecipe(
        name="tiny-imagenet", timm_name="vit_small_patch16_224", image_size=64, patch_size=8, width=384, heads=6,
        qkv_bias=True, classes=200, train_images=100_000, mean=TINY_MEAN, std=TINY_STD, epochs=100, batch_size=256,
        lr=5e-4, warmup_epochs=10, clip_norm=1.0, every=20, crop_area=0.25, rand_augment_std=0.5,
        rand_augment_increasing=True, rand_augment_bicubic=True, mixup=0.8, cutmix=1.0, mix_prob=0.5, erase_prob=0.25,
    )  # fmt: skip


def imagenet() -> ImageRecipe:
    """DeiT-S/16 on ImageNet as the paper trains it: 300 epochs, batch 512.

    `unsmooth train imagenet --data PATH [--variant sharpening]`
    Values: Touvron et al. (2021, table 9) and the defaults of their code: learning rate 5e-4 for a batch of 512, weight
    decay 0.05, 5 epochs of warm-up, stochastic depth 0.1, label smoothing 0.1, RandAugment 9 and 0.5, Mixup 0.8, CutMix
    1, random erasing 0.25, three views of an image in a batch, no clipping. Published: 79.8 % (batch 1024). Here the
    rate starts at the first step of the warm-up and ends at 0, there at 1e-6 and 1e-5; a crop is decoded at a smaller
    scale where that is enough. docs/imagenet.md says what it takes; nobody has run it here.
    """
    return ImageRecipe(
        name="imagenet", timm_name="vit_small_patch16_224", image_size=224, patch_size=16, width=384, heads=6,
        qkv_bias=True, classes=1000, train_images=1_281_167, test_images=50_000, mean=IMAGENET_MEAN, std=IMAGENET_STD,
        stream=True, epochs=300, batch_size=512, lr=5e-4, warmup_epochs=5, clip_norm=0.0, crop_area=0.08, repeats=3,
        rand_augment_std=0.5, rand_augment_increasing=True, rand_augment_bicubic=True, mixup=0.8, cutmix=1.0,
        erase_prob=0.25, every=1,
    )  # fmt: skip


def imagenet_90() -> ImageRecipe:
    """A ViT-S/16 on ImageNet in 90 epochs by Beyer, Zhai and Kolesnikov (2022, arXiv 2205.01580), who report 76.5 %.

    `unsmooth train imagenet-90 --data PATH [--variant sharpening]`
    Values: their configuration in big_vision: batch 1024, learning rate 1e-3, weight decay 1e-4 apart from the rate
    (0.1 of it), clipping at 1, 10,000 steps of warm-up, positions as fixed waves, mean of all normalised tokens instead
    of a class token, Mixup 0.2, RandAugment 2 × 10 (without `inc1`: their 10 leaves solarising and posterising weak),
    crops of at least 0.05, nothing else. docs/imagenet.md says what differs. Nobody has run it here.
    """
    return dataclasses.replace(
        imagenet(), name="imagenet-90", pool="avg", positions="waves", epochs=90, batch_size=1024, lr=1e-3,
        weight_decay=0.1, warmup_epochs=8, clip_norm=1.0, crop_area=0.05, repeats=1, drop_path=0.0,
        rand_augment_magnitude=10.0, rand_augment_std=0.0, rand_augment_prob=1.0, rand_augment_increasing=False,
        mixup=0.2, cutmix=0.0, label_smoothing=0.0, erase_prob=0.0, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5),
    )  # fmt: skip


DEPTHS = (6, 24, 36)  # beside the paper's 12
RECIPES: Mapping[str, ImageRecipe] = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            cifar100(),
            cifar100_fast(),
            cifar100_small(),
            *(
                of_depth(recipe, depth)
                for recipe in (cifar100(), cifar100_fast(), cifar100_small())
                for depth in DEPTHS
            ),
            tiny_imagenet(),
            imagenet(),
            imagenet_90(),
        )
    }
)
