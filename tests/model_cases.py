"""Small models of every family, with batches; the shared tests run over all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

D, HEADS, LAYERS, TOKENS, BATCH, VOCAB = 32, 4, 3, 7, 2, 50


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

    def model(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The model in eval mode, with every parameter random (also the ones that start at 0 or 1)."""
        torch.manual_seed(0)
        model = self.build().eval().to(dtype)
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
        return model

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

        small = {"img_size": 16, "patch_size": 4, "embed_dim": D, "num_heads": HEADS, "depth": LAYERS}
        return timm.create_model(name, pretrained=False, num_classes=5, **{**small, **kwargs})

    return build


def _timm_block(block: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from timm.models import vision_transformer

        return _timm(block_fn=getattr(vision_transformer, block))()

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


VISION_CASES = [
    Case("timm-vit", "timm-vit", _timm(), images, prefix=1),
    Case("timm-deit-distilled", "timm-vit", _timm("deit_tiny_distilled_patch16_224"), images, prefix=2),
    Case("timm-deit3", "timm-vit", _timm("deit3_small_patch16_224"), images, prefix=1),
    Case("timm-registers", "timm-vit", _timm(reg_tokens=4, no_embed_class=True, init_values=0.1), images, prefix=5),
    Case("timm-clip-qknorm", "timm-vit", _timm(pre_norm=True, qk_norm=True, qkv_bias=False), images, prefix=1),
    Case("timm-avg-pool", "timm-vit", _timm(class_token=False, global_pool="avg"), images),
    Case("timm-respost", "timm-vit-respost", _timm_block("ResPostBlock"), images, prefix=1),
    Case(
        "timm-dinov3",
        "timm-eva",
        _timm("vit_small_patch16_dinov3", pretrained_cfg=None),
        images,
        prefix=5,
    ),
    Case("timm-eva02", "timm-eva", _timm("eva02_tiny_patch14_224"), images, prefix=1),
    Case("torchvision-vit", "torchvision-vit", _torchvision, images, prefix=1),
    Case("hf-vit", "hf-vit", hf("ViT", **VISION), pixels, prefix=1),
    Case("hf-vit-classifier", "hf-vit", hf("ViT", wrap="ViTForImageClassification", **VISION), pixels, prefix=1),
    Case("hf-deit", "hf-deit", hf("DeiT", **VISION), pixels, prefix=2),
    Case("hf-dinov2", "hf-dinov2", hf("Dinov2", **VISION), pixels, prefix=1),
    Case(
        "hf-dinov2-registers",
        "hf-dinov2-registers",
        hf("Dinov2WithRegisters", num_register_tokens=4, **VISION),
        pixels,
        prefix=5,
    ),
    Case("hf-dinov3", "hf-dinov3", hf("DINOv3ViT", num_register_tokens=4, **VISION), pixels, prefix=5),
    Case("hf-clip-vision", "hf-clip-vision", hf("CLIPVision", **VISION), pixels, prefix=1),
    Case("hf-siglip-vision", "hf-siglip-vision", hf("SiglipVision", **VISION), pixels),
    Case("timm-beit", "timm-beit", _timm("beit_base_patch16_224"), images, prefix=1),
    Case("timm-relpos", "timm-vit-relpos", _timm("vit_relpos_small_patch16_224"), images),
    Case("timm-relpos-respost", "timm-vit-relpos-respost", _relpos_respost, images),
    Case("timm-naflexvit", "timm-naflexvit", _timm("naflexvit_base_patch16_gap"), images, prefix=4),
    Case("hf-beit", "hf-beit", hf("Beit", use_relative_position_bias=True, **VISION), pixels, prefix=1),
    Case("hf-beit-no-scale", "hf-beit", hf("Beit", layer_scale_init_value=0.0, **VISION), pixels, prefix=1),
    Case("hf-vit-mae", "hf-vit", hf("ViTMAE", mask_ratio=0.0, **VISION), pixels, prefix=1),
    Case("hf-vit-msn", "hf-vit", hf("ViTMSN", **VISION), pixels, prefix=1),
    Case("hf-siglip2-vision", "hf-siglip-vision", hf("Siglip2Vision", **_SIGLIP2), _patches),
]

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


SEQUENCE_CASES = [
    Case("torch-pre", "torch-encoder-pre", _encoder(True, True), _sequence(True)),
    Case("torch-pre-token-first", "torch-encoder-pre", _encoder(True, False), _sequence(False)),
    Case("torch-post", "torch-encoder-post", _encoder(False, True), _sequence(True)),
    Case("torch-post-token-first", "torch-encoder-post", _encoder(False, False, norm=False), _sequence(False)),
    Case("torch-post-padded", "torch-encoder-post", _encoder(False, True), _padded_sequence),
    Case("torch-pre-padded", "torch-encoder-pre", _encoder(True, True), _padded_sequence),
    Case("torch-pre-causal-mask", "torch-encoder-pre", _encoder(True, True), _causal_sequence),
    Case(
        "whisper",
        "hf-whisper-encoder",
        hf(
            "Whisper",
            wrap="WhisperForAudioClassification",
            d_model=D,
            encoder_layers=LAYERS,
            encoder_attention_heads=HEADS,
            encoder_ffn_dim=2 * D,
            decoder_layers=1,
            decoder_attention_heads=HEADS,
            max_source_positions=TOKENS,
            num_mel_bins=6,
            vocab_size=VOCAB,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        ),
        lambda: {"input_features": torch.randn(BATCH, 6, 2 * TOKENS)},
    ),
    Case("wav2vec2", "hf-wav2vec2", hf("Wav2Vec2", **_SPEECH), _waves),
    Case("wav2vec2-ctc", "hf-wav2vec2", hf("Wav2Vec2", wrap="Wav2Vec2ForCTC", **_SPEECH), _waves),
    Case("wav2vec2-stable", "hf-wav2vec2-stable", hf("Wav2Vec2", do_stable_layer_norm=True, **_SPEECH), _waves),
    Case("hubert", "hf-wav2vec2", hf("Hubert", **_SPEECH), _waves),
]

_ALBERT = {**TEXT, "embedding_size": 16}
TEXT_CASES = [
    Case("bert", "hf-bert", hf("Bert", **TEXT), ids),
    Case("bert-padded", "hf-bert", hf("Bert", **TEXT), padded),
    Case("bert-mlm", "hf-bert", hf("Bert", wrap="BertForMaskedLM", **TEXT), padded),
    Case(
        "bert-decoder",
        "hf-bert",
        hf("Bert", wrap="BertLMHeadModel", is_decoder=True, **TEXT),
        padded,
        causal=True,
    ),
    Case("roberta", "hf-roberta", hf("Roberta", **TEXT), padded),
    Case(
        "distilbert",
        "hf-distilbert",
        hf("DistilBert", dim=D, n_layers=LAYERS, n_heads=HEADS, hidden_dim=2 * D, vocab_size=VOCAB),
        padded,
    ),
    Case("albert", "hf-albert", hf("Albert", **_ALBERT), padded),
    Case(
        "albert-groups",
        "hf-albert",
        hf("Albert", **{**_ALBERT, "num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2}),
        ids,
        layers=10,
    ),
    Case("mpnet", "hf-mpnet", hf("MPNet", **TEXT), padded),
    Case("mpnet-mlm", "hf-mpnet", hf("MPNet", wrap="MPNetForMaskedLM", **TEXT), ids),
    Case("modernbert", "hf-modernbert", hf("ModernBert", local_attention=8, pad_token_id=0, **TEXT), padded),
    Case(
        "gpt2",
        "hf-gpt2",
        hf("GPT2", n_layer=LAYERS, n_embd=D, n_head=HEADS, n_positions=32, vocab_size=VOCAB),
        padded,
        causal=True,
    ),
    Case("llama", "hf-llama", hf("Llama", **DECODER), ids, causal=True, norm_dtype=F32, grouped=True),
    Case(
        "llama-lm",
        "hf-llama",
        hf("Llama", wrap="LlamaForCausalLM", **DECODER),
        padded,
        causal=True,
        norm_dtype=F32,
        grouped=True,
    ),
    Case(
        "mistral",
        "hf-llama",
        hf("Mistral", sliding_window=4, **DECODER),
        padded,
        causal=True,
        norm_dtype=F32,
        grouped=True,
    ),
    Case("qwen2", "hf-qwen", hf("Qwen2", **DECODER), padded, causal=True, norm_dtype=F32, grouped=True),
    Case("qwen3", "hf-qwen", hf("Qwen3", head_dim=12, **DECODER), padded, causal=True, norm_dtype=F32, grouped=True),
    Case("gemma", "hf-gemma", hf("Gemma", **GEMMA), padded, causal=True, norm_dtype=F32, grouped=True),
    Case(
        "gemma2",
        "hf-gemma2",
        hf("Gemma2", attn_implementation="eager", **GEMMA_MIXED),
        padded,
        causal=True,
        norm_dtype=F32,
        grouped=True,
    ),
    Case(
        "gemma3",
        "hf-gemma2",
        hf("Gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", **GEMMA_MIXED),
        padded,
        causal=True,
        norm_dtype=F32,
        grouped=True,
    ),
]

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


def _deberta() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers scripts a function with torch.jit
        return hf("DebertaV2", **_DEBERTA)()


_OPT = {**TEXT, "ffn_dim": 2 * D, "pad_token_id": 0, "word_embed_proj_dim": D}
_NEO = {"num_layers": LAYERS, "num_heads": HEADS, "attention_types": [[["global", "local", "global"], 1]]}
_EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": D}
_EXPERTS["experts_implementation"] = "eager"  # the fused one knows no float64

TEXT_CASES += [
    Case("electra", "hf-electra", hf("Electra", embedding_size=16, **TEXT), padded),
    Case("camembert", "hf-roberta", hf("Camembert", **TEXT), padded),
    Case("deberta-v2", "hf-deberta-v2", _deberta, ids),
    Case("esm", "hf-esm", hf("Esm", pad_token_id=0, mask_token_id=1, position_embedding_type="rotary", **TEXT), ids),
    Case("clip-text", "hf-clip-text", hf("CLIPText", eos_token_id=2, **TEXT), padded, causal=True),
    Case("siglip-text", "hf-siglip-text", hf("SiglipText", **TEXT), ids),
    Case("bart", "hf-bart-encoder", hf("Bart", **_ENCODER_DECODER), padded),
    Case("mbart", "hf-mbart-encoder", hf("MBart", **_ENCODER_DECODER), padded),
    Case("t5", "hf-t5-encoder", hf("T5", wrap="T5EncoderModel", **_T5), padded, norm_dtype=F32),
    Case("gpt-neo", "hf-gpt-neo", hf("GPTNeo", window_size=4, **{**TEXT, **_NEO}), ids, causal=True),
    Case("opt", "hf-opt", hf("OPT", **_OPT), padded, causal=True),
    Case("opt-350m", "hf-opt-post", hf("OPT", do_layer_norm_before=False, **_OPT), padded, causal=True),
    *(
        Case(name.lower(), family, hf(name, **DECODER, **extra), padded, causal=True, norm_dtype=F32, grouped=True)
        for name, family, extra in (
            ("Olmo2", "hf-olmo2", {}),
            ("SmolLM3", "hf-llama", {}),
            ("Mixtral", "hf-llama", _EXPERTS),
            ("Qwen3Moe", "hf-qwen", _EXPERTS),
        )
    ),
    Case("eurobert", "hf-llama", hf("EuroBert", **DECODER), padded, norm_dtype=F32, grouped=True),
]

CASES = [*VISION_CASES, *SEQUENCE_CASES, *TEXT_CASES]


def every_case(cases: list[Case] = CASES) -> pytest.MarkDecorator:
    """Run a test over all families."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
