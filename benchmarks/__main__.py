"""Run every benchmark, one after the other."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import benchmarks


def main() -> None:
    """Import each module of this folder that has a main(), and call it."""
    for module in sorted(pkgutil.iter_modules(benchmarks.__path__), key=lambda m: m.name):
        if module.name.startswith("_"):
            continue
        run = getattr(import_module(f"benchmarks.{module.name}"), "main", None)
        if run is not None:
            print(f"## {module.name}", flush=True)
            run()


if __name__ == "__main__":
    main()
