"""Run notebooks again and keep their outputs, so that numbers and pictures are those of this version.

    python notebooks/run.py [NAME…]        # all of them by default; needs nbclient and ipykernel

The install line is left out: what runs is the version at hand.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def executed(found: dict[str, Any], folder: str) -> dict[str, Any]:
    """The notebook with new outputs; what libraries print on the error stream is not kept."""
    import nbformat
    from nbclient import NotebookClient

    whole = [{**cell, "source": "".join(cell["source"])} for cell in found["cells"]]  # a string or a list of lines
    kept = [cell for cell in whole if not cell["source"].startswith("%pip")]
    run = nbformat.from_dict({**found, "cells": kept})
    options = {"timeout": 600, "kernel_name": "python3", "coalesce_streams": True}  # what is printed is one output
    NotebookClient(run, **options, resources={"metadata": {"path": folder}}).execute()
    ran = {cell["id"]: cell for cell in run.cells}
    for cell in found["cells"]:
        if cell["cell_type"] == "code" and cell["id"] in ran:
            outputs = [output for output in ran[cell["id"]]["outputs"] if output.get("name") != "stderr"]
            cell["outputs"] = json.loads(json.dumps(outputs))
            cell["execution_count"] = ran[cell["id"]]["execution_count"]
    return found


if __name__ == "__main__":
    for path in [HERE / f"{name}.ipynb" for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            found = executed(json.loads(path.read_text(encoding="utf-8")), folder)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path.name, path.stat().st_size)
