"""`unsmooth simulate`: one layer, iterated: Figure 3, and the table of docs/theory.md, section 5."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import FileOptions, json_file
from unsmooth.cli.tables.layout import small_print, titled
from unsmooth.errors import OptionError
from unsmooth.prose import counted

if TYPE_CHECKING:
    from torch import Tensor

    from unsmooth.theory.norm_impact import TableCell

Seeds = Annotated[int, typer.Option(min=1, help="Number of random layers.")]
Layers = Annotated[int, typer.Option(min=1, help="Number of iterations of the layer.")]
MOST = 16_384  # an H of this width is 2 GiB
Tokens = Annotated[int, typer.Option(min=2, max=MOST, help="Number of tokens of the random features.")]
Dim = Annotated[int, typer.Option(min=1, max=MOST, help="Width of the random features.")]
Picture = Annotated[
    Path | None, typer.Option("--image", help="Start from the 8×8 patches of this image instead of random features.")
]
Whole = Annotated[
    bool,
    typer.Option(
        "--table", help="Simulate all settings and show the published values beside them (the default without --form)."
    ),
]
Form = Annotated[str | None, typer.Option(help="Simulate one setting only, with an H that is symmetric or general.")]
Norm = Annotated[str | None, typer.Option(help="With --form: the normalisation: none (the default), pre or post.")]
Mode = Annotated[str | None, typer.Option(help="With --form: sharpening (the default) or smoothing.")]
Sign = Annotated[int | None, typer.Option(help="With --form: sign of the LayerNorm weights, 1 (the default) or -1.")]
Figure = Annotated[Path | None, typer.Option(help="Write Figure 3 of the paper to this file (.svg, .png or .pdf).")]


@ungrouped
def command(
    table: Whole = False,
    form: Form = None,
    norm: Norm = None,
    mode: Mode = None,
    sign: Sign = None,
    seeds: Seeds = 20,
    layers: Layers = 128,
    tokens: Tokens = 64,
    dim: Dim = 32,
    image: Picture = None,
    figure: Figure = None,
    output: FileOptions = FileOptions(),
) -> None:
    """Repeat one random attention layer: does it smooth or sharpen, without a norm, with Pre-LN or Post-LN?"""
    from unsmooth.figures import check_figure

    chosen = {"--norm": norm, "--mode": mode, "--sign": sign}
    if (form is None or table) and (given := [name for name, value in chosen.items() if value is not None]):
        raise OptionError(f"{' and '.join(given)} can be used only with --form and without --table")
    output.check()
    if figure is not None:
        check_figure(figure)
    start = None if image is None else _patches(image)
    found: dict[str, Any]
    shown: Table | Group
    if form is not None and not table:
        found = _one(form, norm or "none", mode or "sharpening", sign or 1, seeds, layers, tokens, dim, start)
        shown = _curve_table(found)
    else:
        found, shown = _all(seeds, layers, tokens, dim, start)
    plain = {"schema": "unsmooth.simulation/1", **found}

    def draw(path: Path) -> None:
        from unsmooth.figures import norm_impact
        from unsmooth.theory.scenario import log10_curves

        norm_impact(log10_curves(range(seeds), layers, start, tokens, dim)).save(path)

    output.finish(lambda: plain, lambda console: console.print(shown), (output.out, json_file(plain)), (figure, draw))


def _one(
    form: str, norm: str, mode: str, sign: int, seeds: int, layers: int, tokens: int, dim: int, start: Tensor | None
) -> dict[str, Any]:
    import torch

    from unsmooth.cli.progress import track
    from unsmooth.theory.scenario import FORMS, MODES, Scenario, curve

    given = {
        "form": (form, FORMS),
        "mode": (mode, MODES),
        "norm": (norm, ("none", "pre", "post")),
        "sign": (sign, (1, -1)),
    }
    for what, (got, valid) in given.items():
        if got not in valid:
            raise OptionError.unknown(what, got, valid)
    scenario = Scenario(form, None if norm == "none" else norm, mode, sign)  # type: ignore[arg-type]
    tracked = track(range(seeds), "simulating seeds", seeds)
    curves = torch.stack([curve(scenario, seed, layers, start, tokens, dim).log10() for seed in tracked])
    spread = curves.std(0) if seeds > 1 else torch.zeros_like(curves[0])
    return {
        "scenario": scenario.label, "seeds": seeds, "layers": layers,
        "log10_hfc_lfc": curves.mean(0).tolist(), "std": spread.tolist(),
    }  # fmt: skip


def _all(seeds: int, layers: int, tokens: int, dim: int, start: Tensor | None) -> tuple[dict[str, Any], Group]:
    from unsmooth.cli.progress import track
    from unsmooth.theory.norm_impact import norm_impact_table

    def tracked(all_seeds: Iterable[int]) -> Iterable[int]:
        return track(all_seeds, "simulating seeds", seeds)

    cells = norm_impact_table(range(seeds), layers, start, tokens, dim, track=tracked)
    shown = _cell_table(cells, seeds, layers, start is None and (tokens, dim, layers) == (64, 32, 128))
    return {"layers": layers, "seeds": seeds, "cells": [_cell(cell) for cell in cells]}, shown


def _patches(path: Path) -> Tensor:
    from unsmooth.sources.patches import image_patches

    return image_patches(path)


def _cell(cell: TableCell) -> dict[str, Any]:
    s = cell.scenario
    return {
        "form": s.form, "norm": s.norm or "none", "mode": s.mode, "sign": s.sign, "mean": cell.mean, "std": cell.std,
        "smoothed": cell.smoothed, "bimodal": cell.bimodal, "values": list(cell.values),
        "right": cell.right, "right_bare": cell.bare_right,
        "documented": None if math.isnan(cell.documented) else cell.documented,
        "documented_smoothed": cell.documented_share, "agrees": cell.agrees,
    }  # fmt: skip


def _curve_table(found: dict[str, Any]) -> Table:
    title = f"{found['scenario']}: log10 HFC/LFC, {counted(found['seeds'], 'seed')}"
    table = titled(title, ("iteration", "mean ± std"))
    marks = sorted({0, found["layers"], *(2**i for i in range(20) if 2**i < found["layers"])})
    for mark in marks:
        table.add_row(str(mark), f"{found['log10_hfc_lfc'][mark]:+.2f} ± {found['std'][mark]:.2f}")
    return table


def _cell_table(cells: list[TableCell], seeds: int, layers: int, comparable: bool) -> Group:
    from unsmooth.theory.norm_impact import COLUMNS

    lines = [
        "mean ± std over seeds; where some seeds collapse and others sharpen there is no mean: the seeds of each, with "
        "their medians",
        "LN: the LayerNorm, before attention (pre) or after the sum (post); + and −: the sign of its weights",
        "right: in how many seeds the exponent γ, with the norm folded in, has the sign of the outcome",
    ]
    if comparable:
        lines.append(
            "≠: what docs/theory.md, section 5, documents, where this differs in sign or by more than 0.6 "
            "(or in the share of seeds that smooth)"
        )
    names = [f"{mode},\nLN weights {'+' if sign > 0 else '−'}" for mode, sign in COLUMNS]
    title = f"log10 HFC/LFC after {layers} iterations, {counted(seeds, 'seed')}"
    table = titled(title, ("H, LN", *names), left=("H, LN",))
    found = {(c.scenario.form, c.scenario.norm, c.scenario.mode, c.scenario.sign): c for c in cells}
    for form, norm in dict.fromkeys((c.scenario.form, c.scenario.norm) for c in cells):
        row = [found.get((form, norm, mode, sign)) for mode, sign in COLUMNS]
        row_name = f"{form}, {norm}" if norm else f"{form}, no LN"
        table.add_row(row_name, *("" if c is None else _text(c, comparable) for c in row))
    return Group(table, small_print(lines, ()))


def _text(cell: TableCell, comparable: bool) -> str:
    expected = f"{cell.documented:+.1f}" if cell.documented_share is None else f"{cell.documented_share:.0%} smooth"
    differs = f"\n≠ {expected}" if comparable and not cell.agrees else ""
    count, right = len(cell.values), f"\nright: {cell.right}/{len(cell.values)}"
    if not cell.bimodal:
        return f"{cell.mean:+.2f} ± {cell.std:.2f}{right}{differs}"
    low, high = cell.heaps
    smooth = round(cell.smoothed * count)
    return f"{smooth} smooth: {low:+.1f}\n{count - smooth} sharpen: {high:+.1f}{right}{differs}"
