"""The paper's pretrained ImageNet models: which weights, of which revision, and how images are made ready for them.

The paper names architectures (ViT-B and ViT-L of Dosovitskiy et al. 2020, DeiT-B of Touvron et al. 2021, DeiT3-L of
2022), not files. These are the checkpoints that timm gives under their names, at 224 px, fine-tuned or trained on
ImageNet-1k.
"""

from __future__ import annotations

from dataclasses import dataclass

from unsmooth.errors import CheckpointError, OptionError, first_line
from unsmooth.sources import load_model
from unsmooth.sources.loaded import IMAGENET_MEAN, IMAGENET_STD, ImageInput, LoadedModel

HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Pretrained:
    """A column of Tables 1 to 3 and Figure 4.

    `revision` is the hub's; `main` where no fixed one was known when this was written. `original` is the file that
    timm converted, `layers`, `width` and `heads` are what it must hold, `millions` its parameters.
    """

    column: str
    name: str
    revision: str
    original: str
    layers: int
    width: int
    heads: int
    millions: float
    images: ImageInput

    @property
    def source(self) -> str:
        """As `load_model` takes it: from the hub, with the revision."""
        return f"timm:hf-hub:timm/{self.name}@{self.revision}"

    @property
    def reference(self) -> str:
        """As `--model` takes it, under the published column's name."""
        return f"{self.column}={self.source}"


def _crop(mean: tuple[float, ...], std: tuple[float, ...]) -> ImageInput:
    return ImageInput(224, mean, std, "bicubic", 0.9)


PRETRAINED = (
    Pretrained(
        "ViT-B", "vit_base_patch16_224.augreg_in21k_ft_in1k", "b5b38b8f7dd93ce67d12e356a8771556b95c8cf9",
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.01-res_224.npz",
        12, 768, 12, 86.57, _crop(HALF, HALF),
    ),
    Pretrained(
        "DeiT-B", "deit_base_patch16_224.fb_in1k", "b78cc5532a69df6bcad9c3a8d76653fd20b31ac6",
        "deit_base_patch16_224-b5f2ef4d.pth", 12, 768, 12, 86.57, _crop(IMAGENET_MEAN, IMAGENET_STD),
    ),
    Pretrained(
        "ViT-L", "vit_large_patch16_224.augreg_in21k_ft_in1k", "0930ab3308b84cb2ae091a4a80703c459412a4c7",
        "L_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1--imagenet2012-steps_20k-lr_0.01-res_224.npz",
        24, 1024, 16, 304.33, _crop(HALF, HALF),
    ),
    Pretrained(
        "DeiT3-L", "deit3_large_patch16_224.fb_in1k", "main", "deit_3_large_224_1k.pth",
        24, 1024, 16, 304.37, _crop(IMAGENET_MEAN, IMAGENET_STD),
    ),
)  # fmt: skip
PUBLISHED = tuple(model.reference for model in PRETRAINED)


def spelled_out(models: tuple[str, ...]) -> tuple[str, ...]:
    """What `--model` was given, with the models that `published` stands for.

    >>> len(spelled_out(("published", "Mine=run.json")))
    5
    """
    return tuple(found for name in models for found in (PUBLISHED if name == "published" else (name,)))


def load_published(reference: str, device: str) -> LoadedModel:
    """`load_model`; for a published model that cannot be had, an error that says how to measure it elsewhere."""
    if reference == "published":
        said = (
            "`published` stands for ImageNet models of fig4, table1 to table3 and poster-table1: name a model instead"
        )
        raise OptionError(said)
    try:
        return check_published(load_model(reference, device=device))
    except CheckpointError as error:
        known = next((known for known in PRETRAINED if known.source == reference), None)
        if known is None or not isinstance(error.__cause__, OSError | RuntimeError):
            raise
        file = f"{known.column}.json"
        raise CheckpointError(
            f"{known.column} is neither in the local cache nor can it be fetched ({first_line(error.__cause__)}): "
            f"where the hub can be reached, `unsmooth measure {known.source} --points all --data IMAGES --out {file}`, "
            f"and here --model {known.column}={file}"
        ) from error


def check_published(loaded: LoadedModel) -> LoadedModel:
    """The model as it is; CheckpointError where one of the published ones is fed otherwise than is written here."""
    for known in PRETRAINED:
        if loaded.reference == known.source and loaded.images != known.images:
            raise CheckpointError(
                f"{loaded.reference} comes with {loaded.images}, not with the preprocessing of the published model, "
                f"{known.images}: its configuration on the hub was changed; name it with --model to measure it as it is"
            )
    return loaded
