"""`edit`: move the eigenvalues of a trained model's H without training, by a small change, and undo it exactly.

Only W_proj changes. With Q an orthonormal basis of W_V's columns, `W = W_V W_proj` has the non-zero eigenvalues of
`S = Qᵀ W Q`, a matrix of the head's own size. In a real Schur form `S = U T Uᵀ` the eigenvalues stand on T's diagonal
(pairs in blocks of two), so moving the diagonal alone moves them exactly, and `‖ΔH‖_F = ‖Δλ‖₂` where they are shifted
or bounded: the smallest change there is where S is symmetric (Hoffman and Wielandt), and in general a small one: along
eigenvectors it would be larger by up to their condition number. Constants stay as they are
(b_proj takes up what changes of b_v W_proj).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from unsmooth.control.edited import Edit, check_share
from unsmooth.control.effect import effect
from unsmooth.control.eigenvalue_action import Act, eigenvalue_action
from unsmooth.control.layers import attention_layers, nonzero_scale
from unsmooth.control.sink import drop_sink as drop
from unsmooth.errors import OptionError, WeightsError
from unsmooth.models import LayerView
from unsmooth.models.inputs import each_batch
from unsmooth.models.select import Layers, select_layers
from unsmooth.models.storage import refuse_computed
from unsmooth.models.view import module_of
from unsmooth.models.weights import HeadWeights, write_projection
from unsmooth.theory.folding import centre_and_scale
from unsmooth.theory.schur import schur_basis

Heads = int | Sequence[int] | None
WHOLE = -1  # the "head" of a row that is about Σ_h H_h


@torch.no_grad()
def edit(
    model: nn.Module,
    *,
    scale: float | None = None,
    flip: bool = False,
    shift: float | None = None,
    low: float | None = None,
    high: float | None = None,
    head_scale: float | None = None,
    drop_sink: Iterable[Any] | None = None,
    layers: Layers = "all",
    heads: Heads = None,
    of: str = "head",
    folded: bool = True,
    strength: float = 1.0,
    data: Iterable[Any] | None = None,
    loss: Callable[[nn.Module], Tensor | float] | None = None,
) -> Edit:
    """Change the eigenvalues of H in chosen layers or heads, in place; the result's `.undo()` restores the weights.

    Args:
        model: any model that can be controlled; grouped queries too.
        scale: λ becomes scale · λ.
        flip: λ becomes −λ.
        shift: λ becomes λ + shift.
        low: real parts below it are moved up to it; with `high`, both bounds hold.
        high: real parts above it are moved down to it: `high=0` leaves no eigenvalue that smooths.
        head_scale: multiplies a head whole, constants included: 0 removes it.
        drop_sink: batches in which an MLP gives a token an enormous norm. That MLP, which is found in these batches, no
            longer writes in that token's direction (`unsmooth.control.sink`). `layers` and `heads` do not matter here.
        layers: as in `reparametrize`: "all", indices, or a pattern.
        heads: which heads; all by default.
        of: `head` edits every head's H_h, `layer` their sum.
        folded: edit H with the norm's weight and centring and LayerScale folded in; False: that of the bare weights.
        strength: the fraction of the edit that is applied, from 0 to 1.
        data: batches on which the metrics after the last block are measured, before and after.
        loss: a function of the model, evaluated before and after.

    >>> from unsmooth.models import view
    >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
    <torch...>
    >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    >>> done = edit(encoder, high=0.0)
    >>> bool((done.frame()["max_after"] < 1e-6).all())
    True
    >>> done.undo()
    """
    module_of(model)  # an error where it is none
    given = None if data is None else list(each_batch(data))
    others = (scale, flip or None, shift, low, high, head_scale)
    if drop_sink is not None and any(each is not None for each in others):
        raise OptionError("drop_sink is an edit of its own: give the others in another call")
    action = None if drop_sink is not None else eigenvalue_action(scale, flip, shift, low, high, head_scale)
    if of not in ("head", "layer"):
        raise OptionError.unknown("of", of, ("head", "layer"))
    check_share("strength", strength)
    done = Edit([], "sink dropped" if action is None else action[1], before=effect(model, given, loss))
    try:
        if action is None:
            done.rows.append(drop(model, drop_sink or (), strength, done._before))
            done.what += f", written by the MLP of layer {done.rows[0]['layer']}"
        else:
            found = attention_layers(model)
            chosen = select_layers(layers, list(found))
            for index, layer in enumerate(found.values()):
                if index in chosen:
                    _edit_layer(layer, action[0], heads, of, folded, strength, done)
        done.after = effect(model, given, loss)
    except BaseException:
        done.restore()  # the layers before the one that refused
        raise
    done.written()
    return done


def _edit_layer(
    layer: LayerView, action: tuple[Act, float], heads: Heads, of: str, folded: bool, strength: float,
    done: Edit,
) -> None:  # fmt: skip
    weights = layer.weights()
    picked = _picked(layer, heads, len(weights.w_v))
    act, factor = action
    before = weights.w_proj.detach().to("cpu", torch.float64, copy=True)
    after, scale = before.clone(), _out_scale(layer, weights, folded)
    w_v = _acting_values(weights, folded)
    for group in [[h] for h in picked] if of == "head" else [picked]:
        wide, old = w_v[group].transpose(0, 1).flatten(1), before[group].flatten(0, 1) * scale
        if act is None:
            spectrum = torch.linalg.eigvals(old @ wide)
            moved, spectra = old * strength * (factor - 1), (spectrum, spectrum * (1 + strength * (factor - 1)))
        else:
            moved, spectra = _change(wide, old, act, strength)
        after[group] += (moved / scale).unflatten(0, (len(group), -1))
        stored = torch.linalg.eigvals(after[group].to(weights.w_proj.dtype).double().flatten(0, 1) * scale @ wide)
        head = group[0] if of == "head" else WHOLE
        done.rows.append(_row(layer.index, head, wide, old, moved, spectra) | {
            "min_stored": float(stored.real.min()), "max_stored": float(stored.real.max()),
        })  # fmt: skip
    owner = write_projection(layer, after.to(weights.w_proj), done._before)
    if act is not None and weights.b_v is not None and bool(weights.b_v.any()):
        _keep_constant(layer, owner, weights.b_v, before - after, done)


def _picked(layer: LayerView, heads: Heads, count: int) -> list[int]:
    given: Any = range(count) if heads is None else [heads] if isinstance(heads, int) else heads
    if isinstance(given, str) or not given or not all(type(h) is int and 0 <= h < count for h in given):
        raise OptionError(f"heads {heads!r}: expected some of the heads 0 to {count - 1} of {layer.name}, as [0, 1]")
    return sorted(set(given))


def _keep_constant(
    layer: LayerView,
    owner: nn.Module,
    b_v: Float[Tensor, "head key"],
    taken: Float[Tensor, "head key dim"],
    done: Edit,
) -> None:
    """b_proj takes up what changes of b_v W_proj."""
    bias = getattr(owner, "bias", None)
    if layer.sink:
        raise WeightsError(
            f"{layer.name}: the rows of its attention do not sum to 1, so that what its value bias adds differs from "
            "token to token, and no other bias can take up the change: scale whole heads (head_scale), or set the "
            "value bias to zero"
        )
    if bias is None:
        raise WeightsError(
            f"{layer.name}: its values have a bias, and its projection has none to take up what changes of b_v W_proj: "
            "give the projection a bias of zeros, or scale whole heads (head_scale)"
        )
    refuse_computed(owner, "bias", f"{layer.name}: the bias of its projection")
    moved = torch.einsum("hk,hkd->d", b_v.detach().double().cpu(), taken)
    done._before.append((bias, bias.detach().clone()))
    bias.add_(moved.to(bias))


def _acting_values(weights: HeadWeights, folded: bool) -> Float[Tensor, "head dim key"]:
    w_v = weights.w_v.detach().double().cpu()
    if not folded or weights.norm is None:
        return w_v
    norm = weights.norm
    weight = None if norm.weight is None else norm.weight.detach().double().cpu()
    return centre_and_scale(type(norm)(norm.kind, weight, None, norm.eps), w_v)


def _out_scale(layer: LayerView, weights: HeadWeights, folded: bool) -> Tensor:
    scale = nonzero_scale(layer.name, weights, "edit") if folded else None
    return torch.ones((), dtype=torch.float64) if scale is None else scale.detach().double().cpu()


Spectra = tuple[Complex[Tensor, " size"], Complex[Tensor, " size"]]


def _change(
    w_v: Float[Tensor, "dim key"], w_proj: Float[Tensor, "key dim"], act: Callable[[Tensor], Tensor], strength: float
) -> tuple[Float[Tensor, "key dim"], Spectra]:
    """ΔW_proj that moves the non-zero eigenvalues of `W_V W_proj` as `act` says, on the diagonal of a Schur form.

    And the eigenvalues before and after, read from the blocks of that form: many that are gathered at one spot are
    ill-conditioned, and solving for them again would scatter them around it.
    """
    u, size, v = torch.linalg.svd(w_v, full_matrices=False)
    rank = int((size > size.max() * w_v.shape[0] * torch.finfo(torch.float64).eps).sum())
    missing = torch.zeros(min(w_v.shape) - rank, dtype=torch.complex128)
    if not rank:
        return torch.zeros_like(w_proj), (missing, missing)
    q, size, v = u[:, :rank], size[:rank], v[:rank]
    inner = (size[:, None] * v) @ w_proj @ q
    basis, blocks = schur_basis(inner)
    t, moved = basis.mT @ inner @ basis, torch.zeros_like(inner)
    before, after = [], []
    for start, end in blocks:
        block = t[start:end, start:end]
        moved[start:end, start:end] = strength * act(block)
        before.append(torch.linalg.eigvals(block))
        after.append(torch.linalg.eigvals(block + moved[start:end, start:end]))
    spectra = torch.cat([*before, missing]), torch.cat([*after, missing])
    return (v.mT / size) @ (basis @ moved @ basis.mT) @ q.mT, spectra


def _row(layer: int, head: int, w_v: Tensor, old: Tensor, moved: Tensor, spectra: Spectra) -> dict[str, Any]:
    before, after = (s.real.where(s.real.abs() > 1e-12 * s.abs().max(), 0) for s in spectra)  # zeros have no side
    return {
        "layer": layer, "head": head,
        "size": float(torch.linalg.matrix_norm(w_v @ old)),
        "change": float(torch.linalg.matrix_norm(w_v @ moved)),
        "min_before": float(before.min()), "max_before": float(before.max()),
        "min_after": float(after.min()), "max_after": float(after.max()),
        "negative_before": float((before < 0).double().mean()), "negative_after": float((after < 0).double().mean()),
    }  # fmt: skip
