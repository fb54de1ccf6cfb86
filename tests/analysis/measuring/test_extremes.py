"""The token of extreme norm is found at every point of the stream, however the samples are split."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from small_models import images, vit
from torch import Tensor, nn

import unsmooth
from unsmooth.analysis.measuring.extremes import Extremes, farthest, find_outliers
from unsmooth.analysis.policies import TokenKinds, log_ratios, norms_of, outlying


def slow(x: Tensor, keep: list[bool]) -> tuple[float, int]:
    """Of one sample: log(norm / median) of the token farthest from the median, and its place among those kept."""
    norms = [math.sqrt(sum(v * v for v in token)) for token, ok in zip(x.tolist(), keep, strict=True) if ok]
    median = sorted(norms)[(len(norms) - 1) // 2]
    place = max(range(len(norms)), key=lambda i: abs(math.log(norms[i] / median)))
    return math.log(norms[place] / median), place


@pytest.mark.parametrize("scale", [30.0, 1 / 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_farthest_token_is_that_of_a_slow_search(scale: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 9, 6, generator=generator)
    x[1, 3] *= scale
    x[4, 8] *= scale
    x = x.to(dtype)
    padding = torch.zeros(5, 9, dtype=torch.bool)
    padding[0, :4] = True  # on the left: the first token that counts is at position 0
    padding[4, 8] = True  # an outlier that is padding is none
    ratio, position, count = farthest(norms_of(x), TokenKinds(padding=padding))
    for i in range(5):
        expected, place = slow(x[i].double(), (~padding[i]).tolist())
        assert float(ratio[i]) == pytest.approx(expected, rel=1e-6)
        assert int(position[i]) == place
    assert position[1] == 3
    assert count.tolist() == (outlying(log_ratios(norms_of(x), ~padding)) & ~padding).sum(-1).tolist()
    assert count[1] >= 1


class Loud(nn.Module):
    """An MLP that makes one token long."""

    def __init__(self, position: int, factor: float) -> None:
        super().__init__()
        self.position, self.factor = position, factor

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, self.position] *= self.factor
        return x


def test_the_layer_that_makes_an_outlier_and_its_position_are_known() -> None:
    model = vit()
    model.blocks[1].mlp = Loud(2, 1000.0)
    found = unsmooth.measure(model, images()).extremes
    before, after = found["blocks.1.mid"], found["blocks.1.post"]
    assert after.log_ratio.mean > before.log_ratio.mean + math.log(50)
    assert after.positions == Counter({2: after.log_ratio.count})
    assert after.outliers.min >= 1
    assert "blocks.1.norm1" not in found  # the stream alone


def test_a_class_token_that_no_policy_counts_is_no_outlier() -> None:
    model = vit()
    model.blocks[1].mlp = Loud(0, 1000.0)
    for policies, count in (("patches", 0), ("all,patches", 1), ("patches,no-outliers", 1)):
        after = unsmooth.measure(model, images(), tokens=policies).extremes["blocks.1.post"]
        assert after.outliers.mean == count, policies
        assert (set(after.positions) == {0}) == bool(count)  # patches keep their places in the sequence
        assert count or min(after.positions) > 0


def test_batches_merging_and_files_change_nothing(tmp_path: Path) -> None:
    model, data = vit(), images()
    whole = unsmooth.measure(model, data)
    parts = [unsmooth.measure(model, [batch]) for batch in data]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    again = unsmooth.load_measurement(whole.save(tmp_path / "run.json"))
    assert again.extremes == whole.extremes
    for point, extreme in whole.extremes.items():
        assert merged.extremes[point].positions == extreme.positions
        assert merged.extremes[point].log_ratio.mean == pytest.approx(extreme.log_ratio.mean, rel=1e-9)
        assert merged.extremes[point].log_ratio.count == whole.samples


def test_a_file_of_the_version_before_has_none(tmp_path: Path) -> None:
    path = unsmooth.measure(vit(), images()).save(tmp_path / "run.json")
    content = json.loads(path.read_text())
    del content["extremes"]
    path.write_text(json.dumps(content))
    assert unsmooth.load_measurement(path).extremes == {}


def test_what_brings_a_short_token_to_an_ordinary_length_makes_no_outlier() -> None:
    """The largest step of the first token is from 0.4 to 1.7 times the median, where it is none."""
    norms = torch.ones(4, 9) + 0.01 * torch.arange(9)
    seen = Extremes()
    sizes = {"embed": 0.4, "blocks.0.mid": 1.7, "blocks.0.post": 1.5, "blocks.1.mid": 1.9, "blocks.1.post": 3.1}
    seen.add({point: torch.cat([size * norms[:, 4:5], norms[:, 1:]], 1) for point, size in sizes.items()}, TokenKinds())
    found = find_outliers(seen.result(), "pre", "blocks.1.post")
    assert found is not None
    assert (found.layer, found.maker, found.position) == (1, "MLP", 0)
    assert found.ratio == pytest.approx(3.1, rel=0.02)


def test_layers_that_make_the_same_outlier_anew_are_counted() -> None:
    """As in ALBERT: every MLP lengthens the first token, and the normalisation after it undoes that."""
    norms = torch.ones(4, 9) + 0.01 * torch.arange(9)
    seen = Extremes()
    sizes = {"embed": 1.0, "blocks.0.mlp_sum": 3.0, "blocks.0.post": 1.0, "blocks.1.mlp_sum": 3.2, "blocks.1.post": 1.0}
    sizes |= {"blocks.2.mlp_sum": 3.1, "blocks.2.post": 1.0}
    seen.add({point: torch.cat([size * norms[:, 4:5], norms[:, 1:]], 1) for point, size in sizes.items()}, TokenKinds())
    found = find_outliers(seen.result(), "post")
    assert found is not None
    assert (found.layer, found.maker, found.makers) == (1, "MLP", 3)
    sizes |= {"blocks.1.mlp_sum": 50.0}  # the others are next to nothing
    seen = Extremes()
    seen.add({point: torch.cat([size * norms[:, 4:5], norms[:, 1:]], 1) for point, size in sizes.items()}, TokenKinds())
    found = find_outliers(seen.result(), "post")
    assert found is not None
    assert (found.layer, found.makers) == (1, 1)


def test_the_maker_of_an_outlier_is_not_what_made_an_earlier_one() -> None:
    """A token that is long at first and ordinary then is made by the layer that makes it longest.

    After that layer one sample has so many long tokens that none is an outlier by the rule; after the next all have.
    """
    found = Extremes()
    first, plain = torch.tensor([4.0, 1.0, 1.01, 1.02, 0.99, 1.0, 1.0]), torch.tensor([1.5, 1, 1.2, 1.3, 0.9, 1, 0.8])
    far = torch.tensor([150.0, 1.0, 1.01, 1.02, 0.99, 1.0, 1.0])
    many = torch.tensor([150.0, 1.0, 90.0, 80.0, 0.05, 0.04, 1.0])
    norms = {
        "embed": torch.stack([first, first]),
        "blocks.0.post": torch.stack([plain, plain]),
        "blocks.1.mid": torch.stack([plain, plain]),
        "blocks.1.post": torch.stack([far, many]),
        "blocks.2.post": torch.stack([0.9 * far + 0.1, 0.9 * far + 0.1]),
    }
    found.add({point: x.double() for point, x in norms.items()}, TokenKinds())
    assert found.result()["blocks.1.post"].outliers.min == 0
    made = find_outliers(found.result(), "pre", "blocks.2.post")
    assert made is not None
    assert (made.layer, made.maker, made.point, made.in_all) == (1, "MLP", "blocks.1.post", True)
    assert made.ratio == pytest.approx(150, rel=0.01)
