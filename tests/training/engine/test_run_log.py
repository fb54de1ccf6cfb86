"""What a run logs, when it logs it, and what of it a resumed run keeps."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from unsmooth.training import Run, Trainer, train
from unsmooth.training.engine import checkpoint
from unsmooth.training.engine.task import Rows
from unsmooth.training.tasks.images import load_images
from unsmooth.training.tasks.images.augment import Colours, normalise
from unsmooth.training.tasks.images.recipe import ImageRecipe
from unsmooth.training.tasks.images.task import learning_rates


def test_the_last_epoch_is_logged_and_kept_beside_every_nth(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    rows: list[dict[str, object]] = []
    run = Run(tiny_recipe.override(["epochs=5", "every=2"]))
    record = train(
        run, tiny_data, tmp_path, device="cpu", tensorboard=False, progress=lambda *told: rows.append(told[2])
    )
    assert [row["epoch"] for row in record.rows] == [2, 4, 5]
    assert ["test" in row for row in rows] == [False, True, False, True, True]
    kept = [checkpoint.read_checkpoint(tmp_path / name)[1] for name in (checkpoint.PREVIOUS, checkpoint.CURRENT)]
    assert [state["epoch"] for state in kept] == [4, 5]


def test_a_logged_epoch_tells_the_rate_of_its_last_step_and_looks_at_so_many_images(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.Tensor] = []

    def watched(model: torch.nn.Module, batches: Iterable[torch.Tensor]) -> dict[str, object]:
        seen.extend(batches)
        return {}

    monkeypatch.setattr("unsmooth.training.tasks.images.task.observe", watched)
    record = train(Run(tiny_recipe), tiny_data, tmp_path, device="cpu", tensorboard=False)
    rates = learning_rates(tiny_recipe, 24)
    assert [row["lr"] for row in record.rows] == [float(rates[6 * epoch - 1]) for epoch in (1, 2, 3, 4)]
    first = load_images(tiny_data, "test").pixels[: tiny_recipe.metric_images]
    first = normalise(first, Colours.of(tiny_recipe, "cpu"))
    assert len(seen) == 4
    assert all(torch.equal(pixels, first) for pixels in seen)


def test_the_minutes_of_a_resumed_run_count_those_before(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    run = Run(tiny_recipe.override(["epochs=2"]))
    with pytest.raises(KeyboardInterrupt):
        train(run, tiny_data, tmp_path, device="cpu", tensorboard=False, progress=stop)
    path = tmp_path / checkpoint.CURRENT
    tensors, state = checkpoint.read_checkpoint(path)
    slow = {**state, "minutes": 100.0}  # as if the first epoch had taken so long
    save_file(tensors, path, {"schema": checkpoint.SCHEMA, "state": json.dumps(slow)})
    started = time.monotonic()
    record = train(run, tiny_data, tmp_path, device="cpu", tensorboard=False)
    assert 100 <= record.rows[-1]["minutes"] <= record.minutes + 0.005
    assert record.minutes <= 100.01 + (time.monotonic() - started) / 60


def test_steps_are_timed_each_and_every_epoch_draws_anew(
    tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[int, torch.Tensor]] = []
    clock = [0.0]

    def asleep(trainer: Trainer, rows: Rows, rates: torch.Tensor, seed: int) -> torch.Tensor:
        drawn.append((seed, rows["index"].clone()))
        trainer.done += len(rates)
        clock[0] += 0.3
        return torch.zeros(())

    monkeypatch.setattr(Trainer, "run_chunk", asleep)
    monkeypatch.setattr("unsmooth.training.engine.loop.time.monotonic", lambda: clock[0])
    for seed in (0, 1):
        run = Run(tiny_recipe.override(["epochs=2"]), seed=seed)
        record = train(run, tiny_data, tmp_path / str(seed), device="cpu", tensorboard=False)
        for row in record.rows:
            assert 1e3 * 0.3 / 6 - 0.01 <= row["milliseconds_per_step"] < 1e3 * 0.3
    assert len({seed for seed, _ in drawn}) == 4
    assert not any(torch.equal(a, b) for i, (_, a) in enumerate(drawn) for _, b in drawn[:i])


def test_one_batch_may_hold_all_images(tiny_data: Path, tiny_recipe: ImageRecipe, tmp_path: Path) -> None:
    run = Run(tiny_recipe.override(["batch_size=48", "epochs=1"]))
    assert len(train(run, tiny_data, tmp_path, device="cpu", tensorboard=False).rows) == 1
