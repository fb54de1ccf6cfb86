"""A masked language model's training step by short cuts: the same loss and gradients for less (ModernBERT, CUDA).

- Attention with rotary positions is one kernel each way (rotary.py), residual sum and LayerNorm another, and so is the
  gate (rows.py).
- Only hidden tokens reach the head: after the last attention the others are left out.
- Equal layers are compiled once: half a layer at a time, a function of its tensors alone. The step as a whole would
  be compiled layer by layer, which takes longer than many a run can spare.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from unsmooth.control.apply import controls_of
from unsmooth.training.engine.step import Speed
from unsmooth.training.engine.task import FastPath
from unsmooth.training.fast.shortcuts import unseen

Tokens = Float[Tensor, "row token dim"]
HEAD_DIMS = (32, 64, 128)


class FastEncoder(FastPath):
    """The loss of a `ModernBertForMaskedLM` of the plain kind: full attention, no biases, no dropout."""

    def __init__(self, model: Any, speed: Speed, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model, self.dtype = model, dtype
        self.heads = model.config.num_attention_heads
        wrap: Callable[..., Any] = _as_it_is
        self.compiles = speed.compile_mode is not None
        if self.compiles and next(model.parameters()).device.type == "cuda":
            torch.compiler.reset()
            wrap = torch.compile(dynamic=False, fullgraph=True)
        self._attend, self._transform, self._score = wrap(_attend), wrap(_transform), wrap(_score)
        self._controls = [control for _, control in controls_of(model)]

    def loss(
        self,
        inputs: Int64[Tensor, "row token"],
        positions: Int64[Tensor, "row hidden"],
        targets: Int64[Tensor, "row hidden"],
    ) -> Float[Tensor, ""]:
        """Cross-entropy of the hidden tokens."""
        model, layers = self.model.model, self.model.model.layers
        cos, sin = self._angles(inputs.shape[1], inputs.device)
        for control in self._controls:  # its hooks are those of layers, which are not called here
            control.fill(self.model, ())
        try:
            stream, branch = model.embeddings(inputs), None
            for layer in layers[:-1]:
                stream, mixed = self._first_half(layer, stream, branch, cos, sin)
                stream, branch = self._second_half(layer, stream, mixed)
            stream, mixed = self._first_half(layers[-1], stream, branch, cos, sin)
            rows = (torch.arange(len(inputs), device=inputs.device)[:, None] * inputs.shape[1] + positions).flatten()
            stream, mixed = (Picked.apply(t.flatten(0, 1), rows).view(*positions.shape, -1) for t in (stream, mixed))
            stream, branch = self._second_half(layers[-1], stream, mixed)
        finally:
            for control in self._controls:
                control.clear(self.model, (), None)
        norm, head = model.final_norm, self.model.head
        loss: Tensor = self._score(
            stream, branch, norm.weight, norm.eps, self._weight(head.dense), head.norm.weight, head.norm.eps,
            self._weight(self.model.decoder), targets.flatten(),
        )  # fmt: skip
        return loss

    def _weight(self, layer: Any) -> Tensor:
        return layer.weight.to(self.dtype)  # type: ignore[no-any-return]

    def _first_half(self, layer: Any, stream: Tokens, branch: Tokens | None, cos: Tensor, sin: Tensor) -> Any:
        gamma, eps = (None, 0.0) if branch is None else (layer.attn_norm.weight, layer.attn_norm.eps)
        return self._attend(stream, branch, gamma, eps, self._weight(layer.attn.Wqkv), cos, sin, self.heads)

    def _second_half(self, layer: Any, stream: Tokens, mixed: Tokens) -> Any:
        weights = (self._weight(linear) for linear in (layer.attn.Wo, layer.mlp.Wi, layer.mlp.Wo))
        return self._transform(stream, mixed, layer.mlp_norm.weight, layer.mlp_norm.eps, *weights)

    def _angles(self, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
        frequencies = self.model.model.rotary_emb.full_attention_inv_freq.float()
        angles = torch.arange(tokens, device=device).float()[:, None] * frequencies
        scaling = self.model.model.rotary_emb.full_attention_attention_scaling
        return angles.cos() * scaling, angles.sin() * scaling

    def describe(self) -> dict[str, Any]:
        """What is taken."""
        return {"attention": "rotary kernel", "hidden_tokens_only": True, "fused": True}


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


class Picked(torch.autograd.Function):
    """Rows, each at most once: their gradient is written where they came from, and nothing has to be added up."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "row dim"], rows: Int64[Tensor, " picked"]) -> Float[Tensor, "picked dim"]:
        ctx.save_for_backward(rows)
        ctx.count = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "picked dim"]) -> tuple[Float[Tensor, "row dim"], None]:
        (rows,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.count, gradient.shape[1]).index_copy_(0, rows, gradient), None


def _attend(
    stream: Tokens, branch: Tokens | None, gamma: Tensor | None, eps: float, w_qkv: Tensor, cos: Tensor, sin: Tensor,
    heads: int,
) -> tuple[Tokens, Tokens]:  # fmt: skip
    """The residual stream, and what attention mixes, before its projection. The first layer has no norm."""
    from unsmooth.training.fast.rotary import rotary_attention
    from unsmooth.training.fast.rows import Pending, add_norm

    if branch is None or gamma is None:
        normed = stream.to(w_qkv.dtype)
    else:
        stream, normed = add_norm(Pending(stream, branch), gamma, None, eps)
    return stream, rotary_attention(F.linear(normed, w_qkv), cos, sin, heads)


def _transform(
    stream: Tokens, mixed: Tokens, gamma: Tensor, eps: float, w_o: Tensor, w_in: Tensor, w_out: Tensor
) -> tuple[Tokens, Tokens]:
    """Projection, residual sum, norm and the gated feed-forward, whose sum the next norm does."""
    from unsmooth.training.fast.rows import Pending, add_norm, gate

    stream, normed = add_norm(Pending(stream, F.linear(mixed, w_o)), gamma, None, eps)
    return stream, F.linear(gate(F.linear(normed, w_in)), w_out)


def _score(
    stream: Tokens, branch: Tokens, gamma: Tensor, eps: float, w_dense: Tensor, head_gamma: Tensor, head_eps: float,
    w_decoder: Tensor, targets: Int64[Tensor, " hidden"],
) -> Float[Tensor, ""]:  # fmt: skip
    """Final norm, head, decoder and loss."""
    from unsmooth.training.fast.rows import Pending, add_norm

    _, normed = add_norm(Pending(stream, branch), gamma, None, eps)
    hidden = F.gelu(F.linear(normed, w_dense))
    hidden = F.layer_norm(hidden.float(), head_gamma.shape, head_gamma, None, head_eps).to(normed.dtype)
    logits = F.linear(hidden.flatten(0, 1), w_decoder)
    return F.cross_entropy(logits.float(), targets)


def fits(model: Any, tokens: int) -> bool:
    """Whether the model is of this kind, nothing but `control` has hooks in it, and our kernels run on its device."""
    try:
        from transformers import ModernBertForMaskedLM
    except ImportError:
        return False
    if type(model) is not ModernBertForMaskedLM or find_spec("triton") is None:
        return False
    config = model.config
    drops = (config.embedding_dropout, config.mlp_dropout, config.attention_dropout)
    biases = (config.attention_bias, config.mlp_bias, config.norm_bias, config.decoder_bias, config.classifier_bias)
    plain = set(config.layer_types) == {"full_attention"} and not any(drops) and not any(biases)
    words = (config.hidden_activation, config.classifier_activation) == ("gelu", "gelu")
    heads, dim = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    if not (plain and words and dim in HEAD_DIMS and unseen(model)):
        return False
    from unsmooth.training.fast.supports import supports

    return supports(next(model.parameters()).device, tokens, heads, dim, rotary=True)
