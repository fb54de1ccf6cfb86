"""`unsmooth report MODEL… --data PATH --out report.html`: one page to send to a colleague."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import print_json
from unsmooth.errors import CheckpointError, OptionError
from unsmooth.prose import counted

if TYPE_CHECKING:
    from unsmooth.analysis import Subject, Sweep

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL…",
        help="One or several models: zoo:NAME, timm:NAME, hf:NAME_OR_FOLDER[@REVISION][#PART], or a folder "
        "that `unsmooth train` wrote.",
    ),
]
Page = Annotated[Path, typer.Option("--out", help="File of the page.")]
Figures = Annotated[Path | None, typer.Option(help="Also write every figure as SVG, PNG and PDF into this folder.")]
Names = Annotated[
    str | None, typer.Option(help="Names of the models on the page, in their order, separated by commas.")
]
Metrics = Annotated[
    str | None, typer.Option(help="Presets and names of metrics, separated by commas. By default all metrics.")
]
Tokens = Annotated[
    str | None,
    typer.Option(help="Which tokens are counted, separated by commas. By default every policy that fits the data."),
]
Inputs = Annotated[
    int,
    typer.Option(min=0, help="Explain this many inputs (spectra, exponents, heads). 0 leaves these sections out."),
]
Example = Annotated[int, typer.Option(min=0, help="The sample of the first batch whose tokens are shown.")]
Sweeps = Annotated[
    list[Path] | None,
    typer.Option(
        "--sweep",
        metavar="FILE",
        help="A file that `unsmooth sweep --out` wrote for one of the models. Repeatable. By default PAGE.sweep.json "
        "beside the page, if it is about one of the models.",
    ),
]


@ungrouped
def command(
    models: Models,
    data: options.DataPath,
    out: Page = Path("report.html"),
    figures: Figures = None,
    names: Names = None,
    metrics: Metrics = None,
    tokens: Tokens = None,
    explain_inputs: Inputs = 4,
    example: Example = 0,
    sweep: Sweeps = None,
    reading: options.DataOptions = options.DataOptions(samples=64),
    loading: options.ModelsOptions = options.ModelsOptions(),
    degenerate: options.Degenerate = "error",
    rank_budget: options.RankBudget = None,
    as_json: options.Json = False,
) -> None:
    """Measure and explain models, and write one HTML page about them that opens without a network."""
    from unsmooth.analysis import Origin, analyse
    from unsmooth.analysis.processes import launched
    from unsmooth.cli.progress import Interruption
    from unsmooth.figures import check_folder
    from unsmooth.page import build_report
    from unsmooth.reporting import with_sweeps
    from unsmooth.sources.files import check_writable, write_result

    called, swept = page_names(models, names), load_sweeps(sweep, out)
    with launched() as team, nothing_half_done(out):
        if team.first:
            check_writable(out)
        if figures is not None and team.first:
            check_folder(figures)
        opened = list(loading.of(team).load_each(models))
        batches = [reading.open(data, loaded) for loaded in opened]  # all fit, or nothing is begun
        subjects, stops = [], [Interruption() for _ in opened]
        alone = -(-max(explain_inputs, 1) // reading.batch_size)  # the first process explains, and shows the example
        shares = [replace(given, make=partial(team.share, given, alone)) for given in batches]
        for own in shares if team.size > 1 else ():
            team.check(sum(1 for _ in islice(own, 1)))
        for name, loaded, given, own, stop in zip(called, opened, batches, shares, stops, strict=True):
            subject = analyse(
                loaded, own, name, metrics=metrics, tokens=tokens, example=example if team.first else 0,
                explain_inputs=explain_inputs if team.first else 0, degenerate=degenerate, rank_budget=rank_budget,
                origin=Origin.of(loaded, given, options.command_line()), track=stop.track,
            )  # fmt: skip
            subject.measurement.partial = bool(stop)
            subjects.append(replace(subject, measurement=team.measured(subject.measurement)))
        if team.first:
            known = swept if sweep else [each for each in swept if any(subject.is_of(each) for subject in subjects)]
            subjects = with_sweeps(subjects, known)
            write_result(out, build_report(subjects, command=options.command_line()))
    if team.first:
        _tell(out, write_figures(subjects, figures), subjects, as_json)
    for stop in stops:  # the page holds what could be read; now the error, and its exit code
        stop.leave()


def load_sweeps(paths: Sequence[Path] | None, out: Path) -> list[Sweep]:
    """The sweeps given, or the one beside the page."""
    from unsmooth.analysis import Sweep, load

    beside = out.with_suffix(".sweep.json")
    found = []
    for path in paths or ([beside] if beside.is_file() else []):
        result = load(path)
        if not isinstance(result, Sweep):
            raise CheckpointError(f"{path} holds a {type(result).__name__}: expected what `unsmooth sweep` wrote")
        found.append(result)
    return found


@contextmanager
def nothing_half_done(out: Path) -> Iterator[None]:
    """Ctrl-C ends the command with a word on what became of the page, and the exit code that shells use for it."""
    try:
        yield
    except KeyboardInterrupt:
        left = f"{out} is as it was before" if out.exists() else f"{out} does not exist"
        typer.echo(f"interrupted: no page was written, {left}", err=True)
        raise typer.Exit(130) from None


def page_names(references: Sequence[str], names: str | None) -> list[str]:
    """What the page calls each model: the names given, or the end of the references.

    Trained models lose the words that all their names begin with.

    >>> page_names(["zoo:cifar-plain", "zoo:cifar-smoothing", "hf:models/mpnet"], None)
    ['plain', 'smoothing', 'mpnet']
    """
    called = _short_names(references) if names is None else [name.strip() for name in names.split(",")]
    if len(called) != len(references):
        raise OptionError(f"--names must name every model: expected {len(references)} names, got {len(called)}")
    if len(set(called)) < len(called):
        raise OptionError(f"the models of a page need different names, got {', '.join(called)}: give them by --names")
    return called


def _short_names(references: Sequence[str]) -> list[str]:
    parts = [[part for part in re.split(r"[:/]", reference) if part] or [reference] for reference in references]
    ours = [not reference.startswith(("timm:", "hf:")) for reference in references]
    for count in (1, 2):  # the last part, or the last two where only they tell models apart
        words = [re.split(r"(?<=[-_/])", "/".join(part[-count:])) for part in parts]
        trained = [each for each, mine in zip(words, ours, strict=True) if mine]
        same = [len(set(column)) == 1 for column in zip(*trained, strict=False)]
        cut = [*same, False].index(False) if len(trained) > 1 else 0
        short = ["".join(each[cut:] if mine else each) for each, mine in zip(words, ours, strict=True)]
        if all(short) and len(set(short)) == len(short):
            return short
    return list(references)


def write_figures(subjects: Sequence[Subject], folder: Path | None) -> list[Path]:
    """Every figure as SVG, PNG and PDF."""
    from unsmooth.figures import save_figures, subject_figures

    return [] if folder is None else save_figures(subject_figures(subjects), folder)


def _tell(out: Path, drawn: Sequence[Path], subjects: Sequence[Subject], as_json: bool) -> None:
    from rich.console import Console

    from unsmooth.cli.tables.layout import in_words
    from unsmooth.page.words.findings import findings

    said = findings(subjects)
    size = out.stat().st_size
    if as_json:
        print_json({
            "page": str(out), "bytes": size, "figures": [str(path) for path in drawn],
            "models": [{"name": s.name, "samples": s.measurement.samples} for s in subjects],
            "findings": [{"about": found.about, "text": found.text()} for found in said],
        })  # fmt: skip
        return
    Console().print(in_words(found.text() for found in said))
    typer.echo(f"\n{out} ({size / 1e6:.1f} MB): open it in a browser")
    if drawn:
        typer.echo(f"{counted(len(drawn), 'figure')} in {drawn[0].parent}")
