"""Tokens that carry a metric, in words: who writes them, which layers attend to them, and what that changes."""

from __future__ import annotations

from statistics import fmean

from unsmooth.analysis.attributing.carriers import AS_IT_IS, LEFT_OUT, SINK, Account, Carriers
from unsmooth.analysis.measuring.extremes import Outliers
from unsmooth.figures.text import number_text, percent_text, signed_text
from unsmooth.prose import counted

BY_NOTHING = 1e200  # no quotient of two norms is as large, unless one is 0


def sinks_found(carriers: Carriers | None) -> str:
    """From which layer on heads attend to the tokens that an MLP writes, and what is left of it where it does not."""
    if carriers is None or carriers.account is None:
        return ""
    account = carriers.account
    later = range(account.layer + 1, len(carriers.heads))
    if not later:
        return ""
    begin = next((i for i in later if account.sink[AS_IT_IS][i] >= SINK), None)
    usual, without = (percent_text(fmean(account.sink[run][begin or later[0] :])) for run in (AS_IT_IS, LEFT_OUT))
    it, them = ("the token", "it") if account.position is not None and not account.several else ("the tokens", "them")
    first = later[0] if begin is None else begin
    even = "" if account.uniform is None else uniform_text(fmean(account.uniform[first:]))
    said = f"From layer {first} on heads give {it} that the MLP of layer {account.layer} makes extreme {usual} of their"
    said += f" attention on average{even and f' ({even})'}"
    if usual == without:
        return f"{said}, whether that MLP writes to {them} or not"
    return f"{said}, and {without} where that MLP writes nothing to {them}"


def uniform_text(share: float, whom: str = "") -> str:
    """What a share of attention is to be held against.

    >>> uniform_text(0.042).replace("\N{NO-BREAK SPACE}", " ")
    'uniform attention would give 4.2 %'
    """
    return f"uniform attention would give {whom}{number_text(100 * share, 2)}\N{NO-BREAK SPACE}%"


def account_found(carriers: Carriers) -> str:
    """What the figure of these tokens adds up to, for its caption."""
    account, sinks = carriers.account, carriers.sinks
    heads = counted(sum(len(layer) for layer in carriers.heads), "head")
    give, their = ("give", "their") if sinks > 1 else ("gives", "its")
    much = f"{percent_text(SINK)} of {their} attention or more"
    many = f"{sinks or 'None'} of {heads} {give} the first token or outliers {much}"
    if (share := carriers.first_uniform) is not None:
        many += f" ({uniform_text(share, 'the first token ')})"
    if account is None:
        none = not any(row["outliers"] for row in carriers.layers)
        return f"{many}{', and no token is an outlier after any layer' if none else ''}."
    said = {name: signed_text(curve[-1]) for name, curve in account.curves.items()}
    brings, to = ("brings", "up to") if account.ratio > 1 else ("shrinks", "down to")
    times = f"{'to' if account.in_all else to} {times_median(account.ratio, 'the median norm')}"
    return (
        f"The MLP of layer {account.layer} {brings} {_token(account)} {times}{made_where(account)}. "
        f"ln HFC/LFC of all tokens ends at {said[AS_IT_IS]}, without such "
        f"tokens at {said[f'{AS_IT_IS}, others']}; where that MLP does not write to them, at {said[LEFT_OUT]} and "
        f"{said[f'{LEFT_OUT}, others']}. {many}. Means over {counted(account.inputs, 'input')} with such tokens."
    )


def times_median(ratio: float, median: str = "the median") -> str:
    """A norm against the median one, which may be 0: the logarithms know of no number below 1e-308."""
    return f"{number_text(ratio, 2)} times {median}" if ratio < BY_NOTHING else f"∞ times {median}, which is 0"


def made_where(found: Account | Outliers) -> str:
    """That a norm of the stream comes after it, and that the layer named is not the only one."""
    before = ", before the norm that follows" if found.point.endswith("_sum") else ""
    return before + (f" (one of {found.makers} layers that make it an outlier anew)" if found.makers > 1 else "")


def _token(account: Account) -> str:
    if account.position is None:
        return f"a token of {'each input' if account.in_all else 'some inputs'}"
    token = "the first token" if account.position == 0 else f"the token at position {account.position}"
    return token if account.everywhere else f"{token} (of most inputs)"
