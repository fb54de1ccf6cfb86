"""`unsmooth attribute MODEL --data PATH`: who changed ln HFC/LFC, exactly."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unsmooth.cli import options
from unsmooth.cli.groups import ungrouped
from unsmooth.cli.output import OutputOptions
from unsmooth.cli.progress import Interruption, interruptible, track
from unsmooth.errors import OptionError

if TYPE_CHECKING:
    from unsmooth.analysis import Attribution
    from unsmooth.analysis.processes import Team
    from unsmooth.figures import Drawing
    from unsmooth.sources import Data, LoadedModel

Spectrum = Annotated[
    bool, typer.Option("--spectrum", help="Split the share of every head by the sign of the eigenvalues of its H.")
]
Top = Annotated[int, typer.Option(min=1, help="Show this many of the strongest parts.")]
Total = Annotated[
    int,
    typer.Option(
        min=0,
        help="Compute the total effect of this many of the strongest parts: run the model again without each of them.",
    ),
]
Passes = Annotated[
    int, typer.Option(min=1, help="With --total: use at most this many forward passes. At least one batch is used.")
]
CarriersOption = Annotated[
    bool,
    typer.Option(
        "--carriers",
        help="Also find tokens of extreme norm, the MLP that creates them, and the heads that attend to them.",
    ),
]
Remove = Annotated[
    str, typer.Option(help="What replaces a part that is removed: zero, or its mean over the tokens of the input.")
]


@ungrouped
def command(
    model: options.Model,
    data: options.DataPath,
    tokens: options.Tokens = "all",
    spectrum: Spectrum = False,
    top: Top = 12,
    total: Total = 3,
    passes: Passes = 32,
    remove: Remove = "zero",
    carriers: CarriersOption = False,
    heads_in_turn: options.HeadsInTurn = None,
    reading: options.DataOptions = options.DataOptions(samples=16),
    loading: options.ModelOptions = options.ModelOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Split the change of ln HFC/LFC over the depth exactly into shares of heads, mean paths, MLPs and norms.

    The mean path is the part of attention's output that is the same for every token.
    """
    from unsmooth.analysis.attributing.removal import MODES
    from unsmooth.analysis.policies import resolve_policies
    from unsmooth.analysis.processes import launched
    from unsmooth.cli.tables.attributed import show

    resolve_policies(tokens)
    if remove not in MODES:
        raise OptionError.unknown("way to remove a part", remove, MODES)
    with launched() as team:
        if team.first:
            output.check()
        loaded = loading.of(team).load(model)
        batches = reading.open(data, loaded)
        with interruptible() as stopped:
            settings = {"tokens": tokens, "spectrum": spectrum, "carriers": carriers, "heads_in_turn": heads_in_turn}
            found = run(loaded, batches, settings, (total, passes, remove), stopped, team)
        if team.first:
            output.tell(found, drawings, partial(show, top=top))
    stopped.leave()


def run(
    loaded: LoadedModel,
    batches: Data,
    settings: dict[str, Any],
    without: tuple[int, int, str],
    stopped: Interruption,
    team: Team,
) -> Attribution:
    """Attribute with a progress bar; what ends it early marks the result partial.

    `without`: of how many parts the total effect is found, with how many passes, and how they are taken out.
    """
    from unsmooth.analysis import Attributor, Origin
    from unsmooth.analysis.attributing.account import take_account
    from unsmooth.analysis.attributing.attribution import affordable
    from unsmooth.analysis.attributing.removal import total_effects

    total, passes, remove = without

    def shared(doing: str, most: int | None = None) -> Iterable[Any]:
        known = None if most else batches.samples
        return team.share(stopped.until(track(islice(batches, most), doing, known, quiet=not team.first)))

    with Attributor(loaded, **settings, origin=Origin.of(loaded, batches, options.command_line())) as attributor:
        for batch in shared("attributing"):
            attributor.update(batch)
    stopped.check(attributor.batches, team)
    team.attributed(attributor)
    if not (ended := team.anybody(bool(stopped))):
        outliers = None if attributor.carriers is None else attributor.carriers.outliers()
        take_account(attributor, shared("following outliers"), outliers, team.merged)
        ended = team.anybody(bool(stopped))
    found = attributor.result(partial=ended)
    if total and not ended:
        first = shared("taking parts out", affordable(total, passes))
        found.totals = total_effects(attributor, found, first, total, remove, team.merged)
    return found


def drawings(found: Attribution) -> dict[str, Drawing]:
    """Shares by part under each token policy, and the tokens that carry them where they were asked for."""
    from unsmooth.figures import carriers

    drawn = {f"parts-{policy}": found.plot(policy) for policy in found.policies}
    return drawn | ({} if found.carriers is None else {"carriers": carriers(found)})
