"""Which turns of a curve are clear: those that samples agree on, and hardly any where nothing changes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from page.course_cases import said
from page.courses import Known, moments

from unsmooth.analysis import Measurement, Subject, analyse
from unsmooth.analysis.measuring.cells import Change
from unsmooth.page.charts.measured import _kinds_table
from unsmooth.page.course import Curve, course, ways
from unsmooth.page.words.findings import findings


def drawn(table: np.ndarray) -> Measurement:
    """A measurement of log HFC/LFC, samples × depths."""
    known = Known("m", {"all": {"hfc_lfc": [1.0] * table.shape[1]}}, samples=len(table))
    known._fill("all", "hfc_lfc", np.exp(table))
    return known.subject().measurement


def turning(samples: int) -> np.ndarray:
    """Rises through layer 4, then falls in every sample: t = −5.4 of eight, of which 77 single tests would ask 6.04."""
    rng = np.random.default_rng(0)
    steps = np.r_[[0.05] * 5, [-0.05] * 7] + 0.01 * rng.normal(size=(samples, 12))
    fall = steps[:, 5:].sum(1)
    steps[:, 11] += -0.35 + 0.17 * np.resize([1.0, -1.0], samples) - fall
    return np.cumsum(np.c_[rng.normal(size=samples), steps], axis=1)


def test_a_turn_that_each_of_eight_samples_makes_is_clear() -> None:
    table = turning(8)
    fall = scipy.stats.ttest_1samp(table[:, 12] - table[:, 5], 0)
    assert fall.statistic == pytest.approx(-5.4, abs=0.1)
    assert fall.pvalue > 0.04 / 77
    assert ways(course(drawn(table), "hfc_lfc", "all")) == (-1, 1)


def test_five_samples_have_too_few_flips_and_keep_bonferronis_correction() -> None:
    assert not Curve(drawn(turning(5)), "hfc_lfc", "all").joint
    found = Curve(drawn(turning(6)), "hfc_lfc", "all").joint
    assert (len(found), min(found.values())) == (77, 1 / 32)


@pytest.mark.parametrize("samples", [4, 8])
def test_skewed_samples_of_curves_that_do_not_change_rarely_turn(samples: int) -> None:
    """Depths that go on from the last one, as those of a model do."""
    rng = np.random.default_rng(samples)
    tables = np.cumsum(rng.exponential(size=(100, samples, 13)) - 1, axis=2)
    said = sum(bool(ways(course(drawn(table), "hfc_lfc", "all"))) for table in tables)
    assert scipy.stats.binomtest(said, len(tables), 0.05, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize(("size", "word"), [(1e-9, "no clear change"), (1e-3, "sharper"), (-1e-3, "smoother")])
def test_a_kind_of_layer_that_adds_no_more_than_rounding_does_not_smooth(size: float, word: str) -> None:
    steps = {Change("residual", "MLP", "hfc_lfc", "all"): moments(size * np.array([1.0, 1.1, 0.9, 1.0]))}
    subject = Subject("m", replace(drawn(np.zeros((4, 3))), changes=steps))
    assert re.findall("<em>(.*?)</em>", _kinds_table([subject], "residual", "all")) == [word]


def test_tokens_that_are_alike_everywhere_are_said_to_be_so_and_nothing_is_claimed_of_their_rounding() -> None:
    known = Known("m", {"all": {"hfc_lfc": [0.0, 3e-8, 6e-8]}}, noise=0.0, offset=0.0)
    found = said([known.subject()])
    assert "(HFC/LFC 0 → 6e−08): up to rounding all tokens of an input are alike" in found["model"][0]
    assert "measure inputs whose tokens differ" in found["advice"][0]


def test_of_equal_tokens_gamma_is_not_compared_with_steps_of_rounding() -> None:
    torch.manual_seed(0)
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    model = torch.nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False).eval()
    subject = analyse(model, [torch.randn(3, 1, 8).expand(3, 5, 8)])
    assert "γ has the sign" not in str([finding.html() for finding in findings([subject])])
