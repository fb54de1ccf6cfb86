"""Attributions as tables for people."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unsmooth.analysis import Attribution
from unsmooth.analysis.attributing.carriers import Carriers
from unsmooth.analysis.attributing.shares import NAMES
from unsmooth.cli.tables.layout import in_words, narrow_table, small_print, written
from unsmooth.figures.text import counted_between, measured_text
from unsmooth.prose import counted

_NUMBERS = (("mean", "share"), ("std", "std"), ("hfc", "by HFC"), ("lfc", "by LFC"), ("negative", "λ < 0"),
            ("positive", "others"))  # fmt: skip
EVEN = 0.05  # of a share: so little is left of it where later layers make up for it
_CARRIERS = (
    # column of the frame, heading, format
    ("norm", "norm", ".3g"),
    ("times", "times", ".3g"),
    ("position", "at", ".0f"),
    ("outliers", "out", ".2g"),
    ("kurtosis", "kurtosis", ".3g"),
    ("kurtosis_token", "its own", ".3g"),
    ("activation", "max", ",.0f"),
    ("first", "first", ".0%"),
    ("outlying", "outlying", ".0%"),
    ("sinks", "sinks", ".0f"),
)

_DEFINED = {  # name of a definition: what its columns are called here
    "mean": "share",
    "hfc, lfc": "by HFC, by LFC",
    "negative, positive": "λ < 0, others",
    "outliers": "out",
    "kurtosis": "kurtosis, its own",
    "activation": "max",
}


def show(found: Attribution, console: Console, top: int) -> None:
    """Print the strongest parts, the sums by layer, and the tokens that carry the most."""
    for policy in found.policies:
        console.print(strongest(found, policy, top))
        console.print(by_layer(found, policy))
        console.print(by_position(found, policy))
    if found.totals:
        console.print(effects(found))
    if found.carriers is not None:
        from unsmooth.page.words.carriers import account_found, sinks_found

        console.print(carriers_by_layer(found.carriers))
        sinks = sinks_found(found.carriers)
        console.print(Text(account_found(found.carriers) + (f" {sinks}." if sinks else "")))
    definitions = found.about.definitions.columns
    lines = [f"{_DEFINED.get(name, name)}: {said}" for name, said in definitions.items() if name not in _unseen(found)]
    console.print(small_print(lines, found.notes, "attributed" if found.partial else ""))
    console.print(in_words(found_in(found)))


def found_in(found: Attribution) -> list[str]:
    """What raises HFC/LFC most and what lowers it, under each token policy, in sentences."""
    from unsmooth.page.words.attribution import strongest_found

    said = []
    for policy in found.policies:
        if text := strongest_found(found, policy):
            ends = [math.exp(end.mean) for end in (found.under(policy).start, found.under(policy).end)]
            said.append(
                f"From the first block to the last, HFC/LFC ({policy} tokens, geometric mean over inputs) goes from "
                f"{measured_text(ends[0])} to {measured_text(ends[1])}. It is {text}."
            )
    for row in found.totals:
        direct, total = float(row["direct"]), float(row["total"])
        if total * direct < direct**2 / 2:
            left = total / direct  # of its share
            how = "makes up for most of it" if left > EVEN else "more than makes up for it" if left < -EVEN else ""
            said.append(
                f"Without the {row['part']} of layer {row['layer']}, HFC/LFC after the last block is multiplied by "
                f"{math.exp(-total):.3g}, where its share alone would give {math.exp(-direct):.3g}: what comes after "
                f"{how or 'makes up for it'}."
            )
    return said


def _unseen(found: Attribution) -> set[str]:
    """Definitions of what this result does not show."""
    kinds = {part.kind for part in found.under(found.policies[0]).parts}
    shown = {
        "norm": bool(kinds & {"norm1", "norm2"}),
        "negative, positive": found.about.settings.spectrum,
        "direct, total": bool(found.totals),
        "account": found.carriers is not None and bool(found.carriers.account),
    }
    return {name for name, seen in shown.items() if not seen}


def strongest(found: Attribution, policy: str, count: int) -> Table:
    """The parts with the largest shares."""
    shares = found.under(policy)
    columns = [c for c in _NUMBERS if found.about.settings.spectrum or c[0] not in ("negative", "positive")]
    table = narrow_table(
        f"{found.about.model.name}, {counted(found.inputs, 'input')}, {policy} tokens: ln HFC/LFC "
        f"{shares.start.mean:+.3f} → {shares.end.mean:+.3f}, a change of {shares.change.mean:+.3f}",
        ("layer", "part", *(heading for _, heading in columns)), left=("part",),
    )  # fmt: skip
    rows = found.strongest(count, policy).to_dict("records")
    for row in rows:
        numbers = (written(row[name], ".3f" if name == "std" else "+.3f") for name, _ in columns)
        table.add_row(str(row["layer"]), row["part"], *numbers)
    left = shares.change.mean - sum(row["mean"] for row in rows)
    table.add_row("", f"all {max(len(shares.parts) - len(rows), 0)} others", f"{left:+.3f}")
    return table


def effects(found: Attribution) -> Table:
    """Direct beside total effects."""
    first = found.totals[0]
    inputs = counted_between((row["inputs"] for row in found.totals), "input")
    title = (
        f"Direct and total effect, the latter of {inputs}; {first['tokens']} tokens, parts taken out: {first['mode']}"
    )
    table = narrow_table(title, ("layer", "part", "direct", "total", "std"), left=("part",))
    for row in found.totals:
        spread = "–" if row["std"] is None else written(row["std"], ".3f")
        table.add_row(str(row["layer"]), row["part"], f"{row['direct']:+.3f}", f"{row['total']:+.3f}", spread)
    return table


def by_layer(found: Attribution, policy: str) -> Table:
    """Sums over the parts of each layer, by kind."""
    frame = found.by_layer(policy)
    table = narrow_table(f"By layer, {policy} tokens", ("layer", *frame.columns))
    for layer, row in zip(frame.index, frame.to_dict("records"), strict=True):
        table.add_row(str(layer), *(written(value, "+.3f") for value in row.values()))
    return table


def by_position(found: Attribution, policy: str, count: int = 5) -> Table:
    """The positions, and of text the tokens, to which the largest shares are written."""
    title, columns = f"Tokens that carry the most, {policy} tokens", ("token", "in all", "most by", "there")
    table = narrow_table(title, columns, left=("token", "most by"))
    for row in found.by_position(policy, count).to_dict("records"):
        where = f"{row['kind']} of layer {row['layer']}"
        table.add_row(f"position {row['position']}", f"{row['sum']:+.3f}", where, f"{row['there']:+.3f}")
    for row in found.by_token(policy).head(count).to_dict("records"):
        said = repr(row["text"]) if row["text"] is not None else f"id {row['token']}"
        where = f"{NAMES[row['kind']]} of layer {row['layer']}"
        table.add_row(Text(said), f"{row['share']:+.3f}", where, f"{row['there']:+.3f}")
    return table


def carriers_by_layer(carriers: Carriers) -> Table:
    """One row for the input and one for each layer."""
    from unsmooth.page.words.carriers import uniform_text

    share = carriers.first_uniform
    table = narrow_table(
        "Tokens after each layer (median norm, how many times it the token farthest out has, and at which position; "
        "outliers; kurtosis; largest activation), and the layer's attention on the first and on outlying tokens"
        + ("" if share is None else f" ({uniform_text(share, 'the first token ')})"),
        ("layer", *(heading for _, heading, _ in _CARRIERS)),
    )
    for row in carriers.layers:
        cells = (written(row[name], spec) if name in row else "" for name, _, spec in _CARRIERS)
        table.add_row("input" if row["layer"] < 0 else str(row["layer"]), *cells)
    return table
