"""The generated parts of imagenet.md: the values of its recipes, what their runs reach, and what follows from that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from unsmooth.analysis import Attribution, load
from unsmooth.figures.text import listed
from unsmooth.metrics.differences import compare_seeds
from unsmooth.paper.columns import ColumnModels, missing
from unsmooth.paper.item import Table, Value
from unsmooth.paper.records import Summary
from unsmooth.training.tasks.images.recipe import RECIPES, ImageRecipe

LEE = 57.1  # % right on Tiny-ImageNet, Lee et al. (2021): a ViT of width 192 and 9 layers, 100 epochs
SOURCES = {
    "imagenet": ("DeiT (Touvron et al., 2021, table 9, and their code)", "79.8 % (batch 1024)"),
    "imagenet-90": ("Beyer et al. (2022), their big_vision configuration", "76.5 %"),
    "tiny-imagenet": (
        "DeiT; what 100 epochs need from Lee et al. (2021)",
        f"{LEE} % (another ViT: width 192, 9 layers)",
    ),
}
VALUES: dict[str, Callable[[ImageRecipe], str]] = {
    "epochs, batch": lambda r: f"{r.epochs}, {r.batch_size}",
    "learning rate, warm-up": lambda r: f"{_power(r.lr)}, {r.warmup_epochs} epochs",
    "weight decay, clipping": lambda r: f"{r.weight_decay:g}, {_or_none(r.clip_norm)}",
    "crop, at least": lambda r: f"{r.crop_area:g}",
    "RandAugment": lambda r: f"{r.rand_augment_layers} × {_strength(r)}, {_how_often(r.rand_augment_prob)}",
    "Mixup, CutMix": lambda r: f"{r.mixup:g}, {_or_none(r.cutmix)}" + _of_batches(r.mix_prob),
    "random erasing, label smoothing": lambda r: f"{_or_none(r.erase_prob)}, {_or_none(r.label_smoothing)}",
    "stochastic depth, views of an image in a batch": lambda r: f"{r.drop_path:g}, {r.repeats}",
    "head, positions": lambda r: f"{HEADS[r.pool]}, {POSITIONS[r.positions]}",
}
NAMES = tuple(SOURCES)
HEADS = {"token": "class token", "avg": "mean of the tokens"}
POSITIONS = {"learned": "learned", "waves": "fixed waves"}


def recipe_table(recipes: Sequence[ImageRecipe] = tuple(RECIPES[name] for name in NAMES)) -> Table:
    """The values of the recipes as they stand in the code."""
    sources = zip(*(SOURCES[recipe.name] for recipe in recipes), strict=True)
    rows: list[list[Value]] = [[title, *cells] for title, cells in zip(("source", "published"), sources, strict=True)]
    rows += [[title, *map(value, recipes)] for title, value in VALUES.items()]
    return Table("Recipes", ["", *(f"`{recipe.name}`" for recipe in recipes)], rows)


def _power(rate: float) -> str:
    return f"{rate:.2g}" if rate >= 0.01 else f"{rate:.1e}".replace(".0e", "e").replace("e-0", "e-")


def _or_none(value: float) -> str:
    return f"{value:g}" if value else "none"


def _strength(recipe: ImageRecipe) -> str:
    spread = f" ± {recipe.rand_augment_std:g}" if recipe.rand_augment_std else ""
    return f"{recipe.rand_augment_magnitude:g}{spread}"


def _how_often(share: float) -> str:
    return {1.0: "always", 0.5: "half of the time"}.get(share, f"in {100 * share:g} %")


def _of_batches(share: float) -> str:
    return {1.0: "", 0.5: ", half of the batches"}.get(share, f", {100 * share:g} % of the batches")


def runs_table(groups: Sequence[ColumnModels]) -> Table:
    """What the models reach, a line a variant."""
    rows: list[list[Value]] = []
    for group in groups:
        records = [kept.record for kept in group.models]
        right, minutes = Summary.of(_right(group)), Summary.of([record.minutes for record in records])
        assert right is not None
        assert minutes is not None
        rows.append([group.recipe, group.variant, right.show(".2f"), f"{minutes.mean:.1f}", records[0].hardware])
    return Table("What they reach", ["recipe", "variant", "test accuracy in %", "minutes", "on"], rows)


def _right(group: ColumnModels) -> list[float]:
    return [100 * kept.record.final["accuracy"] for kept in group.models]


def sentences(groups: Sequence[ColumnModels]) -> list[str]:
    """What the numbers say: against the published, of control, and of who changes the features."""
    said = []
    for recipe in dict.fromkeys(group.recipe for group in groups):
        here = {group.variant: group for group in groups if group.recipe == recipe}
        if recipe == "tiny-imagenet" and "plain" in here:
            right = Summary.of(_right(here["plain"]))
            assert right is not None
            gap = right.mean - LEE
            said.append(
                f"{recipe}, plain: {abs(gap):.1f} points {'above' if gap > 0 else 'below'} the {LEE} % that Lee et al. "
                "(2021) publish for another ViT on these images (width 192, 9 layers, 100 epochs with a batch of 128)"
            )
        said += _of_control(recipe, here)
        said += [text for group in here.values() if (text := _who(group))]
    lacking = [v for column, found in missing(groups).items() if column.data == "ImageNet" for v in found]
    return said + ([f"not run: {listed(lacking)}"] if lacking else [])


def _of_control(recipe: str, here: dict[str, ColumnModels]) -> list[str]:
    """The differences from plain, seed by seed; of one seed, how little they say."""
    seeds = {
        variant: {kept.record.seed: 100 * kept.record.final["accuracy"] for kept in group.models}
        for variant, group in here.items()
    }
    plain = seeds.pop("plain", {})
    found = [c for c in compare_seeds(plain, seeds) if c.difference.pairs]
    said = [f"{recipe}: {c.claim()}" for c in found if c.difference.pairs > 1]
    if points := [f"{c.name} {c.difference.mean:+.2f}" for c in found if c.difference.pairs == 1]:
        said.append(
            f"{recipe}, accuracy minus plain's in points, of one seed each: {listed(points)}; on 10,000 images an "
            "accuracy is uncertain by up to a point, and another seed adds to that"
        )
    return said


def _who(group: ColumnModels) -> str:
    """How ln HFC/LFC goes through the first of the models, and which parts change it most."""
    path = group.models[0].folder / "attribution.json"
    if not path.is_file():
        return ""
    found = load(path)
    assert isinstance(found, Attribution)
    shares = found.under()
    which = f", seed {group.models[0].record.seed}" if len(group.models) > 1 else ""
    parts = [f"{r['part']} of layer {r['layer']} ({r['mean']:+.2f})" for r in found.strongest(3).to_dict("records")]
    return (
        f"{group.recipe}, {group.variant}{which}: ln HFC/LFC goes from {shares.start.mean:.2f} after the embedding to "
        f"{shares.end.mean:.2f} after the last block; what changed it most: {listed(parts)}"
    )
