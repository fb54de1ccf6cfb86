"""The step on a CPU does what the usual eager loop does; models and variants are what they say."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from reference.training import plain_training

from unsmooth.control import Variant, control_of, parameter_groups, reparametrize
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.training import load_trained
from unsmooth.training.engine.capture import waits_for_host
from unsmooth.training.engine.observe import observe, spectrum_shares
from unsmooth.training.engine.step import Speed, Trainer, attention_backend
from unsmooth.training.tasks.images import ImageTask, load_images, save_model
from unsmooth.training.tasks.images.augment import Colours, augment, draw_epoch, normalise
from unsmooth.training.tasks.images.model import build_model
from unsmooth.training.tasks.images.recipe import ImageRecipe


def make_trainer(model: torch.nn.Module, data: Path, recipe: ImageRecipe, speed: Speed | None = None) -> Trainer:
    return Trainer(ImageTask(recipe, model, load_images(data, "train")), speed)


def run_epochs(trainer: Trainer, count: int) -> list[float]:
    task = trainer.task
    rates, stream = task.rates(task.total).split(task.chunk), task.stream(0)
    return [float(trainer.run_chunk(next(stream), rates[epoch], seed=epoch)) for epoch in range(count)]


@pytest.mark.parametrize("variant", ["plain", "sharpening", "smoothing-split"])
def test_an_epoch_equals_the_eager_loop(variant: str, tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    recipe = tiny_recipe.override(["drop_path=0"])
    model = Variant.parse(variant).apply(build_model(recipe, 0))
    twin = copy.deepcopy(model)
    # without short cuts: AdamW would blow their rounding up along Θ's directions that have no gradient
    trainer = make_trainer(model, tiny_data, recipe, Speed(shortcuts=()))
    plans = [draw_epoch(48, recipe, seed=0, epoch=e) for e in (0, 1)]
    losses = run_epochs(trainer, 2)
    images, colours = load_images(tiny_data, "train"), Colours.of(recipe, "cpu")
    batches = [augment(images.pixels, images.labels, p.batch(s), recipe, colours) for p in plans for s in range(6)]
    rates = trainer.task.rates(24)[: len(batches)].tolist()
    groups = parameter_groups(twin, recipe.weight_decay)
    expected = plain_training(twin.train(), groups, batches, rates, recipe.clip_norm)
    assert losses == pytest.approx([sum(expected[:6]) / 6, sum(expected[6:]) / 6], rel=1e-5)
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6, msg=name)


def test_training_learns_the_tiny_classes(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    recipe = tiny_recipe.override(["mixup=0", "cutmix=0", "rand_augment_prob=0", "drop_path=0", "epochs=12"])
    trainer = make_trainer(build_model(recipe, 0), tiny_data, recipe)
    losses = run_epochs(trainer, 12)
    assert losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize(
    ("error", "waits"), [(None, False), ("called a synchronizing CUDA operation", True), ("out of memory", None)]
)
def test_a_step_that_waits_for_the_host_is_told_from_one_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: str | None, waits: bool | None
) -> None:
    """Asked while libraries believe that it is recorded; what the user had set is put back. On a GPU: superglue."""
    modes, recorded = list[int | str](), torch.cuda.is_current_stream_capturing
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def step() -> None:
        assert torch.cuda.is_current_stream_capturing()
        assert modes == ["error"]
        if error:
            raise RuntimeError(error)

    if waits is None:
        with pytest.raises(RuntimeError, match="out of memory"):
            waits_for_host(step)
    else:
        assert waits_for_host(step) is waits
    assert modes == ["error", 1]
    assert torch.cuda.is_current_stream_capturing is recorded


def test_the_same_seed_builds_the_same_model(tiny_recipe: ImageRecipe) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    a, b, c = (Variant.parse("sharpening").apply(build_model(tiny_recipe, s), seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected)  # the caller's random state is left alone
    for (name, x), y, z in zip(a.named_parameters(), b.parameters(), c.parameters(), strict=True):
        assert torch.equal(x, y)
        if name.endswith(("theta", "psi", "head.weight")):
            assert not torch.equal(x, z)


def test_paths_are_dropped_as_often_as_the_recipe_says(tiny_recipe: ImageRecipe) -> None:
    """Stochastic depth rises linearly to the recipe's share in the last block, and only in training."""
    model, x = build_model(tiny_recipe.override(["drop_path=0.6", "depth=3"]), 0), torch.ones(4000, 1, 1)
    torch.manual_seed(0)
    dropped = [(block.drop_path1.train()(x) == 0).float().mean() for block in model.get_submodule("blocks")]
    assert torch.stack(dropped).tolist() == pytest.approx([0.0, 0.3, 0.6], abs=0.04)
    assert all(torch.equal(block.drop_path1.eval()(x), x) for block in model.get_submodule("blocks"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", Variant()),
        ("sharpening", Variant("sharpening", "symmetric")),
        ("smoothing-eigen", Variant("smoothing", "eigen")),
        ("sharpening-split@alternate", Variant("sharpening", "split", "alternate")),
        ("centered", Variant(fix="centered")),
        ("attnscale@first-half", Variant(fix="attnscale", layers="first-half")),
        ("sharpening@:1+smoothing@1:", Variant("sharpening", layers=":1", other=Variant("smoothing", layers="1:"))),
    ],
)
def test_variants_are_read_from_their_names(text: str, expected: Variant) -> None:
    assert Variant.parse(text) == expected


@pytest.mark.parametrize("text", ["sharp", "sharpening-cubic", "plain@all", ""])
def test_an_unknown_variant_lists_the_known_ones(text: str) -> None:
    with pytest.raises(OptionError, match=r"unknown variant .*'plain', 'sharpening'.*'centered'"):
        Variant.parse(text)


def test_the_symmetric_form_starts_orthogonal_with_the_same_weights(tiny_recipe: ImageRecipe) -> None:
    """A He-normal Θ crosses singular matrices in training; √2 Q gives the same weights at condition number 1."""
    ours = Variant.parse("sharpening").apply(build_model(tiny_recipe, 0), seed=5)
    rng = torch.Generator().manual_seed(6)
    theirs = reparametrize(build_model(tiny_recipe, 0), "sharpening", form="symmetric", std=0.3, generator=rng)
    for layer in range(tiny_recipe.depth):
        for a, b in zip(control_of(ours).weights(layer), control_of(theirs).weights(layer), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    values = torch.linalg.svdvals(control_of(ours).theta.detach())
    torch.testing.assert_close(values, torch.full_like(values, 2**0.5))


def test_some_layers_stay_plain(tiny_recipe: ImageRecipe) -> None:
    model = Variant.parse("sharpening@first-half").apply(build_model(tiny_recipe, 0))
    shares = spectrum_shares(model)["positive"]
    assert shares[0] == 0
    assert shares[1] > 0.2


def test_an_eigenvalue_that_died_is_on_no_side(tiny_recipe: ImageRecipe) -> None:
    model = Variant.parse("sharpening").apply(build_model(tiny_recipe, 0))
    with torch.no_grad():
        control_of(model).psi[:, :6] = 1e-9  # a quarter of each layer's
    shares = spectrum_shares(model)
    assert shares["positive"] == [0.0, 0.0]
    assert shares["in_minus_one_zero"] == [0.75, 0.75]


def test_layers_can_have_opposite_modes(tiny_recipe: ImageRecipe) -> None:
    model = Variant.parse("smoothing@:1+sharpening@1:").apply(build_model(tiny_recipe, 0))
    assert spectrum_shares(model)["positive"] == [1.0, 0.0]
    with pytest.raises(OptionError, match=r"gives the layers \[0\] both modes"):
        Variant.parse("smoothing@:1+sharpening").apply(build_model(tiny_recipe, 0))
    for text in ("sharpening+plain", "sharpening-eigen@:1+smoothing@1:", "sharpening@:1+sharpening@1:"):
        with pytest.raises(OptionError, match="expected both modes in one form"):
            Variant.parse(text)


def test_timms_error_becomes_one_message(tiny_recipe: ImageRecipe) -> None:
    for name in ("nonsense", "resnet18"):
        with pytest.raises(OptionError, match=f"timm cannot build '{name}'.*expected a vision transformer"):
            build_model(tiny_recipe.override([f"timm_name={name}"]), 0)


def test_a_saved_model_reloads_with_the_same_outputs(tmp_path: Path, tiny_recipe: ImageRecipe) -> None:
    x = torch.randn(2, 3, 32, 32)
    for variant in ("plain", "smoothing", "attnscale", "attnscale@first-half", "contranorm@:1"):
        model = Variant.parse(variant).apply(build_model(tiny_recipe, 0)).eval()
        expected = model(x)
        save_model(
            Variant.parse(variant).bake(model), tmp_path / variant, tiny_recipe, {"variant": variant}, half=False
        )
        loaded, config = load_trained(tmp_path / variant)
        torch.testing.assert_close(loaded(x), expected, rtol=1e-4, atol=1e-5)
        assert config["variant"] == variant


def test_half_precision_weights_take_half_the_space_and_give_the_same_scores(
    tmp_path: Path, tiny_recipe: ImageRecipe
) -> None:
    model, x = build_model(tiny_recipe, 0), torch.randn(2, 3, 32, 32)
    sizes, logits = [], []
    for half in (True, False):
        save_model(model, tmp_path / str(half), tiny_recipe, {"variant": "plain"}, half=half)
        sizes.append((tmp_path / str(half) / "model.safetensors").stat().st_size)
        logits.append(load_trained(tmp_path / str(half))[0](x))
    assert sizes[0] < 0.6 * sizes[1]
    assert (logits[0] - logits[1]).abs().max() < 2e-3 * logits[1].abs().max()


def test_weights_beyond_float16_are_kept_in_float32(tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    model = build_model(tiny_recipe, 0)
    model.get_parameter("head.bias").data.fill_(1e6)
    save_model(model, tmp_path, tiny_recipe, {"variant": "plain"})
    assert torch.equal(load_trained(tmp_path)[0].get_parameter("head.bias"), model.get_parameter("head.bias"))


def test_a_truncated_model_is_refused(tmp_path: Path, tiny_recipe: ImageRecipe) -> None:
    save_model(build_model(tiny_recipe, 0), tmp_path, tiny_recipe, {"variant": "plain"})
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"model.safetensors is truncated or no safetensors file"):
        load_trained(tmp_path)


def test_what_is_observed_fits_the_variant(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    pixels = load_images(tiny_data, "test").pixels[:3]
    batches = [normalise(pixels, Colours.of(tiny_recipe, "cpu"))]
    plain = observe(build_model(tiny_recipe, 0), batches)
    assert set(plain) == {"spectrum", "smoothing"}
    assert all(len(v) == tiny_recipe.depth for v in plain["smoothing"].values())
    smooth = observe(Variant.parse("smoothing").apply(build_model(tiny_recipe, 0)), batches)
    assert smooth["spectrum"]["positive"] == [1.0, 1.0]
    assert set(smooth["control"]) == {"condition", "saturated", "smallest", "largest"}


def test_smoothing_by_depth_is_what_measure_says_of_the_blocks_outputs(
    tiny_data: Path, tiny_recipe: ImageRecipe
) -> None:
    from unsmooth.analysis import measure
    from unsmooth.analysis.measuring.cells import Cell

    model, pixels = build_model(tiny_recipe, 0), load_images(tiny_data, "test").pixels[:6]
    batch = normalise(pixels, Colours.of(tiny_recipe, "cpu"))
    found = observe(model.train(), [batch])["smoothing"]
    assert model.training
    cells = measure(model.eval(), [batch], "paper", points="blocks.*.post").cells
    for metric, values in found.items():
        for block, value in enumerate(values):
            assert value == pytest.approx(cells[Cell(f"blocks.{block}.post", metric, "all")].mean, rel=1e-4, abs=1e-5)


def test_augmentation_is_one_graph_for_the_compiler(tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    """What runs compiled on a GPU has no graph breaks and gives the same batch."""
    recipe = tiny_recipe.override(["rand_augment_layers=1"])
    images = load_images(tiny_data, "train")
    draws = draw_epoch(48, recipe, 0, 0).batch(2)
    arguments = (images.pixels, images.labels, draws, recipe, Colours.of(recipe, "cpu"))
    compiled = torch.compile(augment, backend="aot_eager", fullgraph=True)
    for ours, theirs in zip(compiled(*arguments), augment(*arguments), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("variant", ["sharpening", "smoothing-eigen"])
def test_the_loss_is_one_graph_for_the_compiler(variant: str, tiny_data: Path, tiny_recipe: ImageRecipe) -> None:
    recipe = tiny_recipe.override(["drop_path=0", "depth=1"])
    model = Variant.parse(variant).apply(build_model(recipe, 0))
    trainer = make_trainer(model, tiny_data, recipe)
    x, target = torch.randn(4, 3, 32, 32), torch.rand(4, 4)
    losses, grads = [], []
    for forward in (trainer._forward, torch.compile(trainer._forward, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        loss = forward(x, target)
        loss.backward()
        losses.append(loss.detach())
        grads.append([p.grad.clone() for p in trainer.parameters if p.grad is not None])
    torch.testing.assert_close(losses[0], losses[1])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def test_one_attention_backend_can_be_forced() -> None:
    q = torch.randn(1, 2, 5, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    with attention_backend("MATH"):
        torch.testing.assert_close(torch.nn.functional.scaled_dot_product_attention(q, q, q), expected)
