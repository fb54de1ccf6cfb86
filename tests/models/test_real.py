"""The real pretrained models: the same identities, on weights that were trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from unsmooth.metrics.tolerance import tolerance
from unsmooth.models import check_attention, hook_points, view
from unsmooth.models.forward import call, evaluating, to_model
from unsmooth.sources import LoadedModel, load_model

TEXTS = ["Tokens become alike.", "In deep networks, some tokens become more and more alike; others do not."]


def tokens(loaded: LoadedModel) -> dict[str, Tensor]:
    return dict(loaded.tokenizer(TEXTS, padding=True, return_tensors="pt"))


def reaction(loaded: LoadedModel) -> dict[str, Tensor]:
    ids = torch.randint(5, loaded.vocabulary, (2, 24))
    mask = torch.ones_like(ids)
    mask[0, 15:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def picture(loaded: LoadedModel) -> Tensor:
    return torch.randn(2, 3, loaded.images.size, loaded.images.size)


REAL = {
    "dinov2-s14": ("timm:vit_small_patch14_dinov2", "timm-vit", 12, picture),
    "mpnet-base": ("hf:", "hf-mpnet", 12, tokens),
    "albert-rxn": ("hf:", "hf-albert", 12, reaction),
    "smollm2-135m": ("hf:", "hf-llama", 30, tokens),
}


@pytest.mark.real
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", REAL)
def test_identities_and_reconstruction_hold_on_trained_weights(
    name: str, dtype: torch.dtype, real_models: Path
) -> None:
    reference, family, layers, make = REAL[name]
    if not (real_models / name).is_dir():
        pytest.skip(f"{name} is not in {real_models}")
    loaded = _load(reference, real_models / name, dtype)
    v, batch = view(loaded.model), make(loaded)
    assert (v.family.name, len(v.layers)) == (family, layers)
    assert check_attention(v, batch) <= tolerance(dtype, 1)
    _assert_identities(v, batch, dtype)


def _load(reference: str, folder: Path, dtype: torch.dtype) -> LoadedModel:
    if reference.startswith("timm:"):
        return load_model(reference, folder / "model.safetensors", dtype=dtype, options={"img_size": 126})
    return load_model(f"{reference}{folder}", dtype=dtype)


def _assert_identities(v: Any, batch: Any, dtype: torch.dtype) -> None:
    sums = (("pre", "attn", "attn_sum"), ("mid", "mlp", "mlp_sum"))
    if v.family.placement == "pre":
        sums = (("pre", "attn", "mid"), ("mid", "mlp", "post"))
    x: dict[str, Tensor] = {}
    with evaluating(v.model), hook_points(v, v.points, x.__setitem__):
        call(v.model, to_model(batch, v.model))
    for i in range(len(v.layers)):
        for stream, added, total in sums:
            a, b, c = (x[f"blocks.{i}.{point}"].double() for point in (stream, added, total))
            assert ((a + b - c).abs() <= tolerance(dtype, 1) * (a.abs() + b.abs())).all()
        assert i == 0 or x[f"blocks.{i}.pre"] is x[f"blocks.{i - 1}.post"]
