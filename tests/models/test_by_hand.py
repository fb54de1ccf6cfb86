"""Points beside hooks written by hand on other modules: the last linear map of a branch, the norm behind a sum."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_cases import CASES
from torch import Tensor, nn

from unsmooth.models import hook_points, view
from unsmooth.models.forward import call

BY_NAME = {case.name: case for case in CASES}
#: Blocks, then for attn and mlp: the module whose output is added (and what it is multiplied by), in eval mode.
BRANCHES: dict[str, tuple[str, str, str]] = {
    "splinter": ("encoder.layer", "attention.output.dense", "output.dense"),
    "rembert": ("encoder.layer", "attention.output.dense", "output.dense"),
    "tapas": ("encoder.layer", "attention.output.dense", "output.dense"),
    "big-bird": ("encoder.layer", "attention.output.dense", "output.dense"),
    "megatron-bert": ("encoder.layer", "attention.output.dense", "output.dense"),
    "roberta-prelayernorm": ("encoder.layer", "attention.output.dense", "output.dense"),
    "xlm-roberta-xl": ("encoder.layer", "attention.output.dense", "output.dense"),
    "nomic-bert": ("layers", "self_attn.o_proj", "mlp.down_proj"),
    "openai-gpt": ("h", "attn.c_proj", "mlp.c_proj"),
    "ctrl": ("h", "multi_head_attention.dense", "ffn.2"),
    "vaultgemma": ("layers", "self_attn.o_proj", "mlp.down_proj"),
    "modernbert-decoder": ("layers", "attn.Wo", "mlp.Wo"),
    "unispeech": ("encoder.layers", "attention.out_proj", "feed_forward.output_dense"),
    "sew": ("encoder.layers", "attention.out_proj", "feed_forward.output_dense"),
    "sew-d": ("encoder.encoder.layer", "attention.output.dense", "output.dense"),
    "moonshine": ("layers", "self_attn.o_proj", "mlp.fc2"),
    "speech-to-text": ("encoder.layers", "self_attn.out_proj", "fc2"),
    "umt5": ("encoder.block", "layer.0.SelfAttention.o", "layer.1.DenseReluDense.wo"),
    "videomae": ("encoder.layer", "attention.output.dense", "output.dense"),
    "vjepa2": ("encoder.layer", "attention.proj", "mlp.fc2"),
    "dpt": ("encoder.layer", "attention.output.dense", "output.dense"),
    "vilt": ("encoder.layer", "attention.output.dense", "output.dense"),
    "internvl": ("encoder.layer", "attention.projection_layer*lambda_1", "mlp.fc2*lambda_2"),
    "data2vec-vision": ("encoder.layer", "attention.output.dense*lambda_1", "output.dense*lambda_2"),
    "aimv2": ("encoder.layers", "attention.out_proj", "ffn.down_proj"),
    "owlvit-vision": ("vision_model.encoder.layers", "self_attn.out_proj", "mlp.fc2"),
}


def outputs(model: nn.Module, paths: dict[str, nn.Module], batch: Any) -> dict[str, Tensor]:
    """What each module puts out in one forward pass, by a hook of its own."""
    seen: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, args, output: seen.__setitem__(name, output)

    handles = [module.register_forward_hook(keep(name)) for name, module in paths.items()]
    torch.manual_seed(2)  # ViLT chooses its patches at random
    with torch.no_grad():
        call(model, batch)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.parametrize("name", BRANCHES)
def test_what_is_added_is_the_last_linear_map_of_its_branch(name: str) -> None:
    case = BY_NAME[name]
    model, batch = case.model(torch.float64), case.inputs(torch.float64)
    blocks, *branches = BRANCHES[name]
    v = view(model)
    seen: dict[str, Tensor] = {}
    torch.manual_seed(2)
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__):
        call(model, batch)
    listed: Any = model.get_submodule(blocks)
    assert [layer.block for layer in v.layers] == list(listed)
    for point, branch in zip(("attn", "mlp"), branches, strict=True):
        path, _, factor = branch.partition("*")
        by_hand = outputs(model, {str(i): block.get_submodule(path) for i, block in enumerate(listed)}, batch)
        for i, block in enumerate(listed):
            expected = by_hand[str(i)] * (getattr(block, factor) if factor else 1)
            torch.testing.assert_close(seen[f"blocks.{i}.{point}"], expected.reshape(seen[f"blocks.{i}.{point}"].shape))
