"""What cannot be watched is named before training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from watched import probe, vit

from unsmooth.callbacks import Bound, watch
from unsmooth.errors import OptionError, PointError, UnknownModelError, UnsmoothError

pytest.importorskip("timm")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"every": 0}, OptionError, "every must be a number of steps, at least 1, got 0"),
        ({"every": 2.5}, OptionError, "every must be a number of steps, at least 1, got 2.5"),
        ({"action": "shout"}, OptionError, "unknown action of an alarm 'shout': expected one of 'stop', 'warn'"),
        ({"count": "sheep"}, OptionError, "unknown way to count steps 'sheep'"),
        (
            {"alarm": "cosine"},
            OptionError,
            "an alarm is a Bound, several of them, or a function of the reading; got 'c'",
        ),
        ({"alarm": 3}, OptionError, "an alarm is a Bound"),
        ({"alarm": Bound("max", "rankme", 1.0)}, OptionError, "unknown metric of this measurement 'rankme'"),
        ({"alarm": Bound("max", "hfc_lfc", 1.0, "blocks.7.*")}, PointError, "no measured point matches 'blocks.7.*'"),
        ({"metrics": "x"}, OptionError, "unknown metric"),
    ],
)
def test_bad_settings_are_named_before_training(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message.replace("*", r"\*")), watch(vit(), probe(), **options):
        pass


def test_a_module_without_parameters_is_named() -> None:
    with pytest.raises(UnknownModelError, match="no family matches torch.nn.modules.linear.Identity"):
        watch(torch.nn.Identity(), probe()).__enter__()


def test_nothing_read_yet_is_said() -> None:
    with pytest.raises(UnsmoothError, match="nothing was read yet"):
        watch(vit(), probe(), count="manual").frame()


def test_a_watch_that_was_never_entered_is_said_and_one_that_was_says_what_it_read() -> None:
    def plain_call() -> None:
        watch(vit(), probe())

    with pytest.warns(UserWarning, match="watch was never entered, so nothing was measured: write `with"):
        plain_call()
    watcher = watch(vit(), probe())
    assert repr(watcher).startswith("Watcher of VisionTransformer: 0 readings\n")
    watcher.read()
    assert repr(watcher).startswith("Watcher of VisionTransformer: 1 reading, the last at step 0\n")


def test_a_loader_is_no_probe() -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(probe()))
    for several, name in ((loader, "DataLoader"), (iter([probe()]), "list_iterator")):
        with pytest.raises(UnsmoothError, match=rf"got {name}: give one of its batches, next\(iter\(it\)\)"):
            watch(vit(), several).__enter__()


def test_flat_shards_are_refused() -> None:
    class FullyShardedDataParallel(nn.Module):
        pass

    with pytest.raises(UnsmoothError, match=r"use fully_shard \(FSDP2\), which can be watched"):
        watch(FullyShardedDataParallel(), probe())
