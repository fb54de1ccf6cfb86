"""Models and blocks that no row can describe, with the reason."""

from __future__ import annotations

from unsmooth.models.family import Refusal

REFUSED: tuple[Refusal, ...] = (
    Refusal(
        ("timm.ParallelScalingBlock", "timm.DiffParallelScalingBlock"),
        "projects attention and MLP by one weight (out_proj), so what each adds to the stream does not exist by itself",
    ),
    Refusal(
        ("timm.ParallelThingsBlock",),
        "runs several attentions side by side in one layer, so a layer has no single attention output",
    ),
    Refusal(
        (
            "timm.DaVit",
            "timm.GlobalContextVit",
            "timm.Hiera",
            "timm.HieraDet",
            "timm.Levit",
            "timm.MultiScaleVit",
            "timm.Nest",
            "timm.PoolingVisionTransformer",
            "timm.PyramidVisionTransformerV2",
            "timm.SwinTransformer",
            "timm.SwinTransformerV2",
            "timm.SwinTransformerV2Cr",
            "timm.TinyVit",
            "timm.Twins",
            "torchvision.MViT",
            "torchvision.SwinTransformer",
            "transformers.CvtModel",
            "transformers.DonutSwinModel",
            "transformers.HieraModel",
            "transformers.PvtModel",
            "transformers.PvtV2Model",
            "transformers.SegformerModel",
            "transformers.Swinv2Model",
            "transformers.SwinModel",
        ),
        "merges tokens between its stages, so their number and the width change with depth and no one stream of tokens "
        "runs through all layers: take a model that keeps its tokens, as ViT does",
    ),
)
