"""Tokens far out, in words: a norm that follows takes back what a post-norm layer makes of them."""

from __future__ import annotations

import pytest

from unsmooth.analysis.attributing.carriers import AS_IT_IS, LEFT_OUT, Account, Carriers
from unsmooth.page.words.carriers import account_found, sinks_found


@pytest.mark.parametrize(
    ("point", "ratio", "in_all", "words"),
    [
        ("blocks.1.mlp_sum", 62.0, True, "to 62 times the median norm, before the norm that follows."),
        ("blocks.1.post", 180.0, True, "to 180 times the median norm. ln"),
        ("blocks.1.post", 0.01, False, "shrinks the first token down to 0.01 times the median norm. ln"),
        ("blocks.1.post", 90.0, False, "brings the first token up to 90 times the median norm. ln"),
    ],
)
def test_the_caption_says_where_a_token_is_far_out(point: str, ratio: float, in_all: bool, words: str) -> None:
    curves = {name: [1.0, 0.5] for run in (AS_IT_IS, LEFT_OUT) for name in (run, f"{run}, others")}
    account = Account(1, point, ratio, 0, True, 4, curves, {AS_IT_IS: [0.1], LEFT_OUT: [0.1]}, in_all=in_all)
    assert words in account_found(Carriers([{"outliers": 1.0}], [[[0.1, 0.2]]], account))


@pytest.mark.parametrize(("without", "end"), [(0.131, ", whether that MLP writes to it or not"),
                                              (0.05, ", and 5 % where that MLP writes nothing to it")])  # fmt: skip
def test_attention_that_does_not_follow_the_outlier_is_said_once(without: float, end: str) -> None:
    attention = {AS_IT_IS: [0.5, 0.13, 0.13], LEFT_OUT: [0.5, without, without]}
    account = Account(0, "blocks.0.post", 400.0, 0, True, 4, {}, attention)
    heads = [[[share, share]] for share in attention[AS_IT_IS]]
    said = sinks_found(Carriers([], heads, account)).replace("\xa0", " ")
    account.uniform = [0.2, 0.042, 0.042]
    held = sinks_found(Carriers([], heads, account)).replace("\xa0", " ")
    assert held == said.replace("on average", "on average (uniform attention would give 4.2 %)")
    assert said.endswith(f"makes extreme 13 % of their attention on average{end}")


def test_heads_that_attend_to_the_first_token_are_held_against_uniform_attention() -> None:
    rows = [{"outliers": 0.0}, {"outliers": 0.0, "first_uniform": 0.41}, {"outliers": 0.0, "first_uniform": 0.42}]
    said = account_found(Carriers(rows, [[[0.4, 0.0]], [[0.1, 0.0]]])).replace("\xa0", " ")
    assert said.startswith("1 of 2 heads gives the first token or outliers 30 % of its attention or more (uniform ")
    assert "(uniform attention would give the first token 42 %), and no token is an outlier" in said
