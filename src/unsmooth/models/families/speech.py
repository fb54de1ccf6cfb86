"""Rows for Hugging Face's speech encoders: wav2vec 2.0 and its relatives, SEW-D, Moonshine."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.families.decoders import LLAMA
from unsmooth.models.families.text import DEBERTA_V2
from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps
from unsmooth.models.taps import into, out

_WAV2VEC2 = Family(
    name="hf-wav2vec2",
    classes=(
        "transformers.Wav2Vec2Encoder",
        "transformers.HubertEncoder",
        "transformers.Data2VecAudioEncoder",
        "transformers.UniSpeechEncoder",
        "transformers.UniSpeechSatEncoder",
        "transformers.SEWEncoder",
    ),
    placement="post",
    blocks="layers",
    embed=out("dropout"),
    points={
        "attn": out("dropout"),
        "attn_sum": into("layer_norm"),
        "mid": out("layer_norm"),
        "mlp": out("feed_forward"),
        "mlp_sum": into("final_layer_norm"),
    },
    attention=AttentionRow(
        module="attention",
        value=Slot("attention.v_proj"),
        proj=Slot("attention.out_proj"),
        heads="attention.num_heads",
        post_norm="layer_norm",
        maps=eager_maps("attention"),
    ),
)
assert _WAV2VEC2.attention is not None
_WAV2VEC2_STABLE = replace(
    _WAV2VEC2,
    name="hf-wav2vec2-stable",
    classes=(
        "transformers.Wav2Vec2EncoderStableLayerNorm",
        "transformers.HubertEncoderStableLayerNorm",
        "transformers.UniSpeechEncoderStableLayerNorm",
        "transformers.UniSpeechSatEncoderStableLayerNorm",
    ),
    placement="pre",
    when={"adapter_layer": None},
    points={
        "norm1": out("layer_norm"),
        "attn": out("dropout"),
        "mid": into("final_layer_norm"),
        "norm2": out("final_layer_norm"),
        "mlp": out("feed_forward"),
    },
    final_norm=out("layer_norm"),
    attention=replace(_WAV2VEC2.attention, norm="layer_norm", post_norm=()),
)
assert _WAV2VEC2_STABLE.attention is not None
# Measured, and its weights read, but without matrices: its attention gives the mean over heads, repeated for each head.
_WAVLM = replace(
    _WAV2VEC2,
    name="hf-wavlm",
    classes=("transformers.WavLMEncoder",),
    attention=replace(_WAV2VEC2.attention, maps=None),
)
_WAVLM_STABLE = replace(
    _WAV2VEC2_STABLE,
    name="hf-wavlm-stable",
    classes=("transformers.WavLMEncoderStableLayerNorm",),
    attention=replace(_WAV2VEC2_STABLE.attention, maps=None),
)

_SEW_D = replace(  # DeBERTa's blocks on shortened speech
    DEBERTA_V2,
    name="hf-sew-d",
    classes=("transformers.SEWDEncoder",),
    embed=(),
)

assert LLAMA.attention is not None
_MOONSHINE = replace(
    LLAMA,
    name="hf-moonshine-encoder",
    classes=("transformers.MoonshineEncoder",),
    embed=(),
    final_norm=out("layer_norm"),
)

FAMILIES: tuple[Family, ...] = (_WAV2VEC2, _WAV2VEC2_STABLE, _WAVLM, _WAVLM_STABLE, _SEW_D, _MOONSHINE)
