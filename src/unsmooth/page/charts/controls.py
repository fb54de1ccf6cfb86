"""Switches of the figures, made of native inputs, so that keyboards and screen readers know them.

A switch has a key. What is seen at some of its values only says so in `data-when` (`tokens=all scale=linear|log`);
the script compares. A switch with one choice is no switch, and is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape

from unsmooth.page.encode import packed

_BEGIN, _END = "<!--part-->", "<!--/part-->"  # no text of a user can hold them: it is escaped
Choice = tuple[str, str, str]  # value, what is shown, what it means


def segmented(label: str, key: str, choices: Sequence[Choice], chosen: str, name: str) -> str:
    """A few choices side by side; `name` is unique in the page."""
    if len(choices) < 2:
        return ""
    options = "".join(
        f'<label{_title(meaning)}><input type="radio" name="{escape(name)}" data-key="{key}" value="{escape(value)}"'
        f"{' checked' if value == chosen else ''}><span>{escape(text)}</span></label>"
        for value, text, meaning in choices
    )
    said = escape(label)
    return f'<fieldset class="segmented" data-control="{said}"><legend>{said}</legend><div>{options}</div></fieldset>'


def select(label: str, key: str, choices: Sequence[Choice], chosen: str, name: str) -> str:
    """A menu."""
    if len(choices) < 2:
        return ""
    options = "".join(
        f'<option value="{escape(value)}"{_title(meaning)}{" selected" if value == chosen else ""}>'
        f"{escape(text)}</option>"
        for value, text, meaning in choices
    )
    return (
        f'<div class="field" data-control="{escape(label)}"><label for="{escape(name)}">{escape(label)}</label>'
        f'<select id="{escape(name)}" data-key="{key}" autocomplete="off">{options}</select></div>'
    )


def slider(label: str, key: str, said: Sequence[str], chosen: int, name: str) -> str:
    """One place after the other, with a button that walks through all of them; `said` names each."""
    if len(said) < 2:
        return ""
    return (
        f'<div class="field slider" data-control="{escape(label)}"><label for="{escape(name)}">{escape(label)}</label>'
        f'<input id="{escape(name)}" type="range" data-key="{key}" min="0" max="{len(said) - 1}" value="{chosen}" '
        f'autocomplete="off" data-said="{escape("|".join(said))}" aria-valuetext="{escape(said[chosen])}">'
        f'<output for="{escape(name)}">{escape(said[chosen])}</output>'
        '<button type="button" class="play" aria-pressed="false">Play</button></div>'
    )


def toolbar(*controls: str) -> str:
    """Switches in a row."""
    return f'<div class="toolbar">{"".join(controls)}</div>' if any(controls) else ""


def shown_when(now: dict[str, str], content: str, tag: str = "div", **conditions: str) -> str:
    """Something that is seen at some values of the switches (`a|b` for either); `now` are the values at the start."""
    hidden = any(now.get(key) is not None and now[key] not in value.split("|") for key, value in conditions.items())
    when = escape(" ".join(f"{key}={value}" for key, value in conditions.items()))
    if hidden:
        return f'<{tag} data-when="{when}" data-packed hidden>{_BEGIN}{content}{_END}</{tag}>'
    return f'<{tag} data-when="{when}">{content}</{tag}>'


def fold(figure: str) -> str:
    """The figure without what it hides at first; that lies in it packed, for the script to unpack once it is seen."""
    parts: list[str] = re.findall(f"{_BEGIN}(.*?){_END}", figure, re.DOTALL)
    if not parts:
        return figure
    seen = re.sub(f"{_BEGIN}.*?{_END}", "", figure, flags=re.DOTALL)
    return f'{seen}<script type="text/plain" class="parts">{packed(json.dumps(parts, ensure_ascii=False))}</script>'


def _title(text: str) -> str:
    return f' title="{escape(text)}"' if text else ""
