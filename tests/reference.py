"""Slow, obvious twins of the fast routines, by topic. Tests run both."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

# --- explain: dense matrices where the library is matrix-free or works on spectra ---


def update_matrix(h: Tensor, a: Tensor, residual: bool = True) -> Tensor:
    """`I + H ⊗ A` of eq. (2), acting on columns stacked under each other."""
    product = torch.kron(h.contiguous(), a.contiguous())
    return torch.eye(len(product), dtype=product.dtype) + product if residual else product


def iterate_by_squaring(h: Tensor, a: Tensor, x: Tensor, doublings: int = 45, residual: bool = True) -> Tensor:
    """The direction of X after 2^doublings layers, from the dense matrix of eq. (2) alone."""
    power = update_matrix(h, a, residual)
    for _ in range(doublings):
        power = power @ power
        power = power / power.norm()
    stacked = power @ x.T.reshape(-1)  # vec stacks columns
    return (stacked / stacked.norm()).reshape(x.shape[1], x.shape[0]).T


def left_fixed_vector(a: Tensor) -> Tensor:
    """A row vector π with π A = π and π·1 = 1; π X is the type (1) amplitude, which evolves on its own."""
    n = len(a)
    system = torch.cat([a.T - torch.eye(n, dtype=a.dtype), torch.ones(1, n, dtype=a.dtype)])
    target = torch.zeros(n + 1, 1, dtype=a.dtype)
    target[-1] = 1
    return torch.linalg.lstsq(system, target, driver="gelsd").solution[:, 0]


def iterated_verdict(h: Tensor, a: Tensor, x: Tensor, margin: float, residual: bool = True) -> str:
    """Smoothing, sharpening or mixed, as enough layers show it for terms that differ by `margin` nats per layer.

    Not more than needed: the powers of a defective matrix lose their leading term to rounding in the end.
    """
    doublings = min(max(math.ceil(math.log2(max(400 / margin, 1))), 8), 45)
    end = iterate_by_squaring(h, a, x, doublings, residual)
    high = float((end - end.mean(0)).norm())
    perron = float((left_fixed_vector(a) @ end).norm())
    if high < 1e-6:
        return "smoothing"
    return "sharpening" if perron < 1e-6 else "mixed"


def dense_layer_growth(
    attention: Tensor, weights: Tensor, scale: float = 1.0, after: Tensor | None = None
) -> tuple[float, float]:
    """(ρ_L, ρ_H) of `(X + s Σ A_h X W_h) M`, from the (n−1)d × (n−1)d matrix on the space orthogonal to 1."""
    n, dim = attention.shape[-1], weights.shape[-1]
    ones = torch.ones(n, 1, dtype=attention.dtype)
    basis = torch.linalg.qr(torch.cat([ones, torch.eye(n, dtype=attention.dtype)[:, 1:]], 1)).Q[:, 1:]
    high = torch.eye((n - 1) * dim, dtype=attention.dtype)
    low = torch.eye(dim, dtype=attention.dtype)
    for a, w in zip(attention, weights, strict=True):
        high = high + scale * torch.kron(w.T.contiguous(), basis.T @ a @ basis)
        low = low + scale * w
    if after is not None:
        high = torch.kron(after.T.contiguous(), torch.eye(n - 1, dtype=attention.dtype)) @ high
        low = low @ after
    return float(torch.linalg.eigvals(low).abs().max()), float(torch.linalg.eigvals(high).abs().max())


def ranks_with_ties(values: list[float]) -> list[float]:
    """Average ranks, by counting."""
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


# --- control ---


def householder_q(theta: Tensor) -> Tensor:
    """Q of a QR decomposition whose R has a positive diagonal, by LAPACK."""
    q, r = torch.linalg.qr(theta)
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]


def clipped_heads(h: Tensor, sign: float) -> Tensor:
    """V_h Λ_h U_h of every head: V_h its eigenvectors, U = V⁻¹ of all heads together, Λ_h the real parts, clipped."""
    key = h.shape[-1] // len(h)
    columns, values = [], []
    for head in h:
        found, vectors = torch.linalg.eig(head)
        kept = found.abs().argsort(descending=True, stable=True)[:key]
        found, vectors = found[kept], vectors[:, kept]
        columns.append(torch.where(found.imag < 0, vectors.imag, vectors.real))
        values.append(sign * (sign * found.real).clamp(0, 1))
    left = torch.linalg.inv(torch.cat(columns, 1)).unflatten(0, (len(h), key))
    return torch.stack([v * x @ u for v, x, u in zip(columns, values, left, strict=True)])


# --- measure: one sample at a time, float64, a full SVD, all pairs ---


def kept_tokens(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """The kept rows of one sample, in float64."""
    return (x if mask is None else x[mask]).double()


def high_low_ratio(x: Tensor, norm: str = "fro") -> Tensor:
    """‖X − 1x̄ᵀ‖ / ‖1x̄ᵀ‖ with numpy-style matrix norms."""
    low = x.mean(0, keepdim=True).expand_as(x)
    order = "fro" if norm == "fro" else 2
    return torch.linalg.matrix_norm(x - low, order) / torch.linalg.matrix_norm(low, order)


def pairwise_cosines(x: Tensor) -> Tensor:
    """The n × n matrix of cosines, 0 where a token is zero."""
    size = x.norm(dim=1)
    lengths = size[:, None] * size[None, :]
    return torch.where(lengths > 0, x @ x.T / torch.where(lengths > 0, lengths, 1.0), 0.0)


def mean_cosine(x: Tensor) -> Tensor:
    """Mean over the pairs i < j."""
    upper = torch.triu_indices(len(x), len(x), 1)
    return pairwise_cosines(x)[upper[0], upper[1]].mean()


def entropy_rank(x: Tensor, epsilon: float = 0.0) -> Tensor:
    """exp of the entropy of σ/Σσ + ε, from a full SVD."""
    sigma = torch.linalg.svd(x).S
    p = sigma / sigma.sum() + epsilon
    return torch.special.entr(p).sum().exp()


def composite_norm(x: Tensor) -> Tensor:
    """√(‖·‖₁ ‖·‖_∞)."""
    return (torch.linalg.matrix_norm(x, 1) * torch.linalg.matrix_norm(x, float("inf"))).sqrt()


def pairwise_energy(x: Tensor) -> Tensor:
    """Σ_ij ‖x_i − x_j‖² / (2n)."""
    return (x[:, None] - x[None]).square().sum() / (2 * len(x))


def tridiagonal_eigenvalues(matrix: Tensor, grid: int = 256, thirds: int = 12) -> Tensor:
    """Ascending eigenvalues as the GPU kernel finds them: Householder steps with a lagging update, Sturm counts."""
    diagonal, side = tridiagonalise(matrix)
    n = len(matrix)
    reach = diagonal.abs() + torch.cat([side, side.new_zeros(1)]).abs() + torch.cat([side.new_zeros(1), side]).abs()
    bound = float(reach.max())
    if not bound > 0:
        return torch.zeros_like(diagonal) if bound == 0 else torch.full_like(diagonal, math.nan)
    d = (diagonal / bound).tolist()
    squares = [0.0, *((side / bound).square().clamp(min=1e-40)).tolist()]
    found = []
    for index in range(n):
        cell = next((g for g in range(grid) if sturm_count(d, squares, ((g + 1) / grid) ** 2) > index), grid - 1)
        low, high = cell / grid, (cell + 1) / grid
        for _ in range(thirds):
            cuts = [low + (high - low) * k / 3 for k in (1, 2)]
            above = [sturm_count(d, squares, s * s) > index for s in cuts]
            low, high = (low, cuts[0]) if above[0] else (cuts[0], cuts[1]) if above[1] else (cuts[1], high)
        found.append(((low + high) / 2) ** 2 * bound if low > 0 else 0.0)
    return torch.tensor(found, dtype=torch.float64)


def tridiagonalise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Diagonal and off-diagonal; A ← A − v wᵀ − w vᵀ is applied one step late, together with the next A v."""
    a = matrix.double().clone()
    n = len(a)
    v, w = torch.zeros(n, dtype=a.dtype), torch.zeros(n, dtype=a.dtype)
    diagonal, side = [], []
    for step in range(n):
        column = a[:, step] - v * w[step] - w * v[step]
        diagonal.append(column[step])
        if step + 1 == n:
            break
        alpha, rest = column[step + 1], column[step + 2 :].square().sum()
        beta = -torch.copysign((alpha.square() + rest).sqrt(), alpha) if rest > 0 else alpha
        side.append(beta)
        u = torch.zeros_like(v)
        u[step + 1] = 1.0
        if rest > 0:
            u[step + 2 :] = column[step + 2 :] / (alpha - beta)
        tau = (beta - alpha) / beta if rest > 0 else torch.zeros(())
        a = a - torch.outer(v, w) - torch.outer(w, v)
        a[: step + 1] = a[:, : step + 1] = 0.0
        p = a @ u
        v, w = u, tau * p - 0.5 * tau * tau * (p @ u) * u
    return torch.stack(diagonal), torch.stack(side) if side else a.new_zeros(0)


def sturm_count(diagonal: list[float], squares: list[float], x: float) -> int:
    """How many eigenvalues lie below x: sign changes of the leading minors."""
    before, now, count = 0.0, 1.0, 0
    for d, square in zip(diagonal, squares, strict=True):
        before, now = now, (d - x) * now - square * before
        count += math.copysign(1.0, now) != math.copysign(1.0, before)
        scale = max(abs(now), abs(before))
        before, now = before / scale, now / scale
    return count


# --- train: one image, one bin, one step at a time ---


def expected_calibration_error(confidence: list[float], right: list[bool], bins: int = 15) -> float:
    """Sum over bins (k/bins, (k+1)/bins] of share × |mean confidence − accuracy|; 0 belongs to the first."""
    total = 0.0
    for k in range(bins):
        low, high = k / bins, (k + 1) / bins
        inside = [i for i, c in enumerate(confidence) if low < c <= high or (k == 0 and c == 0)]
        if inside:
            gap = sum(confidence[i] for i in inside) / len(inside) - sum(right[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(gap)
    return total


def plain_training(
    model: torch.nn.Module,
    groups: list[dict[str, object]],
    batches: list[tuple[Tensor, Tensor]],
    rates: list[float],
    clip_norm: float,
) -> list[float]:
    """The usual eager loop: forward, soft cross-entropy, backward, clip, AdamW with this step's rate."""
    # fused as the engine's: AdamW blows another kernel's rounding up along Θ's directions that have no gradient
    optimizer = torch.optim.AdamW(groups, lr=rates[0], fused=True)
    losses = []
    for (x, target), rate in zip(batches, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


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


def deviations_kept(
    attention: torch.Tensor,
    z: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """`α_h = ⟨PZ, P A_h Z⟩ / ‖PZ‖²`: what each head's attention leaves of the deviations of z from their mean."""
    kept = torch.ones_like(z[..., 0]) if mask is None else mask.to(z.dtype)
    high = (z - (z * kept[..., None]).sum(-2, keepdim=True) / kept.sum(-1)[:, None, None]) * kept[..., None]
    gram = high @ high.mT  # ⟨PZ, A_h Z⟩ = ⟨A_h, PZ (PZ)ᵀ⟩, as A_h 1 = 1
    size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
    return (attention * gram[:, None]).sum((-2, -1)) / torch.where(size > 0, size, 1)[:, None]


def mean_field(
    attention: torch.Tensor,
    alpha: torch.Tensor,
    mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """`α_h P + 1π_hᵀ`: attention that gives the mean token what A_h gives it, and scales HFC by one number.

    π_h is the column mean of A_h, and α_h what `deviations_kept` finds (docs/theory.md, section 7).
    """
    kept = attention.new_ones(attention.shape[0], attention.shape[-1]) if mask is None else mask.to(attention.dtype)
    among, count = kept[:, :, None] * kept[:, None, :], kept.sum(-1)
    centring = torch.diag_embed(kept) - among / count[:, None, None]
    mean = (attention * kept[:, None, :, None]).sum(-2) / count[:, None, None]
    return alpha[..., None, None] * centring[:, None] + kept[:, None, :, None] * mean[:, :, None, :]


def uniform(attention: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """`11ᵀ/n` for every head: attention that looks at all kept tokens alike leaves the mean path alone."""
    kept = attention.new_ones(attention.shape[0], attention.shape[-1]) if mask is None else mask.to(attention.dtype)
    among = kept[:, :, None] * kept[:, None, :] / kept.sum(-1)[:, None, None]
    return among[:, None].expand_as(attention)
