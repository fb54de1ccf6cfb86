"""The page's own words, one sentence each, and the links that lead to them."""

from __future__ import annotations

import re
from html import escape

# anchor -> (the term as a heading, its sentence, how it is written in prose)
TERMS: dict[str, tuple[str, str, str]] = {
    "hfc-lfc": (
        "HFC/LFC",
        "How far the tokens of a sample are from their mean, against the size of that mean: the smaller, the smoother. "
        "HFC (the high-frequency component) is what differs between tokens, LFC what all share.",
        r"HFC/LFC|\bHFC\b|\bLFC\b",
    ),
    "cosine-similarity": (
        "cosine similarity",
        "How far two tokens point the same way, as a mean over all pairs: 1 is the same direction, and the higher, the "
        "smoother.",
        r"\b[Cc]osine similarity\b",
    ),
    "effective-rank": (
        "effective rank",
        "In how many directions the tokens of a sample spread, a direction counting by its size: the smaller, the "
        "smoother.",
        r"\b[Ee]ffective rank\b",
    ),
    "h": (
        "H",
        "The matrix that attention applies to features, (W<sub>V</sub>W<sub>proj</sub>)<sup>⊤</sup> of a head; its "
        "eigenvalues, with those of the attention matrix, decide what repeated attention does to tokens.",
        r"\bH\b(?![’'ₕ_])|\bH(?=’s\b)",
    ),
    "mean-path": (
        "mean path",
        "What attention gives every token alike, made from the mean token and the constants (biases): it moves LFC, "
        "while heads work on what differs between tokens.",
        r"\bmean paths?\b",
    ),
    "gamma": (
        "γ",
        "The predicted exponent: the rate at which HFC/LFC would grow (above 0) or shrink (below 0) if a layer’s "
        "attention were repeated for ever.",
        r"γ",
    ),
    "type-1": (
        "type 1, smoothing",
        "The dominating eigenvalue belongs to the direction that all tokens share, so that repeating the head makes "
        "tokens equal.",
        r"\btype \(?1\)?|\bsmoothing type\b",
    ),
    "type-2": (
        "type 2, sharpening",
        "The dominating eigenvalue belongs to a direction in which tokens differ, so that repeating the head keeps "
        "them apart.",
        r"\btype \(?2\)?|\bsharpening type\b",
    ),
}
_PATTERN = re.compile("|".join(f"(?P<t{i}>{how})" for i, (_, _, how) in enumerate(TERMS.values())))
_ANCHORS = list(TERMS)
_CLOSED = ("a", "b", "code", "sup", "sub", "option")  # a link holds no link; names and code are not ours to read


def glossary() -> str:
    """The list itself, as HTML."""
    rows = "".join(
        f'<div><dt id="term-{anchor}">{escape(title)}</dt><dd>{linked(text, but=anchor)}</dd></div>'
        for anchor, (title, text, _) in TERMS.items()
    )
    return f'<details class="glossary" open><summary>The words of this page</summary><dl>{rows}</dl></details>'


def explained(title: str) -> str:
    """The sentence on a term by its heading, as HTML; nothing on another.

    >>> explained("cosine similarity")[:37], explained("stable rank")
    ('How far two tokens point the same way', '')
    """
    return next((text for name, text, _ in TERMS.values() if name == title), "")


def linked(html: str, but: str = "") -> str:
    """Every term in a piece of our own HTML as a link to its sentence, `but` the one it belongs to.

    >>> linked("<b>H</b> raises γ")
    '<b>H</b> raises <a class="term" href="#term-gamma">γ</a>'
    """
    parts, depth = [], 0
    for part in re.split(r"(<[^>]*>)", html):
        tag = re.match(r"</?([a-z0-9]+)", part)
        if tag and tag[1] in _CLOSED:
            depth += -1 if part.startswith("</") else 1
        parts.append(part if tag or depth else _PATTERN.sub(lambda found: _link(found, but), part))
    return "".join(parts)


def _link(found: re.Match[str], but: str) -> str:
    anchor = next(_ANCHORS[int(name[1:])] for name, text in found.groupdict().items() if text is not None)
    return found[0] if anchor == but else f'<a class="term" href="#term-{anchor}">{found[0]}</a>'
