"""Rows for the encoders of encoder-decoders (Whisper, BART, T5, …) and of speech models; decoders have no row."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps
from unsmooth.models.taps import into, out

WHISPER_ENCODER = Family(
    name="hf-whisper-encoder",
    classes=("transformers.WhisperEncoder",),
    blocks="layers",
    points={
        "norm1": out("self_attn_layer_norm"),
        "attn": out("self_attn"),
        "mid": into("final_layer_norm"),
        "norm2": out("final_layer_norm"),
        "mlp": out("fc2"),
    },
    final_norm=out("layer_norm"),
    attention=AttentionRow(
        module="self_attn",
        value=Slot("self_attn.v_proj"),
        proj=Slot("self_attn.out_proj"),
        heads="self_attn.num_heads",
        norm="self_attn_layer_norm",
        maps=eager_maps("self_attn"),
    ),
    width="config.d_model",
    eval_only=("attn", "mlp"),
)
assert WHISPER_ENCODER.attention is not None
_MBART_ENCODER = replace(
    WHISPER_ENCODER,
    name="hf-mbart-encoder",
    classes=(
        "transformers.MBartEncoder",
        "transformers.PegasusEncoder",
        "transformers.M2M100Encoder",
        "transformers.BlenderbotEncoder",
    ),
)
_BART_ENCODER = replace(
    WHISPER_ENCODER,
    name="hf-bart-encoder",
    classes=("transformers.BartEncoder", "transformers.MarianEncoder", "transformers.BlenderbotSmallEncoder"),
    placement="post",
    points={
        "attn": out("self_attn"),
        "attn_sum": into("self_attn_layer_norm"),
        "mid": out("self_attn_layer_norm"),
        "mlp": out("fc2"),
        "mlp_sum": into("final_layer_norm"),
    },
    final_norm=(),
    attention=replace(WHISPER_ENCODER.attention, norm=(), post_norm="self_attn_layer_norm"),
)

_T5_ENCODER = Family(
    name="hf-t5-encoder",
    classes=("transformers.T5Stack", "transformers.MT5Stack"),
    blocks="block",
    when={"is_decoder": False},
    embed=out("dropout", 1, of=2),  # the second call is on the final norm's output
    points={
        "norm1": out("layer.0.layer_norm"),
        "attn": out("layer.0.dropout"),
        "mid": into("layer.1.layer_norm"),
        "norm2": out("layer.1.layer_norm"),
        "mlp": out("layer.1.dropout"),
    },
    final_norm=out("final_layer_norm"),
    attention=AttentionRow(
        module="layer.0.SelfAttention",
        value=Slot("layer.0.SelfAttention.v"),
        proj=Slot("layer.0.SelfAttention.o"),
        heads="layer.0.SelfAttention.n_heads",
        norm="layer.0.layer_norm",
        maps=replace(
            eager_maps("layer.0.SelfAttention"),
            tap=out("layer.0.SelfAttention", item=2),  # the second output is the position bias
            call_with={"output_attentions": True},
        ),
    ),
    width="config.d_model",
)

_WAV2VEC2 = Family(
    name="hf-wav2vec2",
    classes=("transformers.Wav2Vec2Encoder", "transformers.HubertEncoder", "transformers.Data2VecAudioEncoder"),
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
    classes=("transformers.Wav2Vec2EncoderStableLayerNorm", "transformers.HubertEncoderStableLayerNorm"),
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

FAMILIES: tuple[Family, ...] = (
    WHISPER_ENCODER,
    _MBART_ENCODER,
    _BART_ENCODER,
    _T5_ENCODER,
    _WAV2VEC2,
    _WAV2VEC2_STABLE,
)
