"""Which points each family has: none goes missing unnoticed, and a norm is taken from what normalises the stream."""

from __future__ import annotations

import torch
from model_cases import CASES, Case, every_case
from model_cases.decoders import MEASURED_CASES
from torch import Tensor

from unsmooth.models import hook_points
from unsmooth.models.family import BLOCK_POINTS
from unsmooth.models.forward import call

#: The normalisation is on the branch's output; its input is the bare stream.
BARE_STREAM = {"timm-vit-relpos-respost", "timm-vit-respost", "timm-eva-postnorm", "hf-olmo2"}
#: Positions are added, or dropped out, by a function: no module puts out what the first block gets.
NO_EMBED = {
    "hf-bart-encoder", "hf-glm-asr-encoder", "hf-layoutlmv3", "hf-mbart-encoder", "hf-moonshine-encoder", "hf-opt",
    "hf-opt-post", "hf-sew-d", "hf-whisper-encoder", "hf-xglm", "timm-deepseek-vit", "timm-qwen3-vit",
    "timm-vit-relpos", "timm-vit-relpos-respost", "torch-encoder-post", "torch-encoder-pre",
}  # fmt: skip
#: Pre-norm models that normalise the pooled token only.
POOLED_NORM = {
    "altclip-vision", "chineseclipvision", "clipseg-vision", "data2vec-vision", "hf-beit", "hf-beit-no-scale",
    "hf-clip-vision", "internvl", "metaclip2vision", "mlcdvision", "owlvit-vision", "owlv2-vision", "timm-avg-pool",
    "timm-beit", "timm-eva02", "timm-naflexvit", "timm-qwen3-vit", "timm-relpos", "timm-relpos-respost", "videomae",
}  # fmt: skip
EVERY = [*CASES, *MEASURED_CASES]


@every_case(EVERY)
def test_no_point_goes_missing(case: Case) -> None:
    v = case.seen()
    absent = {"norm1", "norm2"} if case.family in BARE_STREAM else set()
    last = len(v.layers) - 1
    expected = [point for point in BLOCK_POINTS[v.family.placement] if point not in absent]
    assert [p.rpartition(".")[2] for p in v.points if p.startswith(f"blocks.{last}.")] == expected
    assert ("embed" in v.points) == (case.family not in NO_EMBED)
    if v.family.placement != "post":
        assert ("final_norm" in v.points) == (case.name not in POOLED_NORM)


@every_case([case for case in EVERY if case.family not in BARE_STREAM])
def test_norms_are_those_of_the_stream(case: Case) -> None:
    """The module whose output is norm2 gives it from mid (from pre in a parallel block), and norm1 from pre."""
    v = case.seen()
    seen: dict[str, Tensor] = {}
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__):
        call(v.model, case.inputs())
    for layer in v.layers:
        for point, source in (("norm1", "pre"), ("norm2", "mid" if v.family.placement == "pre" else "pre")):
            spot = layer.spot(point)
            if spot is not None:
                with torch.no_grad():
                    again = spot.module.forward(seen[f"blocks.{layer.index}.{source}"])
                assert torch.allclose(again, seen[f"blocks.{layer.index}.{point}"], atol=1e-5)
