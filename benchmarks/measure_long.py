"""What measuring long inputs costs: time beside the forward pass, and memory beside the model's own.

    python -m benchmarks.measure_long [--device cuda] [--tokens 8192 32768 131072] [--width 576] [--layers 6]

A small Llama with random weights, one input. Memory: on a GPU the peak beyond the forward pass's own; everywhere the
largest tensor that measuring one point makes beside its features. It should grow by a chunk, not by tokens times width.
"""

from __future__ import annotations

import argparse
import sys

import torch

from benchmarks.clock import header, take_turns
from benchmarks.largest_new import LargestNew
from benchmarks.measure_scale import attempt, make_llama, peak, reset_peak
from unsmooth.analysis import Measurer
from unsmooth.metrics.engine import Evaluator
from unsmooth.metrics.registry import resolve


def main(arguments: list[str] | None = None) -> None:
    """A line for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768, 131072])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=576)
    asked = parser.parse_args(arguments or [])
    device = torch.device(asked.device)
    print(f"{asked.layers} layers of width {asked.width}, bfloat16; {header(device)}", flush=True)
    torch.manual_seed(0)
    model = make_llama(asked.layers, asked.width, device)
    with torch.no_grad():
        for tokens in asked.tokens:
            attempt(f"{tokens} tokens", lambda tokens=tokens: line(model, tokens, asked.width, device))


def line(model: torch.nn.Module, tokens: int, width: int, device: torch.device) -> None:
    """Forward pass, the paper's metrics at all points, and what they make beside the features."""
    batch = {"input_ids": torch.randint(0, 1000, (1, tokens), device=device)}
    before = reset_peak(device)
    forward = take_turns({"": lambda: model(**batch)}, 1, device)[""]
    own = peak(device, before)
    before = reset_peak(device)
    with Measurer(model, rank_budget="exact") as measurer:
        measured = take_turns({"": lambda: measurer.update(batch)}, 1, device)[""]
    extra = peak(device, before) - own
    x = torch.randn(1, tokens, width, device=device).to(torch.bfloat16)
    evaluator: Evaluator[str] = Evaluator(resolve("paper"))
    with LargestNew(x) as made:
        evaluator.add("x", x)
        evaluator.flush()
    print(
        f"{tokens} tokens: forward {1e3 * forward:.0f} ms, measured {measured / forward:.2f}×, "
        f"{extra:.2f} GiB beyond the forward's {own:.2f}; features of one point {x.nbytes / 2**20:.0f} MiB, "
        f"largest new tensor {made.bytes / 2**20:.0f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
