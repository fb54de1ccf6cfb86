"""Rows for the encoders of encoder-decoders (Whisper, BART, T5, …) and encoders alike; decoders have no row."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps
from unsmooth.models.taps import into, out

WHISPER_ENCODER = Family(
    name="hf-whisper-encoder",
    classes=(
        "transformers.WhisperEncoder",
        "transformers.Speech2TextEncoder",
        "transformers.Qwen2AudioEncoder",
        "transformers.VoxtralEncoder",
    ),
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
    classes=(
        "transformers.BartEncoder",
        "transformers.MarianEncoder",
        "transformers.BlenderbotSmallEncoder",
        "transformers.PLBartEncoder",
    ),
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
    classes=("transformers.T5Stack", "transformers.MT5Stack", "transformers.SwitchTransformersStack"),
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
assert _T5_ENCODER.attention is not None
_UMT5_ENCODER = replace(  # a position bias in every layer, so none to hand on between the two outputs
    _T5_ENCODER,
    name="hf-umt5-encoder",
    classes=("transformers.UMT5Stack",),
    attention=replace(
        _T5_ENCODER.attention,
        maps=replace(eager_maps("layer.0.SelfAttention"), call_with={"output_attentions": True}),
    ),
)

FAMILIES: tuple[Family, ...] = (
    WHISPER_ENCODER,
    _MBART_ENCODER,
    _BART_ENCODER,
    _T5_ENCODER,
    _UMT5_ENCODER,
)
