"""Every Python block in the README and the documentation runs, in order, as one program per page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"^```(\S*)", re.MULTILINE)


def blocks(page: Path) -> list[tuple[int, str]]:
    """Line number and code of each Python block."""
    text = page.read_text(encoding="utf-8")
    return [(text[: found.start(1)].count("\n"), found[1]) for found in _BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from unsmooth.metrics.registry import METRICS
    from unsmooth.models import registry

    monkeypatch.setattr(registry, "_FAMILIES", list(registry._FAMILIES))
    names: dict[str, object] = {"__name__": "page"}
    known = dict(METRICS)
    try:
        for line, code in blocks(page):
            # Empty lines in front, so that an error names the line of the page.
            exec(compile("\n" * line + code, str(page), "exec", dont_inherit=True), names)
    finally:
        for added in METRICS.keys() - known.keys():  # a metric that a page registers
            del METRICS[added]


def test_there_is_code_and_every_fence_is_named_and_closed() -> None:
    assert sum(len(blocks(page)) for page in PAGES) >= 10
    for page in PAGES:
        fences = _OPENING.findall(page.read_text(encoding="utf-8"))
        assert len(fences) % 2 == 0, page
        assert set(fences[::2]) <= {"python", "sh", "text"}, page
        assert set(fences[1::2]) <= {""}, page
