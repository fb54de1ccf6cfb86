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
        watch(vit(), probe()).frame()


def test_flat_shards_are_refused() -> None:
    class FullyShardedDataParallel(nn.Module):
        pass

    with pytest.raises(UnsmoothError, match=r"use fully_shard \(FSDP2\), which can be watched"):
        watch(FullyShardedDataParallel(), probe())
