"""What the control tests share: small models, their outputs, H of a layer, and the families with grouped queries."""

from __future__ import annotations

from typing import Any

import model_cases
import torch
from torch import Tensor, nn

from unsmooth.models import view

FORMS = ("eigen", "split", "symmetric")
MODES = {"sharpening": -1.0, "smoothing": 1.0}

#: Families with grouped queries, whose W_V is not square; a sink's biases cannot be fitted (test_refusals.py).
GROUPED = [case for case in model_cases.CASES if case.grouped and not case.sink]


def vit(seed: int = 0, dim: int = 24, heads: int = 3, depth: int = 2, **kwargs: Any) -> nn.Module:
    """A small timm ViT."""
    import timm

    torch.manual_seed(seed)
    small = {"img_size": 8, "patch_size": 4, "embed_dim": dim, "num_heads": heads, "depth": depth, "num_classes": 5}
    model: nn.Module = timm.create_model("vit_tiny_patch16_224", pretrained=False, **{**small, **kwargs})
    return model


def decoder(name: str = "Llama", wrap: str | None = None, seed: int = 0, **kwargs: Any) -> nn.Module:
    """A small decoder in float64: 4 query heads share 2 value heads, width 32."""
    torch.manual_seed(seed)
    build = model_cases.hf(name, wrap=wrap, **{**model_cases.DECODER, **kwargs})
    return build().double().eval()


def images(batch: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def outputs(model: nn.Module, batch: Any) -> Tensor:
    """The first tensor that a forward pass returns."""
    out = model(**batch) if isinstance(batch, dict) else model(batch)
    while not isinstance(out, Tensor):
        out = next(iter(out.values())) if hasattr(out, "values") else out[0]
    return out


def heads_of(model: nn.Module, layer: int = 0) -> Tensor:
    """H_h of every head, in float64: what the model's own weights say, read through `unsmooth.models`."""
    weights = view(model).layers[layer].weights()
    return (weights.w_v.double() @ weights.w_proj.double()).mT.detach()


def total_of(model: nn.Module, layer: int = 0) -> Tensor:
    """H = Σ_h H_h."""
    return heads_of(model, layer).sum(0)


def spectra(model: nn.Module) -> torch.Tensor:
    """Eigenvalues of every head's folded H, sorted."""
    from unsmooth.analysis.layer_weights import cast_weights, fold_weights

    folded = [fold_weights(cast_weights(layer.weights(), torch.float64)) for layer in view(model).layers]
    return torch.stack([torch.linalg.eigvals(f.w_proj @ f.w_v) for f in folded])


class Around(nn.Module):
    """A model around the model."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x)
        return out
