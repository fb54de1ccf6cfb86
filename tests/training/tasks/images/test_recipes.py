"""Recipes are typed, frozen and strict."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from unsmooth.errors import OptionError
from unsmooth.training import Run, find_recipe
from unsmooth.training.tasks.images.recipe import RECIPES, ImageRecipe, cifar100, cifar100_fast, cifar100_small
from unsmooth.training.tasks.images.task import epochs_of, learning_rates


def test_the_paper_recipe_is_park_and_kims() -> None:
    r = find_recipe("cifar100")
    assert (r.image_size, r.patch_size, r.depth, r.width, r.heads, r.qkv_bias) == (32, 2, 12, 192, 3, False)
    assert (r.epochs, r.batch_size, r.lr, r.weight_decay, r.warmup_epochs, r.clip_norm) == (
        300, 96, 1.25e-4, 0.05, 5, 5.0,
    )  # fmt: skip
    assert (r.rand_augment_magnitude, r.rand_augment_layers, r.rand_augment_std) == (9, 2, 1.0)
    assert (r.mixup, r.cutmix, r.label_smoothing, r.drop_path, r.precision) == (1.0, 0.8, 0.1, 0.1, "bf16")
    assert (r.crop_padding, r.flip, r.rand_augment_prob, r.cutmix_share) == (4, True, 0.5, 0.5)
    assert (r.timm_name, r.classes, r.train_images, r.test_images) == ("vit_tiny_patch16_224", 100, 50_000, 10_000)
    assert (r.mean, r.std) == ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))  # of CIFAR-100's training images
    own = {"name": "cifar100", "patch_size": 2, "epochs": 300, "lr": 1.25e-4, "every": 10}
    assert dataclasses.replace(find_recipe("cifar100-fast"), **own) == r
    deep = find_recipe("cifar100-fast-depth24")
    assert dataclasses.replace(deep, name="cifar100-fast", depth=12) == find_recipe("cifar100-fast")


def test_an_unknown_key_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(OptionError, match=r"unknown recipe key 'learning_rate'.*'lr'.*'mixup'"):
        find_recipe("cifar100").override(["learning_rate=1"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lr=fast", r"lr='fast'.*expected float"),
        ("epochs=1.5", r"epochs='1.5'.*expected int"),
        ("lr=nan", r"expected float"),
        ("flip=perhaps", r"expected bool"),
        ("mean=0.5,0.5", r"expected 3 numbers"),
        ("mean=nan,0.5,0.5", r"expected 3 numbers"),
        ("std=inf,0.5,0.5", r"expected 3 numbers"),
        ("precision=fp8", r"unknown precision 'fp8'.*'float32', 'bf16'"),
        ("batch_size=7", r"batch_size must be even"),
        ("patch_size=5", r"not a multiple"),
        ("patch_size=0", r"patch_size must be at least 1, got 0"),
        ("heads=5", r"width 192 is not a multiple of heads 5"),
        ("lr=-1", r"lr must be at least 0, got -1"),
        ("metric_images=-1", r"metric_images must be at least 0"),
        ("drop_path=1.5", r"drop_path must lie in \[0, 1\], got 1.5"),
        ("std=0.2,0,0.2", r"std must be positive in every channel"),
        ("lr", r"expected key=value"),
        ("name=other", r"unknown recipe key 'name'"),
    ],
)
def test_a_wrong_value_is_refused(change: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        find_recipe("cifar100").override([change])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": "3e-4"}, r"lr='3e-4' is not of the right type: expected float, as in 0.000125"),
        ({"lr": float("nan")}, r"lr=nan is not of the right type: expected float"),
        ({"lr": True}, r"lr=True is not of the right type"),
        ({"epochs": 2.0}, r"epochs=2.0 is not of the right type: expected int, as in 300"),
        ({"epochs": True}, r"epochs=True is not of the right type"),
        ({"flip": 1}, r"flip=1 is not of the right type: expected bool"),
        ({"mean": "x"}, r"mean='x' is not of the right type: expected 3 numbers a,b,c"),
        ({"std": (0.5, 0.5)}, r"std=\(0.5, 0.5\) is not of the right type: expected 3 numbers"),
        ({"mean": (0.5, 0.5, float("inf"))}, r"expected 3 numbers"),
    ],
)
def test_a_recipe_made_in_python_is_as_strict(values: dict[str, object], message: str) -> None:
    """Not after an epoch, and not when a configuration that somebody edited is read again."""
    with pytest.raises(OptionError, match=message):
        ImageRecipe("mine", **values)
    with pytest.raises(OptionError, match=message):
        ImageRecipe.from_dict({**find_recipe("cifar100").as_dict(), **values})


def test_a_name_is_text() -> None:
    """A configuration that was edited ended in a TypeError."""
    with pytest.raises(OptionError, match=r"name=\{'a': 1\} is not of the right type: expected str"):
        ImageRecipe.from_dict({**find_recipe("cifar100").as_dict(), "name": {"a": 1}})


def test_whole_numbers_are_numbers_and_of_two_changes_the_later_counts() -> None:
    assert ImageRecipe("mine", lr=1, mean=(0, 1, 0)).lr == 1
    assert find_recipe("cifar100").override(["lr=1e-3", "lr=2e-3"]).lr == 2e-3


LEAST = {
    **dict.fromkeys(("image_size", "patch_size", "depth", "width", "heads", "epochs", "every"), 1),
    "classes": 2,
    "batch_size": 2,
    "lr": 0,
    "clip_norm": 0,
    "warmup_epochs": 0,
    "label_smoothing": 0,
}


def test_the_least_values_are_allowed_and_nothing_below_them() -> None:
    least = ImageRecipe("least", **LEAST)
    for key, low in LEAST.items():
        with pytest.raises(OptionError, match=f"{key} must be at least {low}, got {low - 1}"):
            least.override([f"{key}={low - 1}"])


@pytest.mark.parametrize("key", ["drop_path", "rand_augment_prob", "cutmix_share", "label_smoothing"])
def test_a_share_may_be_all_and_not_more(key: str) -> None:
    assert getattr(find_recipe("cifar100").override([f"{key}=1"]), key) == 1
    with pytest.raises(OptionError, match=rf"{key} must lie in \[0, 1\], got 1.01"):
        find_recipe("cifar100").override([f"{key}=1.01"])


@pytest.mark.parametrize(
    ("text", "value"), [("yes", True), ("TRUE", True), ("1", True), ("no", False), ("0", False), ("false", False)]
)
def test_a_switch_is_said_in_words_or_numbers(text: str, value: bool) -> None:
    assert find_recipe("cifar100").override([f" flip = {text} "]).flip is value


def test_overrides_keep_the_type_and_leave_the_original_alone() -> None:
    changed = find_recipe("cifar100").override({"epochs": "3e1", "flip": "no", "mean": "0.1,0.2,0.3"})
    assert (changed.epochs, changed.flip, changed.mean) == (30, False, (0.1, 0.2, 0.3))
    assert find_recipe("cifar100").epochs == 300
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.epochs = 5  # type: ignore[misc]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_its_dictionary(name: str) -> None:
    assert ImageRecipe.from_dict(RECIPES[name].as_dict()) == RECIPES[name]
    with pytest.raises(OptionError, match="unknown recipe key 'tomorrow'"):
        ImageRecipe.from_dict({**RECIPES[name].as_dict(), "tomorrow": 1})
    with pytest.raises(OptionError, match="a recipe needs its name: got only lr"):
        ImageRecipe.from_dict({"lr": 1.0})


def test_an_unknown_recipe_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match="unknown recipe 'cifar10'.*'cifar100', 'cifar100-fast'"):
        find_recipe("cifar10")


def test_the_imagenet_recipes_are_deits_and_big_visions() -> None:
    r = find_recipe("imagenet")
    assert (r.image_size, r.patch_size, r.depth, r.width, r.heads, r.qkv_bias) == (224, 16, 12, 384, 6, True)
    assert (r.epochs, r.batch_size, r.lr, r.weight_decay, r.warmup_epochs, r.clip_norm) == (300, 512, 5e-4, 0.05, 5, 0)
    assert (r.rand_augment_magnitude, r.rand_augment_layers, r.rand_augment_std) == (9, 2, 0.5)
    assert (r.mixup, r.cutmix, r.cutmix_share, r.mix_prob, r.label_smoothing, r.drop_path) == (0.8, 1, 0.5, 1, 0.1, 0.1)
    assert (r.erase_prob, r.repeats, r.crop_area, r.test_crop) == (0.25, 3, 0.08, 0.875)
    assert (r.classes, r.train_images, r.test_images) == (1000, 1_281_167, 50_000)
    short = find_recipe("imagenet-90")
    assert (short.epochs, short.batch_size, short.lr, short.clip_norm, short.pool) == (90, 1024, 1e-3, 1, "avg")
    assert short.lr * short.weight_decay == pytest.approx(1e-4)  # big_vision's is apart from the rate
    assert short.warmup_epochs * 1_281_167 / 1024 == pytest.approx(10_000, rel=0.01)
    assert (short.mixup, short.cutmix, short.rand_augment_magnitude, short.drop_path) == (0.2, 0, 10, 0)
    assert (short.rand_augment_increasing, short.rand_augment_prob, short.rand_augment_std) == (False, 1, 0)
    assert (short.positions, short.crop_area, short.erase_prob, short.label_smoothing) == ("waves", 0.05, 0, 0)


def test_what_a_recipe_has_more_than_before_is_written_only_where_it_is_used() -> None:
    assert "erase_prob" not in find_recipe("cifar100").as_dict()
    tiny = find_recipe("tiny-imagenet")
    assert tiny.as_dict()["erase_prob"] == 0.25
    assert ImageRecipe.from_dict(tiny.as_dict()) == tiny
    assert ImageRecipe.from_dict(find_recipe("cifar100").as_dict()) == find_recipe("cifar100")


def test_the_rate_warms_up_then_falls_to_zero() -> None:
    rates = learning_rates(find_recipe("cifar100"), 3000)
    assert len(rates) == 3000
    assert rates[49] == pytest.approx(1.25e-4)
    assert (rates[:50].diff() > 0).all()
    assert (rates[50:].diff() <= 0).all()
    assert rates[-1] < 1e-3 * rates.max()
    middle = 50 + (3000 - 50) // 2
    assert rates[middle] == pytest.approx(1.25e-4 / 2, rel=1e-3)


def test_a_run_of_other_length_warms_up_to_the_same_rate_and_not_beyond() -> None:
    """429 epochs of 7 steps warm up for 5/300 of them: 50.05 steps."""
    rates = learning_rates(find_recipe("cifar100"), 7 * 429)
    assert float(rates.max()) == pytest.approx(1.25e-4, rel=1e-6)
    assert int(rates.argmax()) == 49


def test_the_command_of_a_run_names_what_differs() -> None:
    run = Run(find_recipe("cifar100").override(["lr=0.001", "mean=0.5,0.5,0.5"]), "smoothing", 3, 0.1, std=0.2)
    assert run.command() == (
        "unsmooth train cifar100 --variant smoothing --seed 3 --fraction 0.1 --std 0.2 "
        "--set mean=0.5,0.5,0.5 --set lr=0.001 --data PATH"
    )


def test_the_command_of_a_recipe_of_ones_own_says_how_it_differs_from_the_papers() -> None:
    run = Run(ImageRecipe("mine", patch_size=4, lr=0.001))
    wanted = "unsmooth train cifar100 --variant plain --seed 0 --set patch_size=4 --set lr=0.001 --data PATH"
    assert run.command() == wanted


def test_another_subset_is_in_name_command_and_state() -> None:
    run = Run(find_recipe("cifar100"), fraction=0.1, subset=1)
    assert run.name == "cifar100-10pct-subset1-plain-seed0"
    assert run.command() == "unsmooth train cifar100 --variant plain --seed 0 --fraction 0.1 --subset 1 --data PATH"
    assert run.state()["subset"] == 1


@pytest.mark.parametrize("depth", [6, 24, 36])
def test_a_depth_has_a_recipe_of_its_own(depth: int) -> None:
    run = Run(find_recipe(f"cifar100-depth{depth}"), fraction=0.1)
    assert dataclasses.replace(run.recipe, name="cifar100", depth=12) == find_recipe("cifar100")
    assert run.name == f"cifar100-depth{depth}-10pct-plain-seed0"
    assert run.command().startswith(f"unsmooth train cifar100-depth{depth} --variant plain --seed 0 --fraction 0.1")


def test_the_command_of_a_run_keeps_every_digit() -> None:
    run = Run(find_recipe("cifar100"), "smoothing", fraction=0.333333333, std=0.123456789)
    assert "--fraction 0.333333333 --std 0.123456789" in run.command()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fraction": 0.0, "same_steps": True}, r"fraction must lie in \(0, 1\], got 0"),
        ({"variant": "plain", "std": 0.1}, r"std is that of ψ, which the variant 'plain' does not have"),
        ({"variant": "smoothing", "std": 0.0}, r"std must be positive and finite, got 0"),
        ({"variant": "smoothing", "std": float("nan")}, r"std must be positive and finite, got nan"),
        ({"seed": -1}, r"seed must lie in 0…4294967295, got -1"),
        ({"seed": 10**20}, r"seed must lie in 0…4294967295, got 1"),
        ({"subset": -1, "fraction": 0.1}, r"subset must lie in 0…4294967295, got -1"),
        ({"subset": 2}, r"subset 2 is one of many only below fraction 1: leave it out"),
        ({"variant": "sharp"}, r"unknown variant 'sharp'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_data_is_read(changes: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Run(find_recipe("cifar100"), **changes)


def test_every_recipe_says_its_command_time_and_accuracy() -> None:
    for function in (cifar100, cifar100_fast, cifar100_small):
        told = function.__doc__ or ""
        assert f"unsmooth train {function().name} --data PATH" in told
        assert "minute" in told
        assert "accura" in told.lower()


@pytest.mark.parametrize("epochs", [20, 300])
def test_the_rate_is_timms_cosine_after_a_warm_up_by_steps(epochs: int) -> None:
    from timm.scheduler import CosineLRScheduler

    recipe, steps = find_recipe("cifar100").override([f"epochs={epochs}"]), 7
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=recipe.lr)
    warm = recipe.warmup_epochs * steps
    timm = CosineLRScheduler(
        optimizer, t_initial=(epochs - recipe.warmup_epochs) * steps, warmup_t=warm, warmup_lr_init=0.0,
        warmup_prefix=True, t_in_epochs=False,
    )  # fmt: skip
    ours = learning_rates(recipe, steps * epochs)
    for step in range(warm, epochs * steps):
        timm.step_update(step)
        assert float(ours[step]) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-4, abs=1e-12)
    torch.testing.assert_close(ours[:warm], recipe.lr * torch.arange(1, warm + 1) / warm)


def test_same_steps_keeps_the_number_of_steps_and_their_rates() -> None:
    recipe = find_recipe("cifar100")
    few, all_ = Run(recipe, fraction=0.1, same_steps=True), Run(recipe)
    few_epochs, all_epochs = (epochs_of(run, recipe) for run in (few, all_))
    assert few_epochs * 5_000 == all_epochs * 50_000
    torch.testing.assert_close(learning_rates(recipe, 52 * few_epochs), learning_rates(recipe, 520 * all_epochs))


def test_what_is_no_recipe_at_all_is_refused() -> None:
    with pytest.raises(OptionError, match="expected a recipe's keys and values, got NoneType"):
        ImageRecipe.from_dict(None)  # type: ignore[arg-type]
