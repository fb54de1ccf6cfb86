from __future__ import annotations

import pytest
import torch
from theory.matrices import make_a

from unsmooth.errors import FeatureError, WeightsError
from unsmooth.theory import spectrum_of_attention, spectrum_of_h
from unsmooth.theory.eigen import eigen_of_attention


def sorted_complex(values: torch.Tensor) -> torch.Tensor:
    """By modulus, then phase: two spectra can be compared."""
    rounded = values.to(torch.complex128)
    keys = sorted(
        range(len(rounded)), key=lambda i: (round(abs(complex(rounded[i])), 8), round(float(rounded[i].imag), 8))
    )
    return rounded[keys]


@pytest.mark.parametrize(("heads", "dim", "key"), [(3, 12, 4), (2, 9, 3), (2, 4, 6), (1, 5, 5)])
def test_head_spectra_equal_those_of_the_dense_matrices(heads: int, dim: int, key: int) -> None:
    w_v, w_proj = torch.randn(heads, dim, key), torch.randn(heads, key, dim)
    found = spectrum_of_h(w_v, w_proj)
    for head in range(heads):
        h = (w_v[head].double() @ w_proj[head].double()).T
        values = torch.cat([found.heads[head], found.heads.new_zeros(found.structural_zeros)])
        torch.testing.assert_close(sorted_complex(values), sorted_complex(torch.linalg.eigvals(h)))
    total = (w_v.double() @ w_proj.double()).sum(0).T
    assert found.layer is not None
    torch.testing.assert_close(sorted_complex(found.layer), sorted_complex(torch.linalg.eigvals(total)))


def test_spectra_are_cached_by_the_weights_content() -> None:
    w_v, w_proj = torch.randn(2, 6, 3), torch.randn(2, 3, 6)
    first = spectrum_of_h(w_v, w_proj)
    assert spectrum_of_h(w_v.clone(), w_proj) is first
    w_v[0, 0, 0] += 1
    assert spectrum_of_h(w_v, w_proj) is not first


def test_bfloat16_weights_are_accepted() -> None:
    w_v, w_proj = torch.randn(6, 3).bfloat16(), torch.randn(3, 6).bfloat16()
    expected = torch.linalg.eigvals(w_proj.double() @ w_v.double())
    torch.testing.assert_close(sorted_complex(spectrum_of_h(w_v, w_proj).heads[0]), sorted_complex(expected))


def test_a_random_attention_matrix_keeps_its_complex_eigenvalues() -> None:
    a = torch.rand(40, 40, dtype=torch.float64)
    a = a / a.sum(-1, keepdim=True)
    found = spectrum_of_attention(a)
    torch.testing.assert_close(sorted_complex(found.eigenvalues), sorted_complex(torch.linalg.eigvals(a)))
    assert found.complex_share > 0.5  # Proposition 1 says 0
    assert found.eigenvalues[-1] == 1


def test_causal_attention_has_its_diagonal_as_spectrum() -> None:
    a = make_a("causal", 6, torch.Generator().manual_seed(1))
    found = spectrum_of_attention(a)
    assert found.others.real.tolist() == sorted(a.diagonal()[1:].tolist())
    assert not found.others.imag.any()


def test_only_one_of_two_unit_eigenvalues_is_the_perron_root() -> None:
    found = spectrum_of_attention(make_a("blocks", 6, torch.Generator().manual_seed(0)))
    assert torch.isclose(found.others.abs().max(), torch.tensor(1.0, dtype=torch.float64))
    assert abs(float(found.gap)) < 1e-12


@pytest.mark.parametrize("kind", ["softmax", "causal", "blocks", "banded", "sink", "uniform"])
def test_attention_eigenvectors_are_eigenvectors_and_the_last_is_constant(kind: str) -> None:
    a = make_a(kind, 7, torch.Generator().manual_seed(3))
    found = eigen_of_attention(a)
    torch.testing.assert_close(a.to(torch.complex128) @ found.vectors, found.vectors * found.values)
    assert torch.equal(found.vectors[:, -1], found.vectors[:1, -1].expand(7))


def test_batches_of_attention_give_batches_of_spectra() -> None:
    a = torch.softmax(torch.randn(2, 3, 5, 5), -1)
    found = spectrum_of_attention(a)
    assert found.eigenvalues.shape == (2, 3, 5)
    torch.testing.assert_close(found.eigenvalues[1, 2], spectrum_of_attention(a[1, 2]).eigenvalues)


def test_columns_instead_of_rows_are_refused_with_a_reason() -> None:
    a = torch.softmax(torch.randn(5, 5), -2)
    with pytest.raises(WeightsError, match=r"rows must sum to 1 .* query on the second-to-last axis"):
        spectrum_of_attention(a)


def test_one_token_is_refused() -> None:
    with pytest.raises(FeatureError, match="one token only"):
        spectrum_of_attention(torch.ones(1, 1))


def test_attention_that_is_not_finite_is_refused() -> None:
    with pytest.raises(WeightsError, match="NaN or infinity"):
        spectrum_of_attention(torch.full((3, 3), torch.nan))


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(WeightsError, match=r"w_v must be \(heads, dim, key\)"):
        spectrum_of_h(torch.randn(2, 6, 3), torch.randn(2, 6, 3))
    with pytest.raises(WeightsError, match="NaN or infinity"):
        spectrum_of_h(torch.full((6, 3), torch.nan), torch.randn(3, 6))
