"""How near `init="from_weights"` comes to a model's heads, and how long it takes, for each form and mode.

    python -m benchmarks.control_fit hf:mpnet-base
    python -m benchmarks.control_fit timm:vit_small_patch14_dinov2 --weights dinov2-s14/model.safetensors

Without a model: a ViT-Ti with random weights. The error is that of the heads, relative to H (1: no better than H = 0).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch

from benchmarks.clock import header
from unsmooth.control import control_of, reparametrize
from unsmooth.control.forms import FORMS
from unsmooth.sources import load_model


def main(arguments: list[str] | None = None) -> None:
    """Lowest, highest and mean error over the layers, and seconds for all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="timm:vit_tiny_patch16_224")
    parser.add_argument("--weights")
    asked = parser.parse_args(arguments or [])
    timm = asked.model.startswith("timm:")
    options = {"img_size": 224, "num_classes": 0} if timm else {}
    print(f"{asked.model}; {header(torch.device('cpu'))}")
    for form in FORMS:
        for mode in ("sharpening", "smoothing"):
            model = load_model(
                asked.model, weights=asked.weights, random_init=timm and asked.weights is None, options=options
            ).model
            start = time.perf_counter()
            reparametrize(model, mode, form=form, init="from_weights")
            seconds = time.perf_counter() - start
            errors = [fit.heads for fit in control_of(model).fit or ()]
            low, high, mean = min(errors), max(errors), statistics.mean(errors)
            print(f"  {form:9s} {mode:10s} {low:.2f} to {high:.2f}, mean {mean:.3f}; {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
