"""Every part as a (token, dim) matrix, ranks by counting."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def ranks_with_ties(values: list[float]) -> list[float]:
    """Average ranks, by counting."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


def divisia_shares(model: Any, batch: Any) -> dict[Any, float]:
    """Every part's mean share of the change of ln HFC/LFC, from parts formed as (token, dim) matrices."""
    from unsmooth.analysis.attributing.shares import Part
    from unsmooth.models import capture_attention, hook_points, view
    from unsmooth.models.forward import call

    v, seen, maps = view(model), {}, {}
    with torch.no_grad(), hook_points(v, v.points, seen.__setitem__), capture_attention(v, maps.__setitem__):
        call(model, batch)
    mask = batch.get("attention_mask") if isinstance(batch, dict) else None
    count = len(next(iter(seen.values())))
    found: dict[Any, float] = {}
    for i in range(count):
        kept = slice(None) if mask is None else mask[i].bool()
        for layer in v.layers:
            x = {p.rpartition(".")[2]: t[i][kept] for p, t in seen.items() if p.startswith(f"blocks.{layer.index}.")}
            w, a = layer.weights(), maps[layer.index][i][:, kept][:, :, kept]
            with torch.no_grad():
                z = x["pre"] if w.norm is None else w.norm(x["pre"])
                heads = [a[h] @ (z - z.mean(0)) @ w.w_v[h] @ w.w_proj[h] for h in range(len(a))]
                rest = z.mean(0) @ (w.w_v @ w.w_proj).sum(0)
                rest = rest if w.b_v is None else rest + (w.b_v[:, None] @ w.w_proj).sum(0)[0]
                rest = (rest if w.b_proj is None else rest + w.b_proj).expand(len(z), -1)
                if w.out_norm is not None:  # linear, given the statistics of the sum
                    whole = sum(heads) + rest
                    centred = whole - whole.mean(-1, keepdim=True) if w.out_norm.kind == "layer" else whole
                    d = torch.rsqrt(centred.square().mean(-1, keepdim=True) + w.out_norm.eps)

                    def normed(u: Tensor, d: Tensor = d, w: Any = w) -> Tensor:
                        u = u - u.mean(-1, keepdim=True) if w.out_norm.kind == "layer" else u
                        return u * d * (1 if w.out_norm.weight is None else w.out_norm.weight)

                    heads = [normed(u) for u in heads]
                    rest = normed(rest) + (0 if w.out_norm.bias is None else w.out_norm.bias)
                if w.out_scale is not None:
                    heads, rest = [u * w.out_scale for u in heads], rest * w.out_scale
                parts = {Part(layer.index, "head", h): u for h, u in enumerate(heads)}
                parts[Part(layer.index, "mean")] = rest
                mlp = {Part(layer.index, "mlp"): x["mlp"]}
                if v.family.placement == "post":
                    norms = [{Part(layer.index, "norm1"): x["mid"] - x["attn_sum"]},
                             {Part(layer.index, "norm2"): x["post"] - x["mlp_sum"]}]  # fmt: skip
                    steps = [("pre", parts), ("attn_sum", norms[0]), ("mid", mlp), ("mlp_sum", norms[1])]
                elif v.family.placement == "pre":
                    steps = [("pre", parts), ("mid", mlp)]
                else:
                    steps = [("pre", parts | mlp)]
                for start, added in steps:
                    for part, share in _divisia_step(x[start], added).items():
                        found[part] = found.get(part, 0.0) + share / count
    return found


def _divisia_step(x: Tensor, parts: dict[Any, Tensor]) -> dict[Any, float]:
    after = x + sum(parts.values())
    shares = dict.fromkeys(parts, 0.0)
    for sign, project in ((0.5, lambda y: y - y.mean(0)), (-0.5, lambda y: y.mean(0).expand_as(y))):
        a, b = project(x).square().sum(), project(after).square().sum()
        mean = (b - a) / (b.log() - a.log())
        for part, u in parts.items():
            shares[part] += sign * float((project(u) * project(x + after)).sum() / mean)
    return shares
