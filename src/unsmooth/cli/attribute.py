"""`unsmooth attribute MODEL --data PATH`: who changed ln HFC/LFC, exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.progress import Interruption, interruptible, track

if TYPE_CHECKING:
    from rich.table import Table

    from unsmooth.analysis import Attribution
    from unsmooth.analysis.processes import Team
    from unsmooth.sources import Data, LoadedModel

Tokens = Annotated[
    str, typer.Option(help="Token policies, with commas: all, patches, content, no-outliers. Whose HFC and LFC.")
]
Spectrum = Annotated[
    bool, typer.Option("--spectrum", help="Split every head by the negative and the other eigenvalues of its H.")
]
Top = Annotated[int, typer.Option(min=1, help="How many of the strongest parts are shown.")]
Total = Annotated[
    int, typer.Option(min=0, help="Also take out so many of the strongest parts and run again: the total effect.")
]
CarriersOption = Annotated[
    bool, typer.Option("--carriers", help="Also which tokens carry it: norms, kurtosis, attention sinks, who writes.")
]
Remove = Annotated[str, typer.Option(help="How a part is taken out: zero, or mean (over the tokens of an input).")]
Figures = Annotated[Path | None, typer.Option(help="Write the figure into this folder, as SVG, PNG and PDF.")]
_NUMBERS = (("mean", "share"), ("std", "std"), ("hfc", "by HFC"), ("lfc", "by LFC"), ("negative", "λ < 0"),
            ("positive", "others"))  # fmt: skip


@ungrouped
def command(
    model: options.Model,
    data: options.DataPath,
    tokens: Tokens = "all",
    spectrum: Spectrum = False,
    top: Top = 12,
    total: Total = 0,
    remove: Remove = "zero",
    carriers: CarriersOption = False,
    heads_in_turn: options.HeadsInTurn = None,
    reading: options.DataOptions = options.DataOptions(samples=16),
    loading: options.ModelOptions = options.ModelOptions(),
    figures: Figures = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Split the change of ln HFC/LFC, first block to last, into heads, mean paths, MLPs and norms without remainder."""
    from unsmooth.analysis.policies import resolve_policies
    from unsmooth.analysis.processes import launched
    from unsmooth.analysis.removal import MODES
    from unsmooth.errors import OptionError
    from unsmooth.figures import check_folder
    from unsmooth.sources.files import check_writable

    resolve_policies(tokens)
    if remove not in MODES:
        raise OptionError.unknown("way to remove a part", remove, MODES)
    with launched() as team:
        if out is not None and team.first:
            check_writable(out)
        if figures is not None and team.first:
            check_folder(figures)
        loaded = loading.of(team).load(model)
        batches = reading.open(data, loaded)
        with interruptible() as stopped:
            settings = {"tokens": tokens, "spectrum": spectrum, "carriers": carriers, "heads_in_turn": heads_in_turn}
            found = run(loaded, batches, settings, total, remove, stopped, team)
        if team.first:
            _tell(found, out, figures, as_json, top)
    stopped.leave()


def run(
    loaded: LoadedModel,
    batches: Data,
    settings: dict[str, Any],
    total: int,
    remove: str,
    stopped: Interruption,
    team: Team,
) -> Attribution:
    """Attribute with a progress bar; what ends it early marks the result partial."""
    from unsmooth.analysis import Attributor, Origin
    from unsmooth.analysis.account import take_account
    from unsmooth.analysis.removal import total_effects

    def shared(doing: str) -> Iterable[Any]:
        return team.share(stopped.until(track(batches, doing, batches.samples, quiet=not team.first)))

    with Attributor(loaded, **settings, origin=Origin.of(loaded, batches, options.command_line())) as attributor:
        for batch in shared("attributing"):
            attributor.update(batch)
    team.check(attributor.batches)
    team.attributed(attributor)
    if not (ended := team.anybody(bool(stopped))):
        take_account(attributor, shared("following outliers"), team.merged)
        ended = team.anybody(bool(stopped))
    found = attributor.result(partial=ended)
    if total and not ended:
        found.totals = total_effects(attributor, found, shared("taking parts out"), total, remove, team.merged)
    return found


def _tell(found: Attribution, out: Path | None, figures: Path | None, as_json: bool, top: int) -> None:
    from unsmooth.figures import carriers, save_figures

    if out is not None:
        found.save(out)
    if figures is not None:
        drawings = {f"parts-{policy}": found.plot(policy) for policy in found.policies}
        save_figures(drawings | ({} if found.carriers is None else {"carriers": carriers(found)}), figures)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
    else:
        show(found, Console(), top)
        for path in (out, figures):
            if path is not None:
                typer.echo(f"written to {path}")


def show(found: Attribution, console: Console, top: int = 12) -> None:
    """Print the strongest parts, the sums by layer, and the tokens that carry the most."""
    for policy in found.policies:
        console.print(strongest(found, policy, top))
        console.print(by_layer(found, policy))
        console.print(by_position(found, policy))
    if found.totals:
        console.print(effects(found))
    if found.carriers is not None:
        from unsmooth.cli.tables_carriers import by_layer as carriers_by_layer
        from unsmooth.page.carrier_words import account_found, sinks_found

        console.print(carriers_by_layer(found.carriers))
        sinks = sinks_found(found.carriers)
        console.print(Text(account_found(found.carriers) + (f" {sinks}." if sinks else "")))
    definitions = found.about.definitions.columns
    lines = [f"{name}: {said}" for name, said in definitions.items() if name != "mean"]
    lines = [f"share: {definitions['mean']}", *lines, *(f"note: {note}" for note in found.notes)]
    if found.partial:
        lines.append("PARTIAL: interrupted before all data was attributed")
    for line in lines:
        console.print(Text(line, style="bold red" if line.startswith("PARTIAL") else "dim"))


def strongest(found: Attribution, policy: str, count: int) -> Table:
    """The parts with the largest shares."""
    from unsmooth.cli.tables import narrow_table, written
    from unsmooth.figures.text import counted

    shares = found.under(policy)
    table = narrow_table(
        f"{found.about.model.name}, {counted(found.inputs, 'input')}, {policy} tokens: ln HFC/LFC "
        f"{shares.start.mean:+.3f} → {shares.end.mean:+.3f}, a change of {shares.change.mean:+.3f}"
    )
    columns = [c for c in _NUMBERS if found.about.settings.spectrum or c[0] not in ("negative", "positive")]
    for name, side in (("layer", "right"), ("part", "left"), *((heading, "right") for _, heading in columns)):
        table.add_column(name, justify="left" if side == "left" else "right")
    rows = found.strongest(count, policy).to_dict("records")
    for row in rows:
        numbers = (written(row[name], ".3f" if name == "std" else "+.3f") for name, _ in columns)
        table.add_row(str(row["layer"]), row["part"], *numbers)
    left = shares.change.mean - sum(row["mean"] for row in rows)
    table.add_row("", f"all {max(len(shares.parts) - len(rows), 0)} others", f"{left:+.3f}")
    return table


def effects(found: Attribution) -> Table:
    """Direct beside total effects."""
    from unsmooth.cli.tables import narrow_table, written

    first = found.totals[0]
    table = narrow_table(f"Direct and total effect, {first['tokens']} tokens (parts taken out: {first['mode']})")
    for name in ("layer", "part", "direct", "total", "std"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for row in found.totals:
        spread = "–" if row["std"] is None else written(row["std"], ".3f")
        table.add_row(str(row["layer"]), row["part"], f"{row['direct']:+.3f}", f"{row['total']:+.3f}", spread)
    return table


def by_layer(found: Attribution, policy: str) -> Table:
    """Sums over the parts of each layer, by kind."""
    from unsmooth.cli.tables import narrow_table, written

    frame = found.by_layer(policy)
    table = narrow_table(f"By layer, {policy} tokens")
    for name in ("layer", *frame.columns):
        table.add_column(name, justify="right")
    for layer, row in zip(frame.index, frame.to_dict("records"), strict=True):
        table.add_row(str(layer), *(written(value, "+.3f") for value in row.values()))
    return table


def by_position(found: Attribution, policy: str, count: int = 5) -> Table:
    """The positions, and of text the tokens, to which the largest shares are written."""
    from unsmooth.cli.tables import narrow_table

    table = narrow_table(f"Tokens that carry the most, {policy} tokens")
    for name in ("token", "in all", "most by", "there"):
        table.add_column(name, justify="left" if name in ("token", "most by") else "right")
    for row in found.by_position(policy, count).to_dict("records"):
        where = f"{row['kind']} of layer {row['layer']}"
        table.add_row(f"position {row['position']}", f"{row['sum']:+.3f}", where, f"{row['there']:+.3f}")
    for row in found.by_token(policy).head(count).to_dict("records"):
        said = repr(row["text"]) if row["text"] is not None else f"id {row['token']}"
        where = f"{named_kind(row['kind'])} of layer {row['layer']}"
        table.add_row(Text(said), f"{row['share']:+.3f}", where, f"{row['there']:+.3f}")
    return table


def named_kind(kind: str) -> str:
    """A kind of part in words.

    >>> named_kind("mlp")
    'MLP'
    """
    from unsmooth.analysis.shares import NAMES

    return NAMES[kind]
