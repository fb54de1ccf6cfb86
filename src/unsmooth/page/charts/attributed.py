"""The figure of who changed ln HFC/LFC: parts by layer, the largest of them, and the tokens they are written to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from unsmooth.analysis import Attribution
from unsmooth.analysis.attributing.shares import NAMES
from unsmooth.figures.by_carrier import carriers
from unsmooth.figures.by_part import parts
from unsmooth.figures.text import counted_between, signed_text
from unsmooth.page.charts.controls import segmented, shown_when, toolbar
from unsmooth.page.charts.parts import Subjects, caption, drawn, in_row, model_panel, policy_choices
from unsmooth.page.data import shared_policies
from unsmooth.page.words.attribution import attributed, policies_of
from unsmooth.page.words.carriers import account_found
from unsmooth.prose import counted

MOST_TOKENS = 4  # rows of the table


def who_section(subjects: Subjects) -> str:
    """Shares of parts by layer and head, the largest of them, and the tokens that they are written to."""
    found = attributed(subjects)
    policies = policies_of(subjects, shared_policies(subjects))
    now = {"tokens": policies[0]}
    panels = []
    for index, subject, attribution in found:
        variants = []
        for policy in policies:
            svg = drawn(len(found), partial(parts, attribution, policy), chart="parts", model=index, tokens=policy)
            body = svg + caption(_note(attribution, policy)) + _token_table(attribution, policy)
            variants.append(shown_when(now, body, tokens=policy))
        if attribution.carriers is not None:
            some = attribution.carriers.account is not None or attribution.carriers.sinks
            svg = drawn(len(found), partial(carriers, attribution)) if some else ""
            variants.append(svg + caption(account_found(attribution.carriers)))
        if attribution.totals:
            variants.insert(len(policies), _effect_table(attribution.totals))
        panels.append(model_panel(index, subject, *variants))
    chosen = [choice for choice in policy_choices(subjects) if choice[0] in policies]
    switch = segmented("Tokens", "tokens", chosen, now["tokens"], "who-tokens")
    return toolbar(switch) + in_row(len(found), "who-charts", panels)


def _note(attribution: Attribution, policy: str) -> str:
    """What the figure adds up to."""
    shares = attribution.under(policy)
    return (
        f"ln HFC/LFC goes from {signed_text(shares.start.mean)} to {signed_text(shares.end.mean)}; the "
        f"{len(shares.parts)} parts sum to {signed_text(shares.change.mean)}, the change itself. Means over "
        f"{counted(attribution.inputs, 'input')}."
    )


def _token_table(attribution: Attribution, policy: str) -> str:
    """The positions, and of text the tokens, that receive the largest writes."""
    rows = [
        (f"position {row['position']}", row["sum"], f"{row['kind']} of layer {row['layer']}", row["there"])
        for row in attribution.by_position(policy, MOST_TOKENS).to_dict("records")
    ]
    for row in attribution.by_token(policy).head(MOST_TOKENS).to_dict("records"):
        said = f"id {row['token']}" if row["text"] is None else f"“{row['text'].strip() or repr(row['text'])}”"
        rows.append((said, row["share"], f"{NAMES[row['kind']]} of layer {row['layer']}", row["there"]))
    return _table(
        "The tokens that receive the largest writes: their share over all layers, the layer and kind of part that "
        "writes most to them, and its share. Means over inputs.",
        {"token": "name", "all layers": "number", "most by": "name", "its share": "number"},
        [(token, _share(total), where, _share(there)) for token, total, where, there in rows],
    )


def _effect_table(totals: Sequence[Mapping[str, Any]]) -> str:
    """The strongest parts: what they add, and what the end loses without them."""
    rows = []
    for row in totals:
        name, at, place = row["part"].partition(" at ")
        rows.append((f"{name} of layer {row['layer']}" + (f", at {place}" if at else ""), row["direct"], row["total"]))
    return _table(
        f"Direct and total effect of the strongest parts ({totals[0]['tokens']} tokens). Direct is the share; total is "
        "by how much ln HFC/LFC after the last layer is lower in a run without the part, where later layers answer: "
        f"mean over {counted_between((row['inputs'] for row in totals), 'input')}.",
        {"part": "name", "direct": "number", "total": "number"},
        [(name, _share(direct), _share(total)) for name, direct, total in rows],
    )


def _table(heading: str, columns: Mapping[str, str], rows: Iterable[Sequence[str]]) -> str:
    """Columns with the class of their cells; the first names the row."""
    heads = "".join(f'<th class="{kind}">{name}</th>' for name, kind in columns.items())
    kinds = list(columns.items())[1:]
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(
            f'<td class="{kind}" data-label="{name}">{escape(text)}</td>'
            for (name, kind), text in zip(kinds, rest, strict=True)
        )
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<table class="numbers"><caption>{heading}</caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def _share(value: float) -> str:
    """A share of the table; what is left where larger ones cancel is 0.

    >>> _share(0.04934), _share(-2.4e-6)
    ('+0.0493', '0')
    """
    return signed_text(round(value, 4) + 0.0)
