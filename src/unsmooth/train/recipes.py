"""Recipes: typed, frozen configurations; changing one is strict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from unsmooth.errors import OptionError

PRECISIONS = ("float32", "bf16")
CIFAR100_MEAN = (0.5071, 0.4865, 0.4409)
CIFAR100_STD = (0.2673, 0.2564, 0.2762)


# Values that no run can have are refused before anything is loaded; what is not named here is at least 0.
AT_LEAST = MappingProxyType(
    dict.fromkeys(("image_size", "patch_size", "depth", "width", "heads", "epochs", "every"), 1)
    | {"classes": 2, "batch_size": 2}
)
SHARES = frozenset({"drop_path", "rand_augment_prob", "cutmix_share", "label_smoothing"})


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a training run, except its data, its variant and its seed."""

    name: str
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
    precision: str = field(default="bf16", metadata={"choices": PRECISIONS})
    # augmentation
    crop_padding: int = 4
    flip: bool = True
    rand_augment_layers: int = 2
    rand_augment_magnitude: float = 9.0
    rand_augment_std: float = 1.0
    rand_augment_prob: float = 0.5
    mixup: float = 1.0
    cutmix: float = 0.8
    cutmix_share: float = 0.5
    label_smoothing: float = 0.1
    # what is written down
    every: int = 10
    metric_images: int = 256

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            if item.default is not dataclasses.MISSING and not _fits(getattr(self, item.name), item.default):
                raise _wrong_type(item.name, getattr(self, item.name), item.default)
            choices = item.metadata.get("choices")
            if choices and getattr(self, item.name) not in choices:
                raise OptionError.unknown(item.name, getattr(self, item.name), choices)
            _check_range(item.name, getattr(self, item.name))
        if self.batch_size % 2:
            raise OptionError(f"batch_size must be even, since mixing pairs images; got {self.batch_size}")
        if self.image_size % self.patch_size:
            raise OptionError(f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}")
        if self.width % self.heads:
            raise OptionError(f"width {self.width} is not a multiple of heads {self.heads}")

    def override(self, changes: Mapping[str, str] | Iterable[str]) -> Recipe:
        """The same recipe with `key=value` changes; an unknown key or a value of another type is an error.

        Of two changes of one key the later one counts.

        >>> RECIPES["cifar100"].override(["lr=3e-4"]).lr
        0.0003
        """
        pairs = changes.items() if isinstance(changes, Mapping) else (_split(item) for item in changes)
        fields = {item.name: item for item in dataclasses.fields(self) if item.name != "name"}
        values: dict[str, Any] = {}
        for key, text in pairs:
            if key not in fields:
                raise OptionError.unknown("recipe key", key, fields)
            values[key] = _parse(key, text, getattr(self, key))
        return dataclasses.replace(self, **values)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for records and configuration files."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in dataclasses.asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe that `as_dict` wrote; keys of a later version are refused by name."""
        known = {item.name for item in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise OptionError.unknown("recipe key", unknown[0], sorted(known))
        if "name" not in values:
            raise OptionError(f"a recipe needs its name: got only {', '.join(sorted(values)) or 'nothing'}")
        plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**plain)


def _fits(value: Any, standard: Any) -> bool:
    """Whether a value has the type of the standard one; whole numbers are numbers, infinity and truth are none."""
    if isinstance(standard, tuple):
        return isinstance(value, tuple) and len(value) == len(standard) and all(map(_fits, value, standard))
    if isinstance(standard, float):
        return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)
    return type(value) is type(standard)


def _wrong_type(key: str, value: Any, standard: Any) -> OptionError:
    wanted = f"{len(standard)} numbers a,b,c" if isinstance(standard, tuple) else type(standard).__name__
    return OptionError(f"{key}={value!r} is not of the right type: expected {wanted}, as in {standard!r}")


def _check_range(key: str, value: Any) -> None:
    if isinstance(value, str | bool):
        return
    if isinstance(value, tuple):
        if key == "std" and min(value) <= 0:
            raise OptionError(f"std must be positive in every channel, got {value}")
        return
    low = AT_LEAST.get(key, 0)
    if value < low:
        raise OptionError(f"{key} must be at least {low}, got {value}")
    if key in SHARES and value > 1:
        raise OptionError(f"{key} must lie in [0, 1], got {value}")


def _split(item: str) -> tuple[str, str]:
    key, separator, value = item.partition("=")
    if not separator:
        raise OptionError(f"expected key=value, got {item!r}: for example --set lr=3e-4")
    return key.strip(), value.strip()


def _parse(key: str, text: str, old: Any) -> Any:
    """`text` as the type that the recipe's value has; integers may be written 1e3, never 1.5."""
    kind = type(old)
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        if kind is str:
            return text
        if kind is tuple:
            values = tuple(float(part) for part in text.split(","))
            if len(values) != len(old) or not all(map(math.isfinite, values)):
                raise ValueError
            return values
        number = float(text)
        if not math.isfinite(number) or (kind is int and number != int(number)):
            raise ValueError
        return kind(number)
    except (KeyError, ValueError):
        raise _wrong_type(key, text, old) from None


def cifar100() -> Recipe:
    """Park & Kim (2022) on CIFAR-100, as the paper uses it: ViT-Ti with patch 2, 300 epochs, batch 96.

    `unsmooth train cifar100 --data PATH [--variant sharpening] [--fraction 0.1]`
    Time on one H200: up to a minute of compiling, then 6.2 ms a sharpening or smoothing step, 5.7 a plain one: 18
    minutes on all data, 9 on 50 %, 2 to 3 on 10 %. Accuracy to expect of plain, sharpening and smoothing: 67.53, 68.16
    and 65.75 % on all data, 57.33, 57.13 and 55.30 % on 50 % (one seed each), 32.79, 32.99 and 28.20 % on 10 %
    (nine seeds, six of smoothing).
    `unsmooth reproduce poster-table2` shows them beside the poster's, `variants` all others.
    """
    return Recipe(name="cifar100")


def cifar100_fast() -> Recipe:
    """The same with patch 4 (65 tokens): for trying things; accuracies are lower and not the paper's.

    `unsmooth train cifar100-fast --data PATH`
    A bare step took 3.2 ms on one H200 where patch 2 took 7.2: about 8 minutes for 300 epochs on all data.
    No run of it was finished: its accuracy is not known.
    """
    return Recipe(name="cifar100-fast", patch_size=4)


def cifar100_depth(depth: int) -> Recipe:
    """The paper's recipe for a model of another depth, under a name of its own.

    `unsmooth train cifar100-depth24 --data PATH`
    """
    return dataclasses.replace(cifar100(), name=f"cifar100-depth{depth}", depth=depth)


DEPTHS = (6, 24, 36)  # beside the paper's 12
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {recipe.name: recipe for recipe in (cifar100(), cifar100_fast(), *map(cifar100_depth, DEPTHS))}
)


def find_recipe(name: str) -> Recipe:
    """The recipe of this name."""
    if name not in RECIPES:
        raise OptionError.unknown("recipe", name, RECIPES)
    return RECIPES[name]
