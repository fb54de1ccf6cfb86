"""`import unsmooth` beside `import torch`, each in a fresh process.

    python -m benchmarks.import_time

Target: ≤ 1.5×.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def main(rounds: int = 5) -> None:
    """Time both in turn; print the ratio of the medians."""
    times: dict[str, list[float]] = {"torch": [], "unsmooth": []}
    for number in range(rounds + 1):
        for name, seen in times.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {name}"], check=True)
            if number:  # the first round fills the disk cache
                seen.append(time.perf_counter() - start)
    torch_s, ours = (statistics.median(seen) for seen in times.values())
    print(f"import torch {torch_s:.2f} s, import unsmooth {ours:.2f} s: {ours / torch_s:.2f}×  ({rounds} rounds)")


if __name__ == "__main__":
    main()
