"""The figure of one example: its tokens on their way through the layers."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import numpy as np

from unsmooth.analysis import TokenView
from unsmooth.analysis.subject import Subject
from unsmooth.figures import by_token
from unsmooth.figures.svg import png
from unsmooth.figures.text import measured_text
from unsmooth.page.charts.controls import segmented, shown_when, slider, toolbar
from unsmooth.page.charts.parts import Subjects, caption, colour_bar, heading, in_row


def tokens_section(subjects: Subjects) -> str:
    """One example on its way through the layers."""
    viewed = [(i, subject, subject.tokens) for i, subject in enumerate(subjects) if subject.tokens is not None]
    deepest = max(len(view.points) for _, _, view in viewed)
    now = {"layer": str(deepest - 1), "scale": "shared"}
    far = by_token.distance_scale([view for _, _, view in viewed])
    picture = next((view.picture for _, _, view in viewed if view.picture), None)
    panels = [
        f'<div class="panel" data-model="{index}">{_token_panel(index, subject, view, far, deepest, now)}</div>'
        for index, subject, view in viewed
    ]
    said = ["input", *(str(layer) for layer in range(deepest - 1))]
    scales = [("shared", "one scale for all", ""), ("own", "each layer its own", "")]
    image = f'<img src="{escape(picture)}" alt="the example" class="thumbnail">' if picture else ""
    bars = (
        f'<div class="bars">{image}<div>distance from the mean token, ‖x − x̄‖ / ‖x̄‖'
        f"{colour_bar('sequential', 'near', 'far')}</div><div>cosine similarity"
        f"{colour_bar('alike', '−1', '1', middle='0')}</div></div>"
    )
    controls = toolbar(
        slider("After layer", "layer", said, deepest - 1, "tokens-layer"),
        segmented("Colours", "scale", scales, "shared", "tokens-scale"),
    )
    return controls + bars + in_row(len(viewed), "token-views", panels)


def _token_panel(index: int, subject: Subject, view: TokenView, far: float, deepest: int, now: dict[str, str]) -> str:
    last = len(view.points) - 1
    parts, words = [], ""
    if not view.grid:  # the words stand there once; the script changes the colours that they stand on
        labels = view.labels or [str(i) for i in range(view.distance.shape[1])]
        shown = by_token.levels(view, last, far)
        spans = "".join(
            f'<span class="q{int(level, 16)}">{escape(t)}</span>' for t, level in zip(labels, shown, strict=True)
        )
        levels = {
            scale: " ".join(by_token.levels(view, at, most) for at in range(last + 1))
            for scale, most in (("shared", far), ("own", None))
        }
        words = (
            '<div class="token-text square" tabindex="0" role="group" aria-label="tokens coloured by their distance '
            f'from the mean token" data-shared="{levels["shared"]}" data-own="{levels["own"]}">{spans}</div>'
        )
    for at in range(last + 1):
        layer = str(at) if at < last else "|".join(map(str, range(at, deepest)))
        alike = _symmetric(
            by_token.similarity(view, at), f"alike-{index}-{at}", "cosine similarity of every pair of tokens"
        )
        maps = ""
        if view.grid:
            alt = "patches coloured by their distance from the mean token"
            maps = "".join(
                shown_when(now, _pixels(by_token.patches(view, at, most), alt), layer=layer, scale=scale)
                for scale, most in (("shared", far), ("own", None))
            )
        ratio, cosine = measured_text(by_token.ratio(view, at)), measured_text(by_token.mean_cosine(view, at), 2)
        said = f"HFC/LFC {ratio}, mean cosine {cosine} of the tokens shown."
        parts.append((layer, f"{subject.name}, {view.points[at]}", maps, alike, said))
    heads = "".join(shown_when(now, heading(index, title), layer=layer) for layer, title, *_ in parts)
    left = words or "".join(maps for _, _, maps, _, _ in parts)
    right = "".join(shown_when(now, alike, layer=layer) for layer, _, _, alike, _ in parts)
    notes = "".join(shown_when(now, caption(said), layer=layer) for layer, *_, said in parts)
    return f'{heads}<div class="token-pair"><div>{left}</div><div>{right}</div></div>{notes}'


def _pixels(pixels: Any, alt: str) -> str:
    address = base64.b64encode(png(pixels)).decode()
    return f'<img class="pixels square" alt="{escape(alt)}" src="data:image/png;base64,{address}">'


def _symmetric(pixels: Any, name: str, alt: str) -> str:
    """Half of a symmetric picture, and its mirror image: half the bytes."""
    size = len(pixels)
    address = base64.b64encode(png(pixels, clear=~np.tri(size, dtype=bool))).decode()
    return (
        f'<svg class="pixels square{" fine" if size > 300 else ""}" viewBox="0 0 {size} {size}" role="img" '
        f'aria-label="{escape(alt)}"><image id="{name}" width="{size}" height="{size}" '
        f'href="data:image/png;base64,{address}"/><use href="#{name}" transform="matrix(0 1 1 0 0 0)"/></svg>'
    )
