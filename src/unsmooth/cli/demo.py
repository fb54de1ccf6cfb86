"""`unsmooth demo`: the page for the models that ship with the project, on what is bundled, without a network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unsmooth.cli.tables.layout import titled
from unsmooth.errors import DataError

if TYPE_CHECKING:
    from unsmooth.analysis import Subject

FALLBACK = "timm:vit_tiny_patch16_224"
SAMPLES = 16  # at most: passages give more windows than pictures
# Shown first, in this order, when their names say what they are.
VARIANTS = ("plain", "sharpening", "smoothing")
Out = Annotated[Path, typer.Option(help="File of the page.")]
Models = Annotated[int, typer.Option(min=1, help="Show this many of the models that ship with unsmooth.")]
OnText = Annotated[
    bool, typer.Option("--text", help="Show the text models on passages of books instead of the ViTs on pictures.")
]


def command(out: Out = Path("demo.html"), models: Models = 3, text: OnText = False) -> None:
    """Measure and explain the models that ship, on bundled pictures or texts: prints a table, writes a page."""
    import torch

    from unsmooth.analysis import analyse
    from unsmooth.cli.progress import track
    from unsmooth.cli.report import nothing_half_done, page_names
    from unsmooth.page import build_report
    from unsmooth.sources import load_model, open_data
    from unsmooth.sources.files import check_writable, write_result

    torch.manual_seed(0)
    check_writable(out)
    chosen = [f"zoo:{name}" for name in shipped(text)[:models]]
    if text and not chosen:
        raise DataError("no text model ships with this copy: train one, `unsmooth train small-text --data TEXTS`")
    if not chosen:
        typer.echo(f"no model ships with this copy: {FALLBACK} with random weights stands in")
    with nothing_half_done(out):
        subjects = []
        for name, reference in zip(page_names(chosen or ["random ViT-Ti"], None), chosen or [FALLBACK], strict=True):
            loaded = load_model(reference, random_init=not chosen)
            data = open_data("bundled", loaded, samples=SAMPLES)
            subjects.append(analyse(loaded, data, name, explain_inputs=3, track=track))
        said = "unsmooth demo" + (" --text" if text else "")
        title = headline([s.name for s in subjects], "masked language model" if text else "ViT")
        write_result(out, build_report(subjects, title=title, command=said))
    Console().print(glance(subjects))
    typer.echo(f"The page is {out.resolve()}: open it in a browser.")


def headline(names: Sequence[str], kind: str = "ViT") -> str | None:
    """What the three variants of one model are asked; the page's own question for anything else.

    >>> headline(["plain", "sharpening", "smoothing"])
    'One ViT trained plain, sharpening and smoothing: how smooth are its features?'
    """
    from unsmooth.figures.text import listed

    three = len(names) == 3 and all(variant in name for variant, name in zip(VARIANTS, names, strict=True))
    return f"One {kind} trained {listed(names)}: how smooth are its features?" if three else None


def glance(subjects: Sequence[Subject]) -> Table:
    """One row per model: each metric from the first layer's input to the last layer's output, and its course."""
    from unsmooth.figures.text import measured_text
    from unsmooth.metrics.registry import METRICS
    from unsmooth.page.course import leading_metrics
    from unsmooth.page.data import shared_policies
    from unsmooth.page.glance import TOKENS, in_short, passed

    metrics, policy = leading_metrics(subjects), shared_policies(subjects)[0]
    titles = ("model", *(METRICS[metric].title for metric in metrics), "in short")
    table = titled(f"First layer's input → turns → last layer's output ({TOKENS.get(policy, policy)})", titles, titles)
    for subject in subjects:
        values = (passed(subject.measurement, metric, policy) for metric in metrics)
        said = in_short(subject.measurement, metrics, policy, {1: "smooths", -1: "sharpens"})
        table.add_row(escape(subject.name), *(" → ".join(map(measured_text, found)) for found in values), said)
    return table


def shipped(text: bool = False) -> list[str]:
    """The zoo's models of a kind: first plain, sharpening and smoothing of one share of the data, the larger one."""
    from unsmooth.sources.files import read_json
    from unsmooth.sources.trained import CONFIG, SCHEMA, TEXT_ABOUT, TEXT_SCHEMA, zoo_folder, zoo_models

    about = (TEXT_ABOUT, TEXT_SCHEMA) if text else (CONFIG, SCHEMA)
    names = [name for name, reads in zoo_models().items() if reads == text]
    configs = {name: read_json(zoo_folder() / name / about[0], about[1]) for name in names}
    groups: dict[float, dict[str, str]] = {}
    for name, config in configs.items():
        kind = next((variant for variant in VARIANTS if variant in str(config.get("variant", name))), None)
        if kind is not None:
            groups.setdefault(float(config.get("fraction", 1.0)), {}).setdefault(kind, name)
    best = max(groups.items(), key=lambda group: (len(group[1]), group[0]), default=(0.0, {}))[1]
    first = [best[variant] for variant in VARIANTS if variant in best]
    return first + [name for name in configs if name not in first]
