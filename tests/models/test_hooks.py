"""Hooks: what they refuse, what they check, and that nothing of them is left behind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from model_cases import CASES, SEQUENCE_CASES, TEXT, Case, every_case, hf, ids, padded
from torch import Tensor, nn
from versions import checkpoint_activations

from unsmooth.errors import PointError
from unsmooth.models import ModelView, hook_points, replace_points, select_points, split_point, view
from unsmooth.models.forward import call

BY_NAME = {case.name: case for case in CASES}


def ignore(point: str, x: Tensor) -> None:
    """Receive a point and do nothing."""


def watch(v: ModelView, points: list[str], run: Callable[[], Any] = lambda: None) -> None:
    """Run something while points are hooked."""
    with hook_points(v, points, ignore):
        run()


def hooks_of(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@every_case()
def test_no_hook_is_left_after_an_exception(case: Case) -> None:
    v = case.seen()
    before = hooks_of(v.model)

    def fail(point: str, x: Tensor) -> None:
        raise RuntimeError("a metric failed")

    with torch.no_grad(), pytest.raises(RuntimeError, match="a metric failed"), hook_points(v, v.points, fail):
        call(v.model, case.inputs())
    assert hooks_of(v.model) == before


def test_forward_passes_after_a_failed_one_are_counted_anew() -> None:
    case = BY_NAME["bert"]
    v = view(case.model())
    fired: list[str] = []
    broken = True

    def sometimes(point: str, x: Tensor) -> None:
        if broken:
            raise RuntimeError("broken")
        fired.append(point)

    with hook_points(v, ["blocks.1.attn"], sometimes):
        with pytest.raises(RuntimeError, match="broken"):
            call(v.model, case.inputs())
        broken = False
        call(v.model, case.inputs())
        call(v.model, case.inputs())
    assert fired == ["blocks.1.attn"] * 2


def test_an_unknown_point_is_refused_with_near_and_valid_ones() -> None:
    v = view(BY_NAME["timm-vit"].model())
    with pytest.raises(PointError, match=r"no point 'blocks\.1\.atn'; nearest: blocks\.1\.attn.*embed, final_norm"):
        watch(v, ["blocks.1.atn"])
    with pytest.raises(PointError, match=r"blocks\.\{0\.\.2\}\.\{pre, norm1, attn, mid, norm2, mlp, post\}"):
        select_points(v, "blocks.9.attn")
    with pytest.raises(PointError, match=r"has no point '0000'\. It has embed"):
        select_points(v, "0000")


def test_a_post_norm_family_has_no_norm1() -> None:
    with pytest.raises(PointError, match=r"hf-bert has no point 'blocks\.0\.norm1'"):
        select_points(view(BY_NAME["bert"].model()), ["blocks.0.norm1"])


def test_a_point_that_fires_twice_is_an_error() -> None:
    model = hf("Bert", chunk_size_feed_forward=2, **TEXT)().eval()
    with pytest.raises(PointError, match=r"'blocks\.0\.mlp' fired 4 times.*expected 1.*chunk_size_feed_forward=0"):
        watch(view(model), ["blocks.0.mlp"], lambda: model(input_ids=torch.randint(3, 50, (1, 8))))


def test_a_point_that_never_fires_is_an_error() -> None:
    case = BY_NAME["llama"]
    model = case.model()
    with pytest.raises(PointError, match=r"'embed' fired 0 times.*leave this point out"):
        watch(view(model), ["embed"], lambda: model(None, None, None, None, torch.randn(1, 4, 32)))


class Described(nn.Module):
    """A picture's features before those of its words, as vision-language models join them: outside the decoder."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.language_model = decoder
        self.look = nn.Linear(5, 32)

    def forward(self, input_ids: Tensor, pixel_values: Tensor) -> Any:
        words = self.language_model.embed_tokens(input_ids)
        return self.language_model(inputs_embeds=torch.cat([self.look(pixel_values), words], 1))


def test_embeddings_that_are_joined_outside_the_decoder_are_its_embed() -> None:
    case = BY_NAME["llama"]
    model = Described(case.model())
    batch = {**case.inputs(), "pixel_values": torch.randn(2, 3, 5)}
    v, seen = view(model), list[tuple[str, Tensor]]()
    with torch.no_grad(), hook_points(v, ["embed", "blocks.0.pre"], lambda point, x: seen.append((point, x.clone()))):
        call(model, batch)
    (first, embed), (second, pre) = seen
    assert (first, second, embed.shape) == ("embed", "blocks.0.pre", (2, 3 + 7, 32))
    torch.testing.assert_close(embed, pre, rtol=0, atol=0)
    with (
        torch.no_grad(),
        replace_points(v, ["embed"], lambda point, x: 2 * x),
        hook_points(v, ["blocks.0.pre"], lambda point, x: seen.append((point, x))),
    ):
        call(model, batch)
    torch.testing.assert_close(seen[-1][1], 2 * pre)


def test_where_a_part_around_the_decoder_embeds_unseen_the_inner_model_is_named() -> None:
    class Unseen(Described):
        def forward(self, x: Tensor) -> Any:
            return self.language_model(None, None, None, None, self.look(x))

    model = Unseen(BY_NAME["llama"].model())
    with pytest.raises(
        PointError, match=r"'embed' fired 0 times.*inner model, at 'language_model' \(hf:NAME#language_model\)"
    ):
        watch(view(model), ["embed"], lambda: model(torch.randn(1, 4, 5)))


def test_a_forward_pass_with_fewer_layers_is_an_error() -> None:
    case = BY_NAME["llama"]
    model = case.model()
    v = view(model)
    model.layers = model.layers[:2]
    with pytest.raises(PointError, match="expected 3 passes through the blocks of hf-llama.*made 2"):
        watch(v, ["embed"], lambda: call(model, case.inputs()))


def test_layer_drop_in_training_is_an_error() -> None:
    case = BY_NAME["whisper"]
    model = case.model().train()
    v = view(model)
    v.backbone.layerdrop = 1.0
    with pytest.raises(PointError, match=r"expected 3 passes.*made 0.*eval mode"):
        watch(v, ["blocks.0.pre"], lambda: call(model, case.inputs()))


def test_a_point_before_a_functional_dropout_is_refused_in_training_mode() -> None:
    v = view(BY_NAME["whisper"].model().train())
    with pytest.raises(PointError, match=r"'blocks\.0\.attn' is not what hf-whisper-encoder adds.*model\.eval"):
        watch(v, ["blocks.0.attn"])


def test_a_part_of_the_model_called_alone_is_an_error() -> None:
    case = BY_NAME["timm-vit"]
    model: Any = case.model()
    with pytest.raises(PointError, match="outside a forward pass of its VisionTransformer: call the model itself"):
        watch(view(model), ["embed"], lambda: model.forward_features(case.inputs()))


def test_a_model_that_does_not_run_its_backbone_is_an_error() -> None:
    class Lazy(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return x

    model = Lazy(BY_NAME["torch-pre"].model())
    with pytest.raises(PointError, match="Lazy did not run its torch-encoder-pre"):
        watch(view(model), ["blocks.0.pre"], lambda: model(torch.randn(2, 3, 32)))


def test_a_wrapper_that_runs_its_backbone_twice_is_an_error() -> None:
    class Twice(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + self.inner(x.flip(-1))

    model = Twice(BY_NAME["torch-pre"].model())
    with pytest.raises(PointError, match=r"Twice runs its torch-encoder-pre .* more than once .* give the inner model"):
        watch(view(model), ["blocks.0.pre"], lambda: model(torch.randn(2, 3, 32)))


@pytest.mark.parametrize("name", ["hf-vit-classifier", "bert-mlm", "llama-lm"])
def test_calling_the_backbone_inside_a_wrapper_works_too(name: str) -> None:
    case = BY_NAME[name]
    v = view(case.model())
    assert v.backbone is not v.model
    fired: list[str] = []
    with hook_points(v, v.points, lambda point, x: fired.append(point)):
        call(v.backbone, case.inputs())
    assert set(fired) == set(v.points)


@every_case([case for case in SEQUENCE_CASES if "token-first" in case.name])
def test_token_first_features_come_batch_first(case: Case) -> None:
    v = view(case.model())
    seen: dict[str, Tensor] = {}
    with hook_points(v, v.points, seen.__setitem__):
        out = call(v.model, case.inputs())
    assert seen["blocks.0.pre"].shape == (2, 7, 32)
    assert seen["blocks.1.pre"] is seen["blocks.0.post"]
    assert torch.equal(seen[v.points[-1]].transpose(0, 1), out)


def test_features_keep_their_gradients() -> None:
    case = BY_NAME["timm-vit"]
    v = view(case.model())
    losses: list[Tensor] = []
    with hook_points(v, ["blocks.2.post"], lambda point, x: losses.append(x.square().mean())):
        call(v.model, case.inputs())
    losses[0].backward()
    assert v.layers[0].weights().w_v.requires_grad
    assert v.layers[0].attention.qkv.weight.grad.abs().sum() > 0  # type: ignore[union-attr]


def test_unbatched_features_are_refused() -> None:
    v = view(BY_NAME["torch-pre"].model())
    with pytest.raises(PointError, match=r"expected features of shape \(batch, token, dim\), got \(7, 32\)"):
        watch(v, ["blocks.0.pre"], lambda: v.model(torch.randn(7, 32)))


def test_gradient_checkpointing_does_not_disturb_the_forward_pass() -> None:
    case = BY_NAME["bert"]
    model: Any = case.model().train()
    checkpoint_activations(model)
    v = view(model)
    fired: list[str] = []
    with hook_points(v, v.points, lambda point, x: fired.append(point)):
        out = model(**case.inputs())
    assert sorted(fired) == sorted(v.points)
    out.last_hidden_state.sum().backward()


def test_residual_points_are_the_distinct_states_of_the_stream() -> None:
    v = view(BY_NAME["timm-vit"].model())
    stream = [f"blocks.{i}.{kind}" for i in range(3) for kind in ("mid", "post")]
    assert select_points(v, "residual") == ("embed", *stream)
    assert select_points(v, "all") == v.points
    bare = view(BY_NAME["whisper"].model())
    assert select_points(bare)[0] == "blocks.0.pre"


def test_points_are_chosen_by_name_and_pattern_in_forward_order() -> None:
    v = view(BY_NAME["timm-vit"].model())
    assert select_points(v, "blocks.*.attn") == ("blocks.0.attn", "blocks.1.attn", "blocks.2.attn")
    assert select_points(v, ["final_norm", "blocks.1.*norm2", "embed"]) == ("embed", "blocks.1.norm2", "final_norm")
    assert split_point("blocks.12.mid") == (12, "mid")


@pytest.mark.parametrize("batch", [ids, padded])
def test_every_pass_through_a_shared_layer_counts(batch: Callable[[], dict[str, Tensor]]) -> None:
    v = view(BY_NAME["albert-groups"].model())
    assert len(v.layers) == 10
    assert len({id(layer.block) for layer in v.layers}) == 4
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(v, select_points(v), seen.__setitem__):
        call(v.model, batch())
    states = [seen[f"blocks.{i}.post"] for i in range(10)]
    assert all(not torch.equal(a, b) for a, b in pairwise(states))


def test_an_averaging_vit_has_no_final_norm() -> None:
    assert "final_norm" not in view(BY_NAME["timm-avg-pool"].model()).points
