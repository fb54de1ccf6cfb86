"""CONTRIBUTING's recipes work as printed: their code is run, and what it adds is used from end to end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from control.cases import images, outputs, total_of, vit
from typer.testing import CliRunner

import unsmooth
import unsmooth.paper
from unsmooth.cli.app import app
from unsmooth.control import FIXES, apply_fix, bake, reparametrize
from unsmooth.control.forms import FORMS
from unsmooth.metrics.registry import METRICS
from unsmooth.models import hook_points, view
from unsmooth.paper import index

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

pytest.importorskip("timm")


def code(heading: str) -> str:
    """The one Python block under a heading."""
    (section,) = (part for part in TEXT.split("\n### ")[1:] if part.startswith(f"{heading}\n"))
    (block,) = re.findall(r"^```python\n(.*?)^```", section.split("\n## ")[0], re.DOTALL | re.MULTILINE)
    return str(block)


def run(heading: str) -> dict[str, Any]:
    """What the block defines."""
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code(heading), f"CONTRIBUTING.md, {heading}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def _registries_as_before() -> Iterator[None]:
    kept = [(registry, dict(registry)) for registry in (METRICS, FORMS, FIXES)]
    yield
    for registry, content in kept:
        registry.clear()  # type: ignore[attr-defined]
        registry.update(content)  # type: ignore[attr-defined]


def test_every_file_and_folder_that_the_recipes_name_is_there() -> None:
    named = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./]*)`", TEXT)
    assert len(named) > 12
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_a_metric(tmp_path: Path) -> None:
    run("A metric")
    model, batch = vit(), images(3)
    m = unsmooth.measure(model, [batch], metrics="norm_spread, hfc-lfc")
    frame = m.frame().set_index(["point", "metric"])["mean"]
    tokens = model.pos_drop(model._pos_embed(model.patch_embed(batch))).double()  # type: ignore[operator]
    norms = tokens.detach().norm(dim=-1)
    expected = float((norms.std(-1) / norms.mean(-1)).mean())
    assert frame["blocks.0.pre", "norm_spread"] == pytest.approx(expected, rel=1e-5)
    other = unsmooth.measure(vit(seed=1), [batch], metrics="norm_spread, hfc-lfc")
    assert "norm_spread" in set(unsmooth.compare(m, other)["metric"])
    file = m.save(tmp_path / "run.json")
    checked = CliRunner().invoke(app, ["check", str(file), "--max", "norm_spread=0"])
    assert checked.exit_code == 1
    assert "norm_spread" in checked.output


@pytest.mark.parametrize(("mode", "sign"), [("sharpening", -1), ("smoothing", 1)])
def test_a_form(mode: str, sign: int) -> None:
    run("A form of H")
    model = reparametrize(vit(), mode, form="unit").double().eval()
    with torch.no_grad():
        before = outputs(model, images(dtype=torch.float64))
        values = torch.linalg.eigvals(total_of(model))  # of Σ_h W_h
        assert (sign * values.real > -1e-9).all()
        assert values.real.abs().max() > 1e-3
        baked = bake(model)
        assert torch.allclose(before, outputs(baked, images(dtype=torch.float64)))


def test_a_published_fix() -> None:
    fix = run("A published fix")["FIX"]
    FIXES[fix.name] = fix  # type: ignore[index]
    x = images()
    plain, fixed = (m.eval() for m in (vit(), apply_fix(vit(), "doubled")))
    added = []
    for model in (plain, fixed):
        seen: dict[str, torch.Tensor] = {}
        with torch.no_grad(), hook_points(view(model), ["blocks.0.attn"], seen.__setitem__):
            model(x)
        added.append(seen["blocks.0.attn"])
    torch.testing.assert_close(added[1], 2 * added[0])
    assert not unsmooth.measure(fixed, [x]).frame().equals(unsmooth.measure(plain, [x]).frame())
    three = apply_fix(vit(), "doubled", layers="second-half", factor=3.0)
    assert [hasattr(block.attn, "fix") for block in three.blocks] == [False, True]  # type: ignore[union-attr]


def test_a_figure_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "noise.py").write_text(code("A figure or table of the paper"), encoding="utf-8")
    monkeypatch.setattr(unsmooth.paper, "__path__", [*unsmooth.paper.__path__, str(tmp_path)])
    index.items.cache_clear()
    try:
        listed = CliRunner().invoke(app, ["reproduce", "list"])
        assert "What the plain model does to noise" in listed.output
        drawn = tmp_path / "figures"
        done = CliRunner().invoke(app, ["reproduce", "noise", "--figures", str(drawn)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert "not on pictures" in done.output
        assert [path.suffix for path in drawn.iterdir() if path.stem == "noise"]
    finally:
        index.items.cache_clear()
