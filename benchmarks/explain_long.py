"""What explaining or attributing a long input takes: attention matrices of all heads at once, and a few heads in turn.

    python -m benchmarks.explain_long [--device cuda] [--tokens 2048 4096] [--width 128] [--heads 8] [--no-held]
                                       [--attribute]

A small Llama with random weights, one input. Each way runs in a process of its own; memory is its peak beyond what the
process had before, the model's own forward pass included. `--no-held` leaves out the way that needs heads · tokens².
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from pathlib import Path

import torch

import unsmooth
from benchmarks.clock import header, synchronize
from benchmarks.measure_scale import peak, reset_peak


def main(arguments: list[str] | None = None) -> None:
    """A line for each length and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--held", action=argparse.BooleanOptionalAction, default=True, help="also all heads at once")
    parser.add_argument("--attribute", action="store_true", help="attribute, carriers too, instead of explaining")
    asked = parser.parse_args(arguments or [])
    print(f"{asked.layers} layers, {asked.heads} heads, width {asked.width}, float32; "
          f"{header(torch.device(asked.device))}", flush=True)  # fmt: skip
    for tokens in asked.tokens:
        held = asked.heads * tokens**2 * 4 / 2**20
        print(f"{tokens} tokens: A of all heads takes {held:.0f} MiB", flush=True)
        for way, turns in (("all heads at once", False), ("a few in turn", True)):
            if not turns and not asked.held:
                continue
            process = multiprocessing.get_context("spawn").Process(target=explained, args=(asked, tokens, way, turns))
            process.start()
            process.join()


def explained(asked: argparse.Namespace, tokens: int, way: str, turns: bool) -> None:
    """In a fresh process: one input explained, its time and its peak memory."""
    from transformers import LlamaConfig, LlamaModel

    device = torch.device(asked.device)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000, hidden_size=asked.width, intermediate_size=3 * asked.width, num_hidden_layers=asked.layers,
        num_attention_heads=asked.heads, num_key_value_heads=asked.heads, max_position_embeddings=1 << 17,
        use_cache=False, attn_implementation="sdpa",
    )  # fmt: skip
    model = LlamaModel(config).eval().to(device)
    short, long = ({"input_ids": torch.randint(0, 1000, (1, n), device=device)} for n in (64, tokens))

    def analyse(batch: dict[str, torch.Tensor]) -> list[float]:
        if asked.attribute:
            found = unsmooth.attribute(model, [batch], heads_in_turn=turns, carriers=True)
            return found.by_layer()["heads"].tolist()
        return unsmooth.explain(model, [batch], heads_in_turn=turns, layer_spectrum=False).frame()["exponent"].tolist()

    with torch.no_grad():
        analyse(short)  # libraries' own memory
        synchronize(device)
        start = time.perf_counter()
        model(**long)
        synchronize(device)
        forward = time.perf_counter() - start
    before, resident = reset_peak(device), _mebibytes("VmRSS")
    start = time.perf_counter()
    values = analyse(long)
    seconds = time.perf_counter() - start
    extra = 1024 * peak(device, before) if device.type == "cuda" else _mebibytes("VmHWM") - resident
    name = "shares of heads" if asked.attribute else "γ"
    print(
        f"  {way}: {seconds:.1f} s, {seconds / forward:.1f}× the forward, {extra:.0f} MiB extra; "
        f"{name} {', '.join(f'{value:.6f}' for value in values)}",
        flush=True,
    )


def _mebibytes(what: str) -> float:
    """Of this process, as Linux counts them: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


if __name__ == "__main__":
    main(sys.argv[1:])
