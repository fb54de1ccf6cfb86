"""Write the generated parts of findings.md again, from the records and saved results in zoo/.

    python docs/findings.py

Everything between the markers is what `unsmooth reproduce findings` prints, as Markdown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unsmooth.paper import Context, Result, find_item
from unsmooth.paper.evidence import NAMES
from unsmooth.paper.findings import figure_of

PAGE = Path(__file__).parent / "findings.md"
BEGIN, END = "<!-- begin: python docs/findings.py -->", "<!-- end -->"


def markdown(result: Result) -> str:
    """A table of all questions, then a paragraph for each."""
    found = result.about["findings"]
    pictures = {figure_of(recipe): name for recipe, name in NAMES.items()}
    lines = [
        line for figure, recipe in pictures.items() if figure in result.figures
        for line in (f"![Accuracy of every variant minus plain in {recipe}](images/{figure}.svg)", "")
    ]  # fmt: skip
    lines += [f"*{result.label}.*", "", "| question | status | n |", "|---|---|---|"]
    lines += [f"| [{f['question']}](#{f['name']}) | {f['status']} | {f['n']} |" for f in found]
    for number, f in enumerate(found, 1):
        lines += ["", f"### {number}. {f['question']} {{#{f['name']}}}"]
        lines += [f"**{f['status'].capitalize()}**, {f['n']}. {_typeset(f['answer'])}", ""]
        for figure in (f"{each}-{f['name']}" for each in pictures):
            if figure in result.figures:
                lines += [f"![{f['question']}](images/{figure}.svg)", ""]
        for table in f["tables"]:
            lines += [f"{table['title']}:", "", *_table(table), ""]
        asked = "asked here" if f["asked by"] == "ours" else f"from: {f['asked by']}"
        last = f"Command: `{f['command'].replace('; ', '`, `')}`; {asked}."
        lines.append(last + (f" What would settle it: {f['settle']}." if f["settle"] else ""))
    return "\n".join(lines)


def _table(table: dict[str, Any]) -> list[str]:
    """A table of an answer, from its JSON."""
    rows = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    return [_typeset("| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |") for row in rows]


def _typeset(text: str) -> str:
    """Minus signs instead of hyphens before numbers."""
    import re

    return re.sub(r"(?<![\w`-])-(?=\d)", "−", text)


def written(page: str, result: Result) -> str:
    """The page with its generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{markdown(result)}\n{END}{after}"


def main() -> None:
    """The page and its picture."""
    result = find_item("findings").run(Context())
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), result), encoding="utf-8")
    for name, figure in result.figures.items():
        (PAGE.parent / "images" / f"{name}.svg").write_text(figure.svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
