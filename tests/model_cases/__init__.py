"""Small models of every family, with batches; the shared tests run over all of them."""

from __future__ import annotations

import pytest
import torch

from model_cases.builders import (
    _DEBERTA,
    _ENCODER_DECODER,
    _EXPERTS,
    _NEO,
    _OPT,
    _SIGLIP2,
    _SPEECH,
    _T5,
    BATCH,
    DECODER,
    F32,
    GEMMA,
    GEMMA_MIXED,
    HEADS,
    LAYERS,
    TEXT,
    TOKENS,
    VISION,
    VOCAB,
    Case,
    D,
    _causal_sequence,
    _encoder,
    _padded_sequence,
    _patches,
    _relpos_respost,
    _sequence,
    _timm,
    _timm_block,
    _torchvision,
    _waves,
    hf,
    ids,
    images,
    padded,
    pixels,
    scripted,
)
from model_cases.decoders import DECODER_CASES
from model_cases.encoders import ENCODER_CASES
from model_cases.relatives import RELATIVE_CASES

VISION_CASES = [
    Case("timm-vit", "timm-vit", _timm(), images, prefix=1),
    Case("timm-deit-distilled", "timm-vit", _timm("deit_tiny_distilled_patch16_224"), images, prefix=2),
    Case("timm-deit3", "timm-vit", _timm("deit3_small_patch16_224"), images, prefix=1),
    Case("timm-registers", "timm-vit", _timm(reg_tokens=4, no_embed_class=True, init_values=0.1), images, prefix=5),
    Case("timm-clip-qknorm", "timm-vit", _timm(pre_norm=True, qk_norm=True, qkv_bias=False), images, prefix=1),
    Case("timm-avg-pool", "timm-vit", _timm(class_token=False, global_pool="avg"), images),
    Case("timm-parallel", "timm-vit-parallel", _timm_block("ParallelScalingBlock"), images, prefix=1),
    Case(
        "timm-parallel-scaled",
        "timm-vit-parallel",
        _timm_block("ParallelScalingBlock", init_values=0.1),
        images,
        prefix=1,
    ),
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

TEXT_CASES += [
    Case("electra", "hf-electra", hf("Electra", embedding_size=16, **TEXT), padded),
    Case("camembert", "hf-roberta", hf("Camembert", **TEXT), padded),
    Case("deberta-v2", "hf-deberta-v2", scripted("DebertaV2", **_DEBERTA), ids),
    Case("deberta", "hf-deberta", scripted("Deberta", **_DEBERTA), padded, norm_dtype=F32),
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

CASES = [*VISION_CASES, *SEQUENCE_CASES, *TEXT_CASES, *DECODER_CASES, *RELATIVE_CASES, *ENCODER_CASES]


def every_case(cases: list[Case] = CASES) -> pytest.MarkDecorator:
    """Run a test over all families."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)
