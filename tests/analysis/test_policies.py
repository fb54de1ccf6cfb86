"""Token policies keep what their definition says."""

from __future__ import annotations

import pytest
import torch

from unsmooth.analysis.policies import TokenKinds, log_ratios, norms_of, outlying, resolve_policies, token_mask
from unsmooth.errors import FeatureError, OptionError

X = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1))


def kept(policy: str, kinds: TokenKinds, x: torch.Tensor = X) -> list[list[int]]:
    mask = token_mask(policy, x, kinds)
    assert mask is not None
    return [row.nonzero().flatten().tolist() for row in mask]


def test_all_keeps_everything() -> None:
    assert token_mask("all", X, TokenKinds(prefix=2)) is None


def test_patches_leaves_out_the_prefix() -> None:
    assert kept("patches", TokenKinds(prefix=2)) == [[2, 3, 4, 5]] * 2


def test_content_of_images_is_their_patches() -> None:
    assert kept("content", TokenKinds(prefix=1)) == [[1, 2, 3, 4, 5]] * 2


def test_content_of_text_has_no_padding_and_no_special_tokens() -> None:
    batch = {
        "input_ids": torch.tensor([[101, 7, 8, 9, 102, 0], [101, 7, 102, 0, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]),
    }
    by_ids = TokenKinds.of_batch(batch, 0, frozenset({101, 102}))
    assert kept("content", by_ids) == [[1, 2, 3], [1]]
    marked = batch | {"special_tokens_mask": torch.tensor([[1, 0, 0, 0, 1, 1], [1, 0, 1, 1, 1, 1]])}
    assert kept("content", TokenKinds.of_batch(marked, 0, frozenset())) == [[1, 2, 3], [1]]


def test_no_outliers_drops_massive_and_vanished_tokens_but_never_counts_padding() -> None:
    x = torch.randn(1, 40, 16, generator=torch.Generator().manual_seed(2))
    x[0, 0] *= 100
    x[0, 7] *= 1e-4
    padding = torch.zeros(1, 40, dtype=torch.bool)
    padding[0, 15:] = True  # more than half: if it counted, it would be what the others are held against
    x[0, 15:] = 1e6
    expected = [i for i in range(15) if i not in (0, 7)]
    assert kept("no-outliers", TokenKinds(padding=padding), x) == [expected]


def test_no_outliers_keeps_class_and_special_tokens_of_ordinary_size() -> None:
    x = torch.nn.functional.normalize(X, dim=-1)
    special = torch.tensor([[False, True, False, False, False, True]] * 2)
    assert kept("no-outliers", TokenKinds(prefix=1, special=special), x) == [[0, 1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize(("factor", "far"), [(2.1, True), (1.9, False), (1 / 2.1, True), (1 / 1.9, False)])
def test_among_nearly_equal_norms_an_outlier_is_twice_or_half_as_long(factor: float, far: bool) -> None:
    x = torch.nn.functional.normalize(torch.randn(1, 10, 5), dim=-1)
    x[0, 3] *= factor
    assert outlying(log_ratios(norms_of(x), torch.ones(1, 10, dtype=torch.bool))).nonzero().tolist() == far * [[0, 3]]


@pytest.mark.parametrize(("deviations", "far"), [(5.1, True), (4.9, False)])
def test_among_different_norms_an_outlier_is_five_robust_deviations_away(deviations: float, far: bool) -> None:
    logs = torch.linspace(-1, 1, 9).double()  # the median is 0, the median distance from it 0.5 with the last one
    size = torch.cat([logs, torch.tensor([deviations * 1.4826 * 0.5]).double()]).exp()
    found = outlying(log_ratios(norms_of(size[None, :, None]), torch.ones(1, 10, dtype=torch.bool)))
    assert found.nonzero().tolist() == far * [[0, 9]]


def test_equal_norms_hold_no_outlier() -> None:
    x = torch.nn.functional.normalize(torch.randn(3, 10, 5), dim=-1)
    assert not outlying(log_ratios(norms_of(x), torch.ones(3, 10, dtype=torch.bool))).any()


def test_where_most_tokens_vanished_the_others_are_outliers() -> None:
    x = torch.zeros(1, 6, 4)
    x[0, 2] = 1
    assert outlying(log_ratios(norms_of(x), torch.ones(1, 6, dtype=torch.bool))).nonzero().tolist() == [[0, 2]]


def test_patches_of_text_is_an_error() -> None:
    kinds = TokenKinds.of_batch({"input_ids": torch.ones(2, 6), "attention_mask": torch.ones(2, 6)}, 0, frozenset())
    with pytest.raises(FeatureError, match="'patches' is for images.*use 'content'"):
        token_mask("patches", X, kinds)


def test_padded_images_have_patches() -> None:
    batch = {"pixel_values": torch.zeros(2, 6, 3), "pixel_attention_mask": torch.tensor([[1] * 6, [1] * 4 + [0] * 2])}
    kinds = TokenKinds.of_batch(batch, 0, frozenset())
    assert kept("patches", kinds) == [[0, 1, 2, 3, 4, 5]] * 2
    assert kept("content", kinds) == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3]]
    patches = {"patches": torch.zeros(2, 6, 3), "patch_valid": torch.tensor([[True] * 6, [True] * 4 + [False] * 2])}
    assert kept("patches", TokenKinds.of_batch(patches, 0, frozenset())) == [[0, 1, 2, 3, 4, 5]] * 2


def test_images_given_by_name_have_prefix_tokens_too() -> None:
    kinds = TokenKinds.of_batch({"pixel_values": torch.zeros(2, 3, 8, 8)}, 1, frozenset())
    assert kept("patches", kinds) == [[1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize(("mask", "content"), [("attention_mask", [1, 2, 3, 4, 5]), ("special_tokens_mask", [0])])
def test_embeddings_are_text_where_a_mask_says_so(mask: str, content: list[int]) -> None:
    embeddings = {"inputs_embeds": X}
    assert TokenKinds.of_batch(embeddings, 0, frozenset({1})) == TokenKinds()
    kinds = TokenKinds.of_batch(embeddings | {mask: torch.tensor([[0] + [1] * 5] * 2)}, 0, frozenset({1}))
    assert kept("content", kinds) == [content] * 2
    with pytest.raises(FeatureError, match="'patches' is for images"):
        token_mask("patches", X, kinds)


def test_bare_token_ids_are_text_too() -> None:
    ids = torch.tensor([[1, 5, 6, 7, 8, 2]] * 2)
    for batch in (ids, (ids, None), [ids, None]):
        kinds = TokenKinds.of_batch(batch, 0, frozenset({1, 2}))
        assert kept("content", kinds) == [[1, 2, 3, 4]] * 2
        with pytest.raises(FeatureError, match="'patches' is for images"):
            token_mask("patches", X, TokenKinds.of_batch(batch, 0, frozenset()))


@pytest.mark.parametrize("length", [3, 8])
def test_a_mask_of_another_length_is_an_error(length: int) -> None:
    with pytest.raises(FeatureError, match=rf"describe \(2, {length}\).*features have \(2, 6\)"):
        token_mask("content", X, TokenKinds(padding=torch.zeros(2, length, dtype=torch.bool)))


def test_unknown_policies_list_the_valid_ones() -> None:
    with pytest.raises(OptionError, match="unknown token policy 'cls'.*'all', 'patches', 'content', 'no-outliers'"):
        resolve_policies("all,cls")
    with pytest.raises(OptionError, match="unknown token policy .*'all', 'patches'"):
        resolve_policies([])


def test_policies_keep_their_order_and_count_once() -> None:
    assert resolve_policies(["patches", "all", "patches"]) == ("patches", "all")


def test_of_two_tokens_neither_is_an_outlier() -> None:
    norms = torch.tensor([[1.0, 50.0, 7.0], [1.0, 50.0, 1.0]], dtype=torch.float64)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    ratios = log_ratios(norms, ~padding)
    assert outlying(ratios).tolist() == [[False, False, False], [False, True, False]]
