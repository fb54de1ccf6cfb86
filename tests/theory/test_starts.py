"""What simulations start from: patches of an image, random layers; and regimes against one head at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from unsmooth.errors import MissingExtraError, OptionError
from unsmooth.sources.patches import image_patches, patches_of
from unsmooth.theory import dominance
from unsmooth.theory.norm_impact import TableCell, norm_impact_table
from unsmooth.theory.phase import phase_grid
from unsmooth.theory.scenario import Scenario, curve, log10_curves, random_attention, random_h, scenarios


def test_the_grid_holds_the_mean_exponent_of_one_head_over_seeds() -> None:
    centres, temperatures, tokens, dim = [-0.5, 0.25, 0.75], [0.3, 3.0], 9, 5
    found = phase_grid(centres, temperatures, 0.4, tokens, dim, seeds=iter((3, 8)))
    assert found.shape == (2, 3)
    for row, temperature in enumerate(temperatures):
        for column, centre in enumerate(centres):
            values = []
            for seed in (3, 8):
                generator = torch.Generator().manual_seed(seed)
                x = torch.randn(tokens, dim, generator=generator, dtype=torch.float64)
                a = random_attention(x, generator, temperature)
                h = torch.diag(torch.linspace(centre - 0.2, centre + 0.2, dim, dtype=torch.float64))
                values.append(dominance(a, h.mT).exponent)
            assert float(found[row, column]) == pytest.approx(sum(values) / 2, rel=1e-9)


def test_a_grid_of_no_seed_is_zero() -> None:
    assert phase_grid([0.5], [1.0], seeds=[]).tolist() == [[0.0]]


def test_patches_are_rows_in_reading_order_with_channels_outermost() -> None:
    image = torch.arange(2 * 4 * 6, dtype=torch.float64).reshape(2, 4, 6)
    rows = patches_of(image, 2)
    plain = torch.stack([image[:, i : i + 2, j : j + 2].reshape(-1) for i in (0, 2) for j in (0, 2, 4)])
    torch.testing.assert_close(rows, (plain - plain.mean()) / plain.std())


@pytest.mark.parametrize("wide", [True, False])
def test_the_centre_of_an_image_is_cut_out(tmp_path: Path, wide: bool) -> None:
    pillow = pytest.importorskip("PIL.Image")
    image = pillow.new("RGB", (48, 16) if wide else (16, 48), (255, 0, 0))
    centre = pillow.effect_noise((16, 16), 80).convert("RGB")
    image.paste(centre, (16, 0) if wide else (0, 16))
    for name, picture in (("whole.png", image), ("centre.png", centre)):
        picture.save(tmp_path / name)
    found = image_patches(tmp_path / "whole.png", patch=4, side=16)
    assert found.shape == (16, 48)
    torch.testing.assert_close(found, image_patches(tmp_path / "centre.png", patch=4, side=16))
    assert image_patches(tmp_path / "whole.png").shape == (64, 192)


def test_a_random_h_has_its_eigenvalues_where_its_mode_says() -> None:
    for form in ("symmetric", "general"):
        sharp, smooth = (
            random_h(7, form, mode, torch.Generator().manual_seed(1)) for mode in ("sharpening", "smoothing")
        )
        torch.testing.assert_close(sharp, -smooth)
        values = torch.linalg.eigvals(smooth)
        assert float(values.imag.abs().max()) < 1e-9
        drawn = torch.Generator().manual_seed(1)
        torch.randn(7, 7, generator=drawn, dtype=torch.float64)
        expected = torch.rand(7, generator=drawn, dtype=torch.float64)
        torch.testing.assert_close(values.real.sort().values, expected.sort().values)
        assert bool(torch.allclose(smooth, smooth.mT)) == (form == "symmetric")


def test_colder_attention_is_sharper_and_its_scores_are_scaled_by_the_width() -> None:
    x = torch.randn(6, 16, dtype=torch.float64)
    plain, cold = (random_attention(x, torch.Generator().manual_seed(2), t) for t in (1.0, 0.25))
    torch.testing.assert_close(plain.sum(-1), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close((plain.log() * 4).softmax(-1), cold)
    generator = torch.Generator().manual_seed(2)
    query, key = (torch.randn(16, 16, generator=generator, dtype=torch.float64) for _ in range(2))
    torch.testing.assert_close(plain, torch.softmax(x @ query @ key.mT @ x.mT / 16 / 4, -1))


def test_one_seed_shares_everything_but_signs_over_scenarios() -> None:
    smooth, sharp = (Scenario("symmetric", "pre", mode, sign) for mode, sign in (("smoothing", 1), ("sharpening", -1)))
    torch.testing.assert_close(curve(smooth, 4, layers=6), curve(sharp, 4, layers=6))
    none = Scenario("symmetric", None, "smoothing", 1)
    x = torch.randn(10, 4)
    assert len(curve(none, 0, layers=3, x=x)) == len(curve(none, 0, layers=3, tokens=10, dim=4)) == 4
    assert float(curve(none, 0, 3, x)[0]) == pytest.approx(float((x - x.mean(0)).norm() / x.mean(0).norm() / 10**0.5))
    table = log10_curves([5, 6], layers=3, tokens=8, dim=4)
    assert list(table) == list(scenarios())
    for scenario in (none, smooth):
        expected = [curve(scenario, seed, 3, tokens=8, dim=4)[-1].log10() for seed in (5, 6)]
        torch.testing.assert_close(table[scenario][:, -1], torch.stack(expected))


def test_labels_say_what_differs() -> None:
    labels = [scenario.label for scenario in scenarios()]
    assert len(set(labels)) == 20
    assert labels[:4] == ["symmetric, no LN, sharpening", "symmetric, no LN, smoothing",
                          "symmetric, Pre-LN, sharpening, LN weights +",
                          "symmetric, Pre-LN, sharpening, LN weights −"]  # fmt: skip


def test_a_documented_cell_is_met_by_sign_and_where_it_is_not_far_below_by_size() -> None:
    def agrees(mean: float, documented: float) -> bool:
        return TableCell(scenarios()[0], (mean,), (1.0,), (1.0,), documented).agrees

    assert agrees(1.0, 1.59)
    assert not agrees(1.0, 1.61)
    assert not agrees(0.2, -0.2)
    assert agrees(-9.0, -15.0)
    assert not agrees(-3.7, -3.0)


def test_a_cell_of_two_heaps_is_met_by_the_share_of_seeds_and_says_where_each_heap_lies() -> None:
    def cell(smooth: int) -> TableCell:
        values = (*[-15.0] * smooth, *[1.5] * (20 - smooth))
        return TableCell(scenarios()[0], values, (1.0,) * 20, values, float("nan"), 0.3)

    assert [cell(n).agrees for n in (0, 1, 6, 11, 12)] == [False, True, True, True, False]
    assert (cell(6).smoothed, cell(6).bimodal, cell(6).heaps) == (0.3, True, (-15.0, 1.5))
    assert not cell(0).bimodal
    assert (cell(6).right, cell(6).bare_right) == (14, 20)


def test_cells_hold_mean_deviation_and_share_of_their_seeds() -> None:
    for start in (None, torch.randn(6, 5)):
        values = log10_curves([0, 1], 4, start, tokens=8, dim=4)
        for cell in norm_impact_table([0, 1], 4, start, tokens=8, dim=4):
            mine = values[cell.scenario][:, -1]
            assert (cell.mean, cell.std) == (pytest.approx(float(mine.mean())), pytest.approx(float(mine.std())))
            assert cell.smoothed == sum(v < 0 for v in mine.tolist()) / 2
    assert {cell.std for cell in norm_impact_table([0], 2, tokens=8, dim=4)} == {0.0}


def test_unknown_forms_and_modes_are_listed() -> None:
    with pytest.raises(OptionError, match="unknown form 'x': expected one of 'symmetric', 'general'"):
        random_h(3, "x", "smoothing", torch.Generator())  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="unknown mode 'x': expected one of 'sharpening', 'smoothing'"):
        random_h(3, "general", "x", torch.Generator())  # type: ignore[arg-type]


def test_an_image_without_pillow_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r"reading images needs pillow.*unsmooth\[vision\]"):
        image_patches(tmp_path / "x.png")
