"""Rows for the encoders of encoder-decoders (Whisper, BART, T5, …) and encoders alike; decoders have no row."""

from __future__ import annotations

from dataclasses import replace

from unsmooth.models.family import AttentionRow, Family, Slot, eager_maps, hf, post_norm, pre_norm
from unsmooth.models.taps import into, out

WHISPER_ENCODER = Family(
    name="hf-whisper-encoder",
    classes=hf("WhisperEncoder Speech2TextEncoder Qwen2AudioEncoder VoxtralEncoder"),
    blocks="layers",
    points=pre_norm("self_attn_layer_norm", "self_attn", "final_layer_norm", "fc2"),
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
_MBART_ENCODER = WHISPER_ENCODER.like(
    "hf-mbart-encoder", hf("MBartEncoder PegasusEncoder M2M100Encoder BlenderbotEncoder")
)
_BART_ENCODER = WHISPER_ENCODER.like(
    "hf-bart-encoder",
    hf("BartEncoder MarianEncoder BlenderbotSmallEncoder PLBartEncoder"),
    placement="post",
    points=post_norm("self_attn", "self_attn_layer_norm", "fc2", "final_layer_norm"),
    final_norm=(),
    attention={"norm": (), "post_norm": "self_attn_layer_norm"},
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
# a position bias in every layer, so none to hand on between the two outputs
_UMT5_ENCODER = _T5_ENCODER.like(
    "hf-umt5-encoder",
    hf("UMT5Stack"),
    attention={"maps": replace(eager_maps("layer.0.SelfAttention"), call_with={"output_attentions": True})},
)
