"""A paragraph of the findings: pieces of HTML, and links that set the figures to what it speaks of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape, unescape
from typing import Literal

from unsmooth.page.words.glossary import linked


@dataclass(frozen=True)
class Link:
    """To a section of the page, whose switches it sets to what the sentence speaks of."""

    section: str
    view: Mapping[str, str] = field(default_factory=dict)
    label: str = "{}"  # of which the figure's name is a part


Part = str | Link


@dataclass(frozen=True)
class Finding:
    """One paragraph: pieces of HTML (names escaped), and links to the figures that it is read from."""

    about: Literal["model", "refused", "outliers", "who", "comparison", "certainty", "advice"]
    parts: tuple[Part, ...]

    def html(self, figures: Mapping[str, str] | None = None) -> str:
        """The paragraph with its terms and figures linked; `figures` names the sections that the page has."""
        return "".join(_link(part, figures or {}) if isinstance(part, Link) else linked(part) for part in self.parts)

    def text(self) -> str:
        """The paragraph for a terminal: no links, and code between backticks."""
        said = "".join(part for part in self.parts if isinstance(part, str))
        return unescape(re.sub("<[^>]*>", "", re.sub("</?code>", "`", said)))


def _link(link: Link, figures: Mapping[str, str]) -> str:
    if link.section not in figures:
        return ""
    view = f' data-view="{escape(json.dumps(link.view, ensure_ascii=False))}"' if link.view else ""
    return f' <a class="figure-link" href="#{link.section}"{view}>{link.label.format(figures[link.section])}</a>'
