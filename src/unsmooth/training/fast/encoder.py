"""A masked language model's training step by short cuts: the same loss and gradients for less (ModernBERT, CUDA).

- Attention with rotary positions is one kernel each way (rotary.py), and so are the residual sum with LayerNorm
  (add_norm.py) and the gate (gelu.py).
- Only hidden tokens reach the head: after the last attention the others are left out.
- Equal layers are compiled once: half a layer at a time, a function of its tensors alone. The step as a whole would
  be compiled layer by layer, which takes longer than many a run can spare.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Float, Int32, Int64
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from unsmooth.control.reparametrization import controls_of
from unsmooth.training.engine.step import Speed
from unsmooth.training.engine.task import FastPath
from unsmooth.training.fast.shortcuts import unseen

Tokens = Float[Tensor, "row token dim"]
HEAD_DIMS = (32, 64, 128)
OUT_OF_SIGHT = -8192.0  # a score, exact in bfloat16; divided by √k it still leaves a weight of 0 in float32
ASIDE = 8  # features beside a head's own that carry it: attention takes widths in steps of 8
SHAPES = 64  # of batches, each compiled once, that a process may meet


class FastEncoder(FastPath):
    """What a ModernBERT of the plain kind computes: full attention, no biases, no dropout."""

    def __init__(self, model: Any, speed: Speed, dtype: torch.dtype = torch.bfloat16) -> None:
        self.model, self.dtype = model, dtype
        self.encoder = model.base_model
        self.heads = self.encoder.config.num_attention_heads
        wrap: Callable[..., Any] = _as_it_is
        self.compiles = speed.compile_mode is not None and next(model.parameters()).device.type == "cuda"
        if self.compiles:
            wrap = torch.compile(dynamic=False, fullgraph=True)
            torch._dynamo.config.recompile_limit = max(SHAPES, torch._dynamo.config.recompile_limit)
        self._project, self._transform, self._turn = wrap(_project), wrap(_transform), wrap(_turn)
        self._finish, self._score = wrap(_finish), wrap(_score)
        self._controls = [control for _, control in controls_of(model)]

    def loss(
        self,
        inputs: Int64[Tensor, "row token"],
        positions: Int64[Tensor, "row hidden"],
        targets: Int64[Tensor, "row hidden"],
    ) -> Float[Tensor, ""]:
        """Cross-entropy of the hidden tokens of a `ModernBertForMaskedLM`."""
        stream, branch = self._walk(inputs, positions=positions)
        norm, head = self.encoder.final_norm, self.model.head
        loss: Tensor = self._score(
            stream, branch, norm.weight, norm.eps, self._weight(head.dense), head.norm.weight, head.norm.eps,
            self._weight(self.model.decoder), targets.flatten(),
        )  # fmt: skip
        return loss

    def features(self, inputs: Int64[Tensor, "row token"], mask: Bool[Tensor, "row token"]) -> Tokens:
        """The encoder's output; padding stands after the tokens."""
        stream, branch = self._walk(inputs, ends=mask.sum(1, dtype=torch.int32))
        norm = self.encoder.final_norm
        found: Tensor = self._finish(stream, branch, norm.weight, norm.eps)
        return found

    def _walk(
        self, inputs: Tensor, ends: Int32[Tensor, " row"] | None = None, positions: Tensor | None = None
    ) -> tuple[Tokens, Tokens]:
        """The residual stream, and what the last layer adds to it; of these `positions` only, where given."""
        layers, (cos, sin) = self.encoder.layers, self._angles(inputs.shape[1], inputs.device)
        for control in self._controls:  # its hooks are those of layers, which are not called here
            control.fill(self.model, ())
        try:
            stream: Tensor = self.encoder.embeddings(inputs)
            branch: Tensor | None = None
            for layer in layers:
                gamma, eps = (None, 0.0) if branch is None else (layer.attn_norm.weight, layer.attn_norm.eps)
                weight = self._weight(layer.attn.Wqkv)
                stream, qkv = self._project(stream, branch, gamma, eps, weight)
                mixed = self._attention(qkv, cos, sin, ends)
                if positions is not None and layer is layers[-1]:
                    stream, mixed = _picked(positions, stream, mixed)
                weights = (self._weight(linear) for linear in (layer.attn.Wo, layer.mlp.Wi, layer.mlp.Wo))
                stream, branch = self._transform(stream, mixed, layer.mlp_norm.weight, layer.mlp_norm.eps, *weights)
        finally:
            for control in self._controls:
                control.clear(self.model, (), None)
        assert branch is not None
        return stream, branch

    def _attention(self, qkv: Tensor, cos: Tensor, sin: Tensor, ends: Tensor | None) -> Tokens:
        """By our kernel where a sequence is one tile; compiled, PyTorch's with a mask would be taken apart."""
        from unsmooth.training.fast.rotary import LONGEST, rotary_attention

        tokens = qkv.shape[1]
        if tokens <= LONGEST:
            return rotary_attention(qkv, cos, sin, self.heads, ends)
        hidden = None if ends is None else torch.arange(tokens, device=qkv.device) >= ends[:, None]
        q, k, v = self._turn(qkv, cos, sin, self.heads, hidden)
        scale = (qkv.shape[-1] // (3 * self.heads)) ** -0.5
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            mixed = F.scaled_dot_product_attention(q, k, v, scale=scale)
        return mixed[..., : v.shape[-1] - (0 if hidden is None else ASIDE)].transpose(1, 2).flatten(2)

    def _weight(self, layer: Any) -> Tensor:
        weight: Tensor = layer.weight
        return weight.to(self.dtype)

    def _angles(self, tokens: int, device: torch.device) -> tuple[Tensor, Tensor]:
        rotary = self.encoder.rotary_emb
        angles = torch.arange(tokens, device=device).float()[:, None] * rotary.full_attention_inv_freq.float()
        scaling = rotary.full_attention_attention_scaling
        return angles.cos() * scaling, angles.sin() * scaling

    def describe(self) -> dict[str, Any]:
        """What is taken."""
        return {"attention": "rotary kernel", "hidden_tokens_only": True, "fused": True}


def _picked(positions: Int64[Tensor, "row hidden"], *all_tokens: Tokens) -> tuple[Tokens, ...]:
    """Only these positions of each row."""
    count = all_tokens[0].shape[1]
    rows = (torch.arange(len(positions), device=positions.device)[:, None] * count + positions).flatten()
    return tuple(Picked.apply(t.flatten(0, 1), rows).view(*positions.shape, -1) for t in all_tokens)


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


def _project(
    stream: Tokens, branch: Tokens | None, gamma: Tensor | None, eps: float, w_qkv: Tensor
) -> tuple[Tokens, Float[Tensor, "row token packed"]]:
    """The residual stream, and its queries, keys and values. The first layer has no norm."""
    from unsmooth.training.fast.add_norm import Pending, add_norm

    if branch is None or gamma is None:
        normed = stream.to(w_qkv.dtype)
    else:
        stream, normed = add_norm(Pending(stream, branch), gamma, None, eps)
    return stream, F.linear(normed, w_qkv)


def _turn(
    qkv: Tensor, cos: Tensor, sin: Tensor, heads: int, hidden: Bool[Tensor, "row token"] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by head, the first two turned by their positions' angles.

    Keys that are `hidden` get a score of `OUT_OF_SIGHT` through features of their own, since PyTorch's fastest
    attention takes no mask; values have as many zeros, for it wants equal widths.
    """
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def turned(x: Tensor, aside: Tensor | None) -> Tensor:
        first, second = x.float().chunk(2, -1)
        parts = [first * cos - second * sin, second * cos + first * sin]
        return torch.cat(parts if aside is None else [*parts, aside], -1).to(x.dtype)

    if hidden is None:
        return turned(q, None), turned(k, None), v
    first = torch.arange(ASIDE, device=v.device) == 0
    marks = (OUT_OF_SIGHT * hidden[:, None, :, None] * first).expand(*k.shape[:-1], ASIDE)
    ones = first.float().expand_as(marks)
    return turned(q, ones), turned(k, marks), F.pad(v, (0, ASIDE))


def _finish(stream: Tokens, branch: Tokens, gamma: Tensor, eps: float) -> Tokens:
    from unsmooth.training.fast.add_norm import Pending, add_norm

    return add_norm(Pending(stream, branch), gamma, None, eps)[1]


def _transform(
    stream: Tokens, mixed: Tokens, gamma: Tensor, eps: float, w_o: Tensor, w_in: Tensor, w_out: Tensor
) -> tuple[Tokens, Tokens]:
    """Projection, residual sum, norm and the gated feed-forward, whose sum the next norm does."""
    from unsmooth.training.fast.add_norm import Pending, add_norm
    from unsmooth.training.fast.gelu import gate

    stream, normed = add_norm(Pending(stream, F.linear(mixed, w_o)), gamma, None, eps)
    return stream, F.linear(gate(F.linear(normed, w_in)), w_out)


def _score(
    stream: Tokens, branch: Tokens, gamma: Tensor, eps: float, w_dense: Tensor, head_gamma: Tensor, head_eps: float,
    w_decoder: Tensor, targets: Int64[Tensor, " hidden"],
) -> Float[Tensor, ""]:  # fmt: skip
    """Final norm, head, decoder and loss."""
    from unsmooth.training.fast.add_norm import Pending, add_norm

    _, normed = add_norm(Pending(stream, branch), gamma, None, eps)
    hidden = F.gelu(F.linear(normed, w_dense))
    hidden = F.layer_norm(hidden.float(), head_gamma.shape, head_gamma, None, head_eps).to(normed.dtype)
    logits = F.linear(hidden.flatten(0, 1), w_decoder)
    return F.cross_entropy(logits.float(), targets)


def fits(model: Any) -> bool:
    """Whether the model is of this kind, nothing but `control` has hooks in it, and our kernels run on its device."""
    try:
        from transformers import ModernBertForMaskedLM, ModernBertModel
    except ImportError:
        return False
    if type(model) not in (ModernBertForMaskedLM, ModernBertModel) or find_spec("triton") is None:
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

    return supports(next(model.parameters()).device, 32, heads, dim, rotary=True)
