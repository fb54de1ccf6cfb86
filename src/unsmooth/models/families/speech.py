"""Rows for Hugging Face's speech encoders: wav2vec 2.0 and its relatives, SEW-D, Moonshine, GLM-ASR."""

from __future__ import annotations

from unsmooth.models.families.decoders import LLAMA
from unsmooth.models.families.text import DEBERTA_V2
from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps, hf, post_norm, pre_norm
from unsmooth.models.taps import out

_WAV2VEC2 = Family(
    name="hf-wav2vec2",
    classes=hf("Wav2Vec2Encoder HubertEncoder Data2VecAudioEncoder UniSpeechEncoder UniSpeechSatEncoder SEWEncoder"),
    placement="post",
    blocks="layers",
    embed=out("dropout"),
    points=post_norm("dropout", "layer_norm", "feed_forward", "final_layer_norm"),
    attention=AttentionRow(
        module="attention",
        value=Slot("attention.v_proj"),
        proj=Slot("attention.out_proj"),
        heads="attention.num_heads",
        post_norm="layer_norm",
        maps=eager_maps("attention"),
    ),
)
_WAV2VEC2_STABLE = _WAV2VEC2.like(
    "hf-wav2vec2-stable",
    hf(
        "Wav2Vec2EncoderStableLayerNorm HubertEncoderStableLayerNorm UniSpeechEncoderStableLayerNorm "
        "UniSpeechSatEncoderStableLayerNorm"
    ),
    placement="pre",
    when={"adapter_layer": None},
    points=pre_norm("layer_norm", "dropout", "final_layer_norm", "feed_forward"),
    final_norm=out("layer_norm"),
    attention={"norm": "layer_norm", "post_norm": ()},
)
# Measured, and its weights read, but without matrices: its attention gives the mean over heads, repeated for each head.
_WAVLM = _WAV2VEC2.like("hf-wavlm", hf("WavLMEncoder"), attention={"maps": None})
_WAVLM_STABLE = _WAV2VEC2_STABLE.like("hf-wavlm-stable", hf("WavLMEncoderStableLayerNorm"), attention={"maps": None})

# DeBERTa's blocks on shortened speech
_SEW_D = DEBERTA_V2.like("hf-sew-d", hf("SEWDEncoder"), embed=())

_MOONSHINE = LLAMA.like("hf-moonshine-encoder", hf("MoonshineEncoder"), embed=(), final_norm=out("layer_norm"))
_GLM_ASR = _MOONSHINE.like("hf-glm-asr-encoder", hf("GlmAsrEncoder"), final_norm=out("norm"))
