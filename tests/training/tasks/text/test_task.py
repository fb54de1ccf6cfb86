"""Masked language modelling as a user runs it: train, kill, go on, measure; and what its batches are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import train_in_two
from safetensors.torch import load_file
from torch.nn import functional as F

import unsmooth
from unsmooth.errors import CheckpointError, DataError, OptionError
from unsmooth.sources import load_model
from unsmooth.training import Run, Trainer, train
from unsmooth.training.engine.journal import read_log
from unsmooth.training.tasks.text.model import masked_logits
from unsmooth.training.tasks.text.recipe import TextRecipe

CPU = torch.device("cpu")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def run_tiny(run: Run, folder: Path, out: str, **options: Any) -> Any:
    return train(run, folder / "texts", folder / out, device="cpu", tensorboard=False, **options)


class Killed(Exception):
    """Stands for a kill."""


def killing(after: int) -> Any:
    def progress(done: int, total: int, row: dict[str, Any]) -> None:
        if done == after:
            raise Killed

    return progress


@pytest.mark.parametrize("variant", ["plain", "sharpening", "smoothing-split"])
@pytest.mark.parametrize("after", [3, 9])
def test_a_killed_run_goes_on_to_the_same_weights(folder: Path, tiny: TextRecipe, variant: str, after: int) -> None:
    run = Run(tiny, variant)
    whole = run_tiny(run, folder, "whole")
    with pytest.raises(Killed):
        run_tiny(run, folder, "killed", progress=killing(after))
    again = run_tiny(run, folder, "killed")
    one, two = weights(folder / "whole"), weights(folder / "killed")
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert again.final == whole.final
    assert [row["train_loss"] for row in again.rows] == [row["train_loss"] for row in whole.rows]


def test_a_batch_grows_and_a_killed_run_grows_on(folder: Path, tiny: TextRecipe) -> None:
    """Updates are those of larger and larger batches, and nothing depends on where the run was interrupted."""
    run = Run(replace(tiny, grow=3, steps=18, every=3, batch_size=4))
    assert [run.recipe.together(done, 18) for done in range(0, 18, 3)] == [1, 1, 1, 1, 3, 3]
    whole = run_tiny(run, folder, "whole")
    with pytest.raises(Killed):
        run_tiny(run, folder, "killed", progress=killing(15))
    again = run_tiny(run, folder, "killed")
    assert again.final == whole.final
    one, two = weights(folder / "whole"), weights(folder / "killed")
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_steps_that_share_an_update_are_one_larger_batch(folder: Path, tiny: TextRecipe) -> None:
    """Six sequences at once, and two at a time."""
    large, small = replace(tiny, batch_size=6, chunk=1, every=1), replace(tiny, batch_size=2, grow=3, chunk=3, every=3)
    one, many = (Trainer(recipe.open(Run(recipe), folder / "texts", CPU)) for recipe in (large, small))
    rows = next(one.task.stream(0))
    many.together = 3
    loss = one.run_chunk(rows, torch.tensor([1e-2]), seed=0)
    split = {name: t.view(3, 2, -1) for name, t in rows.items()}
    assert torch.allclose(many.run_chunk(split, torch.full((3,), 1e-2), seed=0), loss, rtol=1e-5)
    for a, b in zip(one.model.parameters(), many.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=2e-5)
    assert all(not p.grad.any() for p in many.parameters if p.grad is not None)


def test_a_model_learns_and_is_an_ordinary_folder(folder: Path, tiny: TextRecipe) -> None:
    record = run_tiny(Run(replace(tiny, steps=60, every=30)), folder, "run")
    first, last = record.rows[0], record.rows[-1]
    assert last["test"]["loss"] < first["test"]["loss"]
    assert {"spectrum", "smoothing"} <= last.keys()
    loaded = load_model(f"hf:{folder / 'run'}")
    ids = torch.tensor([loaded.tokenizer("the quick brown fox")["input_ids"]])
    assert unsmooth.measure(loaded.model, [{"input_ids": ids}]).about is not None


def test_the_loss_is_that_of_the_whole_output_at_hidden_places(folder: Path, tiny: TextRecipe) -> None:
    task = tiny.open(Run(tiny), folder / "texts", CPU)
    rows = {name: t[0] for name, t in next(task.stream(0)).items()}
    inputs, positions, targets = task.prepare(rows)
    task.model.eval()
    with torch.no_grad():
        logits = task.model(input_ids=inputs).logits
        expected = F.cross_entropy(
            logits.gather(1, positions[..., None].expand(-1, -1, 90)).flatten(0, 1), targets.flatten()
        )
        assert torch.allclose(task.loss(inputs, positions, targets), expected, atol=1e-5)
        picked = logits.gather(1, positions[..., None].expand(-1, -1, 90))
        assert torch.allclose(masked_logits(task.model, inputs, positions), picked, atol=1e-5)


def test_batches_do_not_depend_on_where_a_run_starts_or_how_many_processes_share_it(
    folder: Path, tiny: TextRecipe
) -> None:
    one = tiny.open(Run(tiny, seed=3), folder / "texts", CPU)
    stream = one.stream(0)
    chunks = [next(stream) for _ in range(3)]
    later = next(one.stream(4))  # in the middle of the second chunk
    assert all(torch.equal(later[name], chunks[1][name][1:]) for name in later)
    shares = [next(tiny.open(Run(tiny, seed=3), folder / "texts", CPU, rank, 2).stream(0)) for rank in range(2)]
    for name, whole in chunks[0].items():
        assert torch.equal(torch.cat([share[name] for share in shares], 1), whole)


def test_held_out_scores_are_those_of_the_same_hidden_tokens(folder: Path, tiny: TextRecipe) -> None:
    task = tiny.open(Run(tiny), folder / "texts", CPU)
    one, two = task.evaluate(task.model), task.evaluate(task.model, final=True)
    assert one == two  # on a CPU both are in float32
    assert abs(one["loss"] - torch.log(torch.tensor(90.0))) < 0.5  # a new model knows nothing
    assert task.model.training  # its mode is as it was


def test_a_run_with_other_texts_does_not_go_on(folder: Path, tiny: TextRecipe) -> None:
    with pytest.raises(Killed):
        run_tiny(Run(tiny), folder, "run", progress=killing(9))
    with (folder / "texts" / "a.jsonl").open("a") as file:
        file.write('\n{"text": "one more document"}')
    with pytest.raises(CheckpointError, match="data"):
        run_tiny(Run(tiny), folder, "run")


def test_no_sequence_to_watch_is_allowed_and_none_to_score_is_refused(folder: Path, tiny: TextRecipe) -> None:
    record = run_tiny(Run(tiny.override(["metric_sequences=0"])), folder, "run")
    assert "smoothing" not in record.end
    with pytest.raises(OptionError, match="held_out must be at least 1, got 0"):
        tiny.override(["held_out=0"])


def test_a_share_of_the_texts_and_odd_batches_are_refused(folder: Path, tiny: TextRecipe) -> None:
    with pytest.raises(OptionError, match="a text run has no fraction"):
        run_tiny(Run(tiny, fraction=0.5), folder, "run")
    with pytest.raises(OptionError, match="batch_size 8 does not divide among 3"):
        tiny.check(Run(tiny), world=3)
    with pytest.raises(OptionError, match="not an even multiple of 3 heads"):
        tiny.override(["heads=3"])
    with pytest.raises(OptionError, match="every 7 is not a multiple of chunk 3"):
        tiny.override(["every=7"])
    with pytest.raises(DataError, match="no data at"):
        run_tiny(Run(tiny), folder / "nowhere", "run")


def test_two_processes_train_as_one_does(folder: Path, tiny: TextRecipe) -> None:
    tiny = replace(tiny, grow=3)  # in the last chunk all three steps share an update
    assert train_in_two(tiny, folder / "texts", folder / "two") == ["record", "no record"]  # the cache is empty yet
    one = run_tiny(Run(tiny), folder, "one")
    rows = read_log(folder / "two")
    for here, there in zip(one.rows, rows, strict=True):
        assert there["train_loss"] == pytest.approx(here["train_loss"], rel=1e-4)
        assert there["test"]["loss"] == pytest.approx(here["test"]["loss"], rel=1e-4)


def test_a_trained_folder_is_loaded_by_its_path_and_a_changed_bit_is_noticed(folder: Path, tiny: TextRecipe) -> None:
    run_tiny(Run(tiny), folder, "run")
    loaded = load_model(folder / "run")
    assert loaded.modality == "text"
    assert loaded.tokenizer is not None
    file = folder / "run" / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"model\.safetensors was changed after it was written"):
        load_model(folder / "run")
