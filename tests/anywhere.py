"""The numerical tests as other machines would run them: `make test-anywhere` (about an hour on two cores).

Instruction sets, MKL's code paths, numbers of threads, and a LAPACK that rounds otherwise (tests/perturbed.py). A test
that fails in one of these rows holds on some machines only, which is a defect of the test or of the code.

    python tests/anywhere.py [ROW …] [-- PYTEST ARGUMENTS]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NUMERICAL = ("tests/metrics", "tests/theory", "tests/analysis", "tests/control", "tests/test_doctests.py")
ONE = {"OMP_NUM_THREADS": "1"}
PATIENT = {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}  # more threads than cores must not spin
ROWS: dict[str, dict[str, str]] = {
    "threads=1": ONE,
    "threads=2": {"OMP_NUM_THREADS": "2", **PATIENT},
    "threads=5": {"OMP_NUM_THREADS": "5", **PATIENT},
    "aten=default": {**ONE, "ATEN_CPU_CAPABILITY": "default"},
    "aten=avx2": {**ONE, "ATEN_CPU_CAPABILITY": "avx2"},
    "mkl=compatible": {**ONE, "MKL_CBWR": "COMPATIBLE"},
    "mkl=avx2": {**ONE, "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "perturbed": {**ONE, "UNSMOOTH_PERTURB": "1"},
}


def run(name: str, arguments: list[str]) -> tuple[int, str]:
    """One row: pytest's exit code and its last line; failures are printed."""
    environment = {k: v for k, v in os.environ.items() if k not in {key for row in ROWS.values() for key in row}}
    workers = max(1, (os.cpu_count() or 1) // int(ROWS[name]["OMP_NUM_THREADS"]))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        str(workers),
        "--dist",
        "worksteal",
        *(arguments or NUMERICAL),
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment | ROWS[name], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if re.match(r"(FAILED|ERROR)", line):
            print(f"  {line}", flush=True)
    return done.returncode, (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]


def main() -> int:
    """All rows, or those named; exit code 1 when one failed."""
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    rows, arguments = words[:cut] or list(ROWS), words[cut + 1 :]
    if unknown := [row for row in rows if row not in ROWS]:
        sys.exit(f"no such row: {', '.join(unknown)}; expected some of {', '.join(ROWS)}")
    failed = []
    for row in rows:
        started = time.monotonic()
        code, last = run(row, arguments)
        failed += [row] if code else []
        print(f"{row:16} {last.strip('= ')} ({time.monotonic() - started:.0f} s by the clock)", flush=True)
    print(f"{len(rows) - len(failed)} passed, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
