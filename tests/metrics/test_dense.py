"""Tensors that no metric can be computed on are refused with what came and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import unsmooth
from unsmooth import metrics
from unsmooth.errors import UnsmoothError
from unsmooth.theory import dominance, layer_exponent, limit, simulate

X = torch.rand(2, 4, 4)
SQUARE = X[0].softmax(-1)
ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "sparse": (lambda: X.to_sparse(), "layout torch.sparse_coo: give x.to_dense()"),
    "csr": (lambda: SQUARE.to_sparse_csr(), "layout torch.sparse_csr: give x.to_dense()"),
    "nested": (lambda: torch.nested.nested_tensor([torch.rand(3, 4), torch.rand(5, 4)]), "a nested one: pad it"),
    "quantised": (lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8), "a quantised one of torch.qint8"),
    "meta": (lambda: X.to("meta"), "on the meta device, without values"),
    "float8": (lambda: X.to(torch.float8_e4m3fn), "16 bits or more, got torch.float8_e4m3fn"),
    "complex": (lambda: X.to(torch.complex64), "torch.complex64"),
    "bool": (lambda: X > 0.5, "torch.bool"),
    "ids": (lambda: X.long(), "torch.int64"),
    "no width": (lambda: X[..., :0], r"\(2, 4, 0\)|at least one"),
    "no tokens": (lambda: X[:, :0], r"\(2, 0, 4\)|at least one"),
    "array": (lambda: X.numpy(), "got a ndarray: torch.as_tensor makes one"),
    "list": (lambda: X.tolist(), "got a list: torch.as_tensor makes one"),
    "none": (lambda: None, "got a NoneType"),
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "hfc_lfc_ratio": metrics.hfc_lfc_ratio,
    "cosine_similarity": metrics.cosine_similarity,
    "effective_rank": metrics.effective_rank,
    "dominance h": lambda x: dominance(x, SQUARE),
    "dominance a": lambda x: dominance(SQUARE, x),
    "exponent a": lambda x: layer_exponent(x, X),
    "exponent w": lambda x: layer_exponent(X.softmax(-1), x),
    "exponent pair": lambda x: layer_exponent(X.softmax(-1), (x, X)),
    "limit": lambda x: limit(x, SQUARE, SQUARE),
    "simulate x": lambda x: simulate(x, SQUARE, SQUARE),
    "simulate a": lambda x: simulate(X[0], x, SQUARE),
    "simulate w": lambda x: simulate(X[0], SQUARE, x),
}


@pytest.mark.filterwarnings("ignore")  # torch's own, about prototypes
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_odd_tensors_are_refused_by_kind(function: str, kind: str) -> None:
    make, message = ODD[kind]
    value = make()
    with pytest.raises(UnsmoothError, match=message):
        FUNCTIONS[function](value)


def test_a_mask_is_dense_too() -> None:
    with pytest.raises(UnsmoothError, match="mask: expected a dense tensor"):
        unsmooth.hfc_lfc_ratio(X, mask=torch.ones(2, 4).bool().to_sparse())


@pytest.mark.parametrize(
    ("x", "a", "w", "message"),
    [
        (X[0], SQUARE[:3, :3], SQUARE, r"a must be \(…, 4, 4\) for 4 tokens, got shape \(3, 3\)"),
        (X[0], SQUARE, SQUARE[:3], "w must lead from 4 features to 4, as x has, got from 3 to 4"),
        (X[0], SQUARE.double(), SQUARE, r"a must be matrices of the dtype that x has \(torch.float32\)"),
        (X[0], SQUARE, (X, X, X), r"or \(w_v, w_proj\), got 3 parts"),
        (X[0], torch.stack([SQUARE] * 3)[:, None], X, "give x their batch"),
        (X[0], torch.stack([SQUARE] * 3), X, "do not go together with w .*: give one map per head"),
    ],
)
def test_arguments_of_a_simulation_that_do_not_fit_are_named(x: Any, a: Any, w: Any, message: str) -> None:
    with pytest.raises(UnsmoothError, match=message):
        simulate(x, a, w)
