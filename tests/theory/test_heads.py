"""Verdicts of many heads at once are those of one head at a time."""

from __future__ import annotations

import pytest
import torch
from theory.matrices import A_KINDS, make_a

from unsmooth.theory import dominance
from unsmooth.theory.heads import head_verdicts
from unsmooth.theory.spectrum import spectrum_of_attention, spectrum_of_h


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("sign", [1.0, -1.0, 0.0])
def test_each_head_is_judged_as_if_it_were_alone(zeros: bool, sign: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unsmooth.theory.heads._PAIRS", 70)  # two heads at a time
    g = torch.Generator().manual_seed(3)
    heads, dim, key = len(A_KINDS), 6, 3 if zeros else 6
    w_v, w_proj = (torch.randn(heads, dim, key, generator=g, dtype=torch.float64) for _ in range(2))
    # λ of one sign make clear verdicts of both kinds; without a sign anything may happen
    w_proj = 0.3 * (sign * torch.linalg.pinv(w_v) if sign else w_proj.mT)
    a = torch.stack([make_a(kind, 5, g) for kind in A_KINDS])
    found = head_verdicts(spectrum_of_h(w_v, w_proj).heads, spectrum_of_attention(a), zeros, torch.float64)
    for head in range(heads):
        alone = dominance(a[head], (w_v[head] @ w_proj[head]))
        assert float(found.exponent[head]) == pytest.approx(alone.exponent, abs=1e-9)
        assert float(found.small_step[head]) == pytest.approx(alone.small_step, abs=1e-9)
        assert found.kinds[head] == alone.kind
        # one head alone names all winners; a tie with Perron's is its type (1) here
        assert found.endpoints[head] == alone.endpoint or alone.kind == "mixed"


def test_a_tie_of_both_kinds_is_mixed_and_counted_with_perron() -> None:
    a = spectrum_of_attention(torch.full((1, 4, 4), 0.25, dtype=torch.float64))
    found = head_verdicts(torch.tensor([[-0.5 + 0j]], dtype=torch.complex128), a, True, torch.float64)
    assert (found.kinds, found.endpoints) == (["mixed"], ["largest"])
    assert float(found.exponent) == pytest.approx(0.0)
