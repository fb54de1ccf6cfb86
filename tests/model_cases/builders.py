"""How the small models of the shared tests are built, and what they are called with."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unsmooth.models import ModelView, view

D, HEADS, LAYERS, TOKENS, BATCH, VOCAB = 32, 4, 3, 7, 2, 50
NEWER = {
    "Cohere2Moe",
    "Flint",
    "GlmAsrEncoder",
    "GraniteDoclingText",
    "Gte",
    "HYV3",
    "Kolibri1",
    "Mellum",
    "Molmo2Text",
    "OpenAIPrivacyFilter",
    "Pixio",
    "Sapiens2",
    "Tipsv2Text",
    "Tipsv2Vision",
    "Ultrabert",
}  # not in every release that we support


@dataclass(frozen=True)
class Case:
    """A model to build, what to call it with, and what its view must say."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    batch: Callable[[], Any]
    layers: int = LAYERS
    prefix: int = 0
    causal: bool = False
    norm_dtype: torch.dtype | None = None  # families that normalise in this dtype whatever the model's
    grouped: bool = False  # query heads share value heads
    sink: bool = False  # a part of the attention goes to no token

    def model(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model in eval mode, with every parameter random (also the ones that start at 0 or 1)."""
        torch.manual_seed(0)
        model = self.build().eval().to(dtype)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
        return model

    @cache  # noqa: B019  # cases live as long as the tests
    def seen(self, dtype: torch.dtype = torch.float32) -> ModelView:
        """The view of a model that tests share: they leave it as it is."""
        return view(self.model(dtype))

    def inputs(self, dtype: torch.dtype = torch.float32) -> Any:
        torch.manual_seed(1)
        batch = self.batch()
        if isinstance(batch, dict):
            return {k: x.to(dtype) if x.is_floating_point() else x for k, x in batch.items()}
        return batch.to(dtype)


def images(size: int = 16) -> Tensor:
    return torch.randn(BATCH, 3, size, size)


def pixels(size: int = 16) -> dict[str, Tensor]:
    return {"pixel_values": images(size)}


def ids() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(3, VOCAB, (BATCH, TOKENS))}


def padded() -> dict[str, Tensor]:
    mask = torch.ones(BATCH, TOKENS, dtype=torch.long)
    mask[1, 4:] = 0
    return {**ids(), "attention_mask": mask}


def _timm(name: str = "vit_tiny_patch16_224", **kwargs: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        if not timm.is_model(name):
            pytest.skip(f"timm {timm.__version__} has no {name}")
        small = {"img_size": 16, "patch_size": 4, "embed_dim": D, "num_heads": HEADS, "depth": LAYERS}
        return timm.create_model(name, pretrained=False, num_classes=5, **{**small, **kwargs})

    return build


def _timm_block(block: str, **kwargs: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from timm.models import vision_transformer

        return _timm(block_fn=getattr(vision_transformer, block), **kwargs)()

    return build


def _relpos_respost() -> nn.Module:
    from timm.models import vision_transformer_relpos

    return _timm("vit_relpos_small_patch16_224", block_fn=vision_transformer_relpos.ResPostRelPosBlock)()


def _torchvision() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(16, 4, LAYERS, HEADS, D, 2 * D, num_classes=5)


def _encoder(norm_first: bool, batch_first: bool, norm: bool = True) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        layer = nn.TransformerEncoderLayer(D, HEADS, 2 * D, batch_first=batch_first, norm_first=norm_first)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch explains why it will not use nested tensors
            return nn.TransformerEncoder(layer, LAYERS, norm=nn.LayerNorm(D) if norm else None)

    return build


def _sequence(batch_first: bool) -> Callable[[], Any]:
    return lambda: torch.randn((BATCH, TOKENS, D) if batch_first else (TOKENS, BATCH, D))


def _padded_sequence() -> dict[str, Tensor]:
    mask = torch.zeros(BATCH, TOKENS, dtype=torch.bool)
    mask[1, 4:] = True
    return {"src": torch.randn(BATCH, TOKENS, D), "src_key_padding_mask": mask}


def _causal_sequence() -> dict[str, Tensor]:
    mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)
    return {"src": torch.randn(BATCH, TOKENS, D), "mask": mask}


def hf(name: str, config: str | None = None, wrap: str | None = None, **kwargs: Any) -> Callable[[], nn.Module]:
    """A Hugging Face model from a small config; `wrap` names another class than NAMEModel."""

    def build() -> nn.Module:
        import transformers

        if name in NEWER and not hasattr(transformers, wrap or f"{name}Model"):
            pytest.skip(f"transformers {transformers.__version__} has no {name}")
        made = getattr(transformers, config or f"{name}Config")(**kwargs)
        return getattr(transformers, wrap or f"{name}Model")(made)

    return build


def _shapes(**kwargs: Any) -> dict[str, Any]:
    shapes = {
        "num_hidden_layers": LAYERS,
        "hidden_size": D,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * D,
    }
    return {**shapes, **kwargs}


VISION = _shapes(image_size=16, patch_size=4)
TEXT = _shapes(vocab_size=VOCAB, max_position_embeddings=32)
DECODER = {**TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GEMMA = {**DECODER, "head_dim": 12}
GEMMA_MIXED = {
    **GEMMA,
    "sliding_window": 4,  # wider than the padding, so that every query sees a key
    "query_pre_attn_scalar": 8,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
F32 = torch.float32  # Hugging Face's RMSNorms compute in float32 whatever the model's dtype

_SIGLIP2 = _shapes(patch_size=4, num_patches=16)


def _patches() -> dict[str, Tensor]:
    mask = torch.ones(BATCH, 16, dtype=torch.long)
    mask[1, 12:] = 0
    shapes = torch.tensor([[4, 4], [3, 4]])
    return {"pixel_values": torch.randn(BATCH, 16, 48), "pixel_attention_mask": mask, "spatial_shapes": shapes}


_SPEECH = _shapes(
    vocab_size=VOCAB,
    conv_dim=[16, 16],
    conv_stride=[5, 4],
    conv_kernel=[10, 4],
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
    apply_spec_augment=False,  # masks of ten frames, in training
    layerdrop=0.0,
)


def _waves() -> dict[str, Tensor]:
    return {"input_values": torch.randn(BATCH, 200)}


_ENCODER_DECODER = {
    "d_model": D,
    "encoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "encoder_ffn_dim": 2 * D,
    "decoder_layers": 1,
    "decoder_attention_heads": HEADS,
    "decoder_ffn_dim": D,
    "vocab_size": VOCAB,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
_T5 = {"d_model": D, "d_kv": 8, "num_layers": LAYERS, "num_heads": HEADS, "d_ff": 2 * D, "vocab_size": VOCAB}
_DEBERTA = {**TEXT, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}


def scripted(name: str, **kwargs: Any) -> Callable[[], nn.Module]:
    """Like `hf`, for modules that script a function with torch.jit, which torch warns of."""

    def build() -> nn.Module:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return hf(name, **kwargs)()

    return build


_OPT = {**TEXT, "ffn_dim": 2 * D, "pad_token_id": 0, "word_embed_proj_dim": D}
_NEO = {"num_layers": LAYERS, "num_heads": HEADS, "attention_types": [[["global", "local", "global"], 1]]}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": D}
_EXPERTS["experts_implementation"] = "eager"  # the fused one knows no float64
