from __future__ import annotations

import ast
from pathlib import Path

import unsmooth.theory


def test_theory_knows_no_model() -> None:
    """Definitions on matrices: nothing here imports a room that reads models, data or results."""
    allowed = {"unsmooth.theory", "unsmooth.metrics", "unsmooth.errors"}
    for path in Path(unsmooth.theory.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
            )
            for name in names:
                if name.startswith("unsmooth"):
                    assert ".".join(name.split(".")[:2]) in allowed, f"{path.name} imports {name}"
