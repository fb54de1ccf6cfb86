"""Points that do not add up are no points: of a row that nobody tested, this is found before the first number."""

from __future__ import annotations

import pytest
import torch
from model_cases import CASES, DECODER, Case, every_case, hf
from torch import Tensor

import unsmooth
from unsmooth.errors import PointError
from unsmooth.metrics.tolerance import tolerance
from unsmooth.models import check_sums, families, register_family, unregister_family, view
from unsmooth.models.sums import is_proven

BY_NAME = {case.name: case for case in CASES}


@every_case()
def test_the_sums_of_every_family_hold(case: Case) -> None:
    v = case.seen()
    assert check_sums(v, case.inputs()) <= tolerance(torch.float32, 1)
    assert is_proven(v)


def test_a_row_that_a_model_only_resembles_is_refused_before_the_first_number() -> None:
    """Granite multiplies its branches before the sum; Llama's row has every module of it."""
    model, batch = BY_NAME["granite"].model(), BY_NAME["granite"].inputs()
    llama = next(row for row in families() if row.name == "hf-llama")
    try:
        register_family(llama.like("mine", (type(model),)))
        assert not is_proven(view(model))
        for work in (unsmooth.measure, unsmooth.explain, unsmooth.attribute):
            with pytest.raises(
                PointError, match=r"expected blocks\.0\.pre \+ blocks\.0\.attn = blocks\.0\.mid.*misses"
            ):
                work(model, [batch])
    finally:
        unregister_family("mine")


def test_a_subclass_that_computes_something_else_is_refused() -> None:
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    class Doubled(LlamaDecoderLayer):
        def forward(self, hidden_states: Tensor, **kwargs: object) -> Tensor:  # type: ignore[override]
            return 2 * super().forward(hidden_states, **kwargs)

    model = hf("Llama", **DECODER)().eval()
    for layer in model.layers:
        layer.__class__ = Doubled
    with pytest.raises(PointError, match=r"blocks\.0\.mid \+ blocks\.0\.mlp = blocks\.0\.post.*misses by"):
        unsmooth.measure(model, [BY_NAME["llama"].inputs()])


def test_the_check_costs_one_pass_and_only_once() -> None:
    model, batch = BY_NAME["llama"].model(), BY_NAME["llama"].inputs()
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    unsmooth.measure(model, [batch, batch])
    assert len(passes) == 2
    try:
        register_family(next(row for row in families() if row.name == "hf-llama").like("mine"))
        unsmooth.measure(model, [batch, batch])
    finally:
        unregister_family("mine")
    assert len(passes) == 2 + 3
