"""Watching a training: what is read, when, and that nothing else changes."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from results import about_measured
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters
from watched import probe, train, vit

import unsmooth
from unsmooth.callbacks import Bound, Reading, SmoothingAlarm, watch

pytest.importorskip("timm")


class Book:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.rows: dict[int, Mapping[str, float]] = {}

    def __call__(self, values: Mapping[str, float], step: int) -> None:
        self.rows[step] = values


class Noisy(nn.Module):
    """A ViT behind a BatchNorm, that also draws random numbers in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.vit = vit(drop_rate=0.1, attn_drop_rate=0.1, drop_path_rate=0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.vit(self.norm(x) + 0.01 * torch.rand_like(x) + random.random() + np.random.rand())  # noqa: NPY002


def seeded() -> None:
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002


@pytest.mark.parametrize("accumulate", [False, True])
def test_training_is_bit_equal_with_and_without(accumulate: bool) -> None:
    def run(watched: bool) -> dict[str, Tensor]:
        seeded()
        model = Noisy()
        hold: list[Any] = [watch(model, probe(), every=2).__enter__()] if watched else []
        seeded()
        model.vit.blocks[0].eval()  # a part that the user froze stays frozen
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(8):
            x, y = torch.randn(4, 3, 16, 16), torch.randint(5, (4,))
            nn.functional.cross_entropy(model(x), y).backward()
            if step % 2 or not accumulate:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
        assert [m.training for m in (model, model.norm, model.vit.blocks[0], model.vit.blocks[1])] == [
            True, True, False, True,
        ]  # fmt: skip
        for watcher in hold:
            assert [r.step for r in watcher.history] == ([0, 2, 4] if accumulate else [0, 2, 4, 6, 8])
            watcher.__exit__(None, None, None)
        state = {**model.state_dict(), **{f"grad {n}": p.grad for n, p in model.named_parameters()}}
        return {**state, "next": torch.rand(3), "python": torch.tensor(random.random())}

    plain, watched = run(False), run(True)
    assert plain.keys() == watched.keys()
    for name, value in plain.items():
        assert torch.equal(value, watched[name]), name


def test_readings_equal_measure_on_the_same_weights() -> None:
    model, book = vit(), Book()
    with watch(model, probe(), every=3, log=book) as watcher:
        train(model, 7)
    assert list(book.rows) == [0, 3, 6]
    assert watcher.steps == 7
    expected = unsmooth.measure(vit(), [probe()], points="blocks.*.post")
    assert book.rows[0] == {f"unsmooth/{c.metric}/{c.point}": m.mean for c, m in expected.cells.items()}
    frame = watcher.frame()
    assert set(frame["step"]) == {0, 3, 6}
    assert len(frame) == 3 * len(expected.cells)
    assert book.rows[6] != book.rows[0]


def test_names_tell_the_token_policy_and_read_measures_at_once() -> None:
    model = vit()
    with watch(model, probe(), tokens="all,patches", points="embed", metrics="cosine_similarity") as watcher:
        train(model, 1)
        reading = watcher.read()
    assert reading is not None
    assert reading.step == 1
    assert list(reading.values()) == ["unsmooth/cosine_similarity/embed", "unsmooth/cosine_similarity/patches/embed"]


def test_two_optimisers_of_one_step_count_once_and_foreign_ones_never() -> None:
    model, other = vit(), nn.Linear(2, 2)
    optimizers = [
        torch.optim.SGD(model.blocks.parameters(), lr=0.1),
        torch.optim.SGD(model.head.parameters(), lr=0.1),
        torch.optim.SGD(other.parameters(), lr=0.1),
    ]
    with watch(model, probe(), every=2) as watcher:
        for _ in range(5):
            for optimizer in optimizers:
                optimizer.step()
    assert watcher.steps == 5
    assert [r.step for r in watcher.history] == [0, 2, 4]
    optimizers[0].step()
    assert watcher.steps == 5


def test_manual_counting_ignores_optimisers() -> None:
    model = vit()
    with watch(model, probe(), every=2, count="manual") as watcher:
        train(model, 3)
        assert watcher.steps == 0
        watcher.step()
        watcher.step(5)
    assert [r.step for r in watcher.history] == [0, 5]


def test_no_step_seen_is_said() -> None:
    with pytest.warns(UserWarning, match="no training step was seen.*count='manual'"), watch(vit(), probe()):
        pass


@pytest.mark.parametrize(("inplace", "count"), [(False, "optimizer"), (True, "manual")])
def test_a_compiled_training_is_watched_without_a_new_graph_or_break(inplace: bool, count: Any) -> None:
    torch._dynamo.reset()  # it compiles a function so many times in a process, and other tests compile this one too
    model, graphs = vit(), CompileCounter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled: Any = model
    if inplace:
        model.compile(backend=graphs)
    else:
        compiled = torch.compile(model, backend=graphs)
    update = torch.compile(optimizer.step, backend=graphs)

    def train(steps: int, after: Callable[[], None] = lambda: None) -> None:
        for _ in range(steps):
            compiled(probe()).square().mean().backward()
            update()
            optimizer.zero_grad()
            after()

    train(2)
    frames, breaks = graphs.frame_count, sum(counters["graph_break"].values())
    assert frames
    with watch(compiled, probe(), every=2, count=count) as watcher:
        train(4, watcher.step if count == "manual" else lambda: None)
    train(1)
    assert [r.step for r in watcher.history] == [0, 2, 4]
    assert (graphs.frame_count, sum(counters["graph_break"].values())) == (frames, breaks)
    assert (model._compiled_call_impl is not None) == inplace


def test_default_rate_keeps_to_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock in which a step takes 1 ms and a reading 39 ms: one in four multiples of 500 steps is affordable."""
    now = [0.0]
    module = sys.modules["unsmooth.callbacks.watcher"]  # by this name: `unsmooth.watch` is the function
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(module, "measure", slow_measure(now, 0.039))
    with watch(vit(), probe(), count="manual") as watcher:
        for _ in range(20_000):
            now[0] += 0.001
            watcher.step()
    steps = [r.step for r in watcher.history]
    assert steps[:3] == [0, 2000, 4000]
    assert len(steps) == 11
    assert 0.015 < watcher.cost <= 0.02


def slow_measure(now: list[float], seconds: float) -> Callable[..., unsmooth.Measurement]:
    def measured(*args: Any, **kwargs: Any) -> unsmooth.Measurement:
        now[0] += seconds
        return unsmooth.Measurement({}, {}, about_measured())

    return measured


def test_alarm_stops_with_the_numbers() -> None:
    model = vit()
    limit = Bound("max", "cosine_similarity", -2.0, "blocks.1.post")
    with (
        pytest.raises(
            SmoothingAlarm, match=r"step 0: cosine_similarity at blocks.1.post \(all tokens\) is .*above the bound -2"
        ) as e,
        watch(model, probe(), alarm=limit),
    ):
        raise AssertionError("the alarm comes on entering")
    assert isinstance(e.value.reading, Reading)


def test_alarm_stops_from_within_the_optimiser_and_leaves_no_hook() -> None:
    model = vit()

    def odd(reading: Reading) -> str | None:
        return "third step" if reading.step == 3 else None

    watcher = watch(model, probe(), every=1, alarm=odd)
    with pytest.raises(SmoothingAlarm, match="step 3: third step"), watcher:
        train(model, 10)
    assert watcher.steps == 3
    train(model, 1)
    assert watcher.steps == 3
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_alarm_warns() -> None:
    model = vit()
    bounds = [Bound("min", "effective_rank", 1e6, "blocks.0.post"), Bound("max", "hfc_lfc", 1e6)]
    with (
        pytest.warns(UserWarning, match="step [02]: effective_rank at blocks.0.post") as said,
        watch(model, probe(), every=2, alarm=bounds, action="warn") as watcher,
    ):
        train(model, 3)
    assert [str(w.message).partition(":")[0] for w in said] == ["step 0", "step 2"]
    assert watcher.steps == 3


def test_diverged_training_warns_and_goes_on_unless_an_alarm_was_asked_for() -> None:
    model = vit()
    with watch(model, probe(), every=1) as watcher, torch.no_grad():
        model.norm_pre = nn.Identity()
        model.blocks[1].mlp.fc2.bias.fill_(torch.nan)
        with pytest.warns(UserWarning, match="step 1: nothing could be measured.*blocks.1.post"):
            torch.optim.SGD(model.head.parameters()).step()
    assert [r.step for r in watcher.history] == [0]
    with pytest.raises(SmoothingAlarm, match="step 0: nothing could be measured"):
        watch(model, probe(), alarm=Bound("max", "hfc_lfc", 9.0)).__enter__()


def test_autocast_of_the_training_does_not_reach_the_reading() -> None:
    model = vit()
    with watch(model, probe(), every=1) as watcher:
        before = watcher.history[0].values()
        with torch.autocast("cpu", torch.bfloat16):
            reading = watcher.read()
            assert torch.is_autocast_enabled("cpu")
        train(model, 1)
    assert reading is not None
    assert reading.values() == before


def test_a_log_that_fails_is_told_once_and_does_not_end_the_training() -> None:
    model, calls = vit(), []

    def log(values: Any, step: int) -> None:
        calls.append(step)
        raise OSError("no space left")

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with watch(model, probe(), 1, log, count="manual") as watcher:
            for _ in range(3):
                watcher.step()
    assert calls == [0, 1, 2, 3]
    assert [str(w.message).split(":")[0] for w in said] == ["log failed at step 0 (OSError"]
    assert len(watcher.history) == 4


def test_an_alarm_raised_by_log_still_stops() -> None:
    def log(values: Any, step: int) -> None:
        raise SmoothingAlarm("enough")

    with pytest.raises(SmoothingAlarm, match="enough"):
        watch(vit(), probe(), 1, log, count="manual").__enter__()
