"""What `from_weights` does to biases.

Rows of A sum to 1, so every token gets Σ_h b_v^h W_proj^h, and the same H_h from other factors W_V^h and W_proj^h
would change that. b_proj takes up the difference.

Where the projection has no bias (Qwen2), b_v moves to where Σ_h b_v^h W_proj^h is nearest to what it was. Not where W_V
is d×d: a new W_proj is then often nearly singular, and b_v would grow without bound. Not where rows of A do not sum
to 1 either (a sink takes a share, or heads are mixed): what b_v adds then depends on the token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unsmooth.control.layers import Controllable
from unsmooth.errors import WeightsError
from unsmooth.models.storage import refuse_computed


@dataclass(frozen=True)
class Move:
    """A bias, its new value, and the relative error in Σ_h b_v^h W_proj^h that remains."""

    bias: Tensor
    new: Tensor
    error: float = 0.0


def move_bias(layer: Controllable, w_proj: Float[Tensor, "feature dim"]) -> Move | None:
    """The bias that must change when the layer gets this W_proj; None without b_v."""
    if layer.b_v is None or not bool(layer.b_v.any()):
        return None
    if layer.sink:
        raise WeightsError(
            f"{layer.name}: the rows of its attention do not sum to 1, so that what its value bias adds differs from "
            "token to token, and no other bias can take up the change: use init='paper', or set the value bias to zero"
        )
    given, ours = layer.proj.weight().mT.double(), w_proj.double()
    wanted = layer.b_v.double() @ given
    b_proj: Tensor | None = getattr(layer.proj.module, "bias", None)
    if b_proj is not None:
        refuse_computed(layer.proj.module, "bias", f"{layer.name}: the bias of its projection")
        return Move(b_proj, b_proj + (wanted - layer.b_v.double() @ ours).to(b_proj.dtype))
    b_v: Tensor | None = getattr(layer.value.module, "bias", None)
    if layer.square or b_v is None:
        raise WeightsError(
            f"{layer.name}: its values have a bias, and its projection has none to take up what changes of b_v W_proj: "
            "use init='paper', or give the projection a bias of zeros"
        )
    refuse_computed(layer.value.module, "bias", f"{layer.name}: the bias of its values")
    summed = ours.unflatten(0, (layer.kv_heads, -1, layer.key)).sum(1).flatten(0, 1)
    new = wanted @ torch.linalg.pinv(summed)
    error = float((new @ summed - wanted).norm() / wanted.norm())
    whole = b_v.detach().clone()
    layer.value.rows.write(whole, new.to(b_v.dtype))
    return Move(b_v, whole, error)
