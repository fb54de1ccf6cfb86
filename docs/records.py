"""Write every text again that quotes the records in zoo/records and the results in zoo/results.

    python docs/records.py

Findings, the tables and sentences between markers in reproduce.md, imagenet.md, text.md and disagree.md, the README's
table of accuracies and the recipe's docstring. What they say comes from the functions behind `unsmooth reproduce`; a
test compares.
"""

from __future__ import annotations

import re
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import findings
import image_runs as images

from unsmooth.metrics.differences import compare_seeds
from unsmooth.paper import Context, find_item
from unsmooth.paper.columns import kept_groups, missing_in_words, signs_table
from unsmooth.paper.effects import oscillation_in_words, said_in_words
from unsmooth.paper.item import Table, Value
from unsmooth.paper.poster_table2 import over_subsets
from unsmooth.paper.published import published
from unsmooth.paper.records import Summary, accuracies, load_records
from unsmooth.training.finetuning import arm_names, load_runs
from unsmooth.training.finetuning.study import compared

ROOT = Path(__file__).parents[1]
RECIPE = Path("src/unsmooth/training/tasks/images/recipe.py")
SHARES = {"all data": 1.0, "50 %": 0.5, "10 %": 0.1}
ORDER = ("plain", "sharpening", "smoothing")
FEW = {1: "one seed each", 2: "two seeds each", 3: "three seeds each"}


def ours(share: float) -> dict[str, Summary]:
    """Mean accuracy in % over seeds, on the first draw of the images."""
    found = accuracies(r for r in load_records(Context(), []) if r.fraction == share)
    return {v: summary for v in ORDER if (summary := Summary.of([*found.get(v, {}).values()])) is not None}


def poster(share: float, variant: str) -> str:
    """The published accuracy."""
    table = published("poster-table2")
    mean, spread = table[variant][[float(s) for s in table["columns"]].index(share)]
    return f"{mean:.2f} ± {spread:g}"


def bare(summary: Summary) -> str:
    """Without the number of seeds."""
    return str(summary).partition(" (n=")[0]


def accuracy() -> str:
    """The table of accuracies and what the seeds allow one to say."""
    lines = ["| in % | plain | sharpening | smoothing |", "|---|---|---|---|"]
    said = []
    for row, share in SHARES.items():
        found = ours(share)
        counts = [found[v].count if v in found else 0 for v in ORDER]
        n = counts[0] if len(set(counts)) == 1 else ", ".join(map(str, counts))
        cells = [f"{bare(found[v]) if v in found else '–'} ({poster(share, v)})" for v in ORDER]
        lines.append(f"| {row} (n = {n}) | " + " | ".join(cells) + " |")
        seeds = accuracies(r for r in load_records(Context(), []) if r.fraction == share and r.variant in ORDER)
        plain = seeds.pop("plain", {})
        for c in compare_seeds(plain, {v: seeds[v] for v in ORDER[1:] if v in seeds}):
            if c.difference.pairs > 1:
                d = c.difference
                said.append(f"On {row} {c.claim()}; ahead in {d.ahead} of {d.pairs} seeds.")
    one = [row for row, share in SHARES.items() if all(s.count == 1 for s in ours(share).values())]
    if one:
        where = " and on ".join(one)
        said.append(
            f"With one seed on {where} nothing can be claimed there; on the same 10,000 test images an accuracy is "
            "uncertain by up to a point."
        )
    table = published("poster-table2")
    gain = table["sharpening"][2][0] - table["plain"][2][0]
    said.append(f"The poster's difference of sharpening from plain on 10 % is {gain:+.2f}.")
    return "\n".join([*lines, "", *findings_lines(said), *draws()])


def draws() -> list[str]:
    """The same on other draws of the images, where there are runs."""
    found = over_subsets(load_records(Context(), [], any_subset=True))
    return [] if found is None else ["", f"{found.title}:", "", *markdown(found)]


def columns() -> str:
    """What the ImageNet and text models say, and what is missing."""
    notes: list[str] = []
    groups = kept_groups(Context(), notes)
    effects = find_item("fig2").run(Context()).tables[-1]
    said = [*said_in_words(groups), *oscillation_in_words(groups), *missing_in_words(groups), *notes]
    signs = signs_table(groups)
    lines = [f"{effects.title} (means over seeds, `unsmooth reproduce fig2`):", "", *markdown(effects), ""]
    lines += [f"{signs.title}; from `unsmooth reproduce table1`:", "", *markdown(signs), ""]
    lines += [findings._typeset(f"- {_sentence(text)}.") for text in said]
    scores = find_item("superglue").run(Context())
    if len(scores.tables[0].columns) > 3:
        lines += ["", f"{scores.label} (`unsmooth reproduce superglue`).", "", *markdown(scores.tables[0])]
        said = [note for note in scores.notes if note.startswith(("near chance", "not run"))]
        lines += ["", *(f"{note[0].upper()}{note[1:]}." for note in said)]
        for known in scores.tables[1:]:
            lines += ["", f"{known.title}:", "", *markdown(known)]
    return "\n".join(lines)


def _sentence(text: str) -> str:
    """With a capital letter, but where a model's name begins it."""
    return text[0].upper() + text[1:] if text.split()[0].isalpha() else text


def image_runs() -> str:
    """What the ViT-S models of docs/imagenet.md reach, a line a variant, and what follows from it."""
    notes: list[str] = []
    groups = [group for group in kept_groups(Context(), notes) if group.column.data == "ImageNet"]
    if not groups:
        return "**No run of these recipes has come to its end yet**, so their accuracies with this code are not known."
    changed = [note for note in notes if note.startswith(images.NAMES)]
    said = [f"- {findings._typeset(text)}." for text in (*images.sentences(groups), *changed)]
    return "\n".join([*markdown(images.runs_table(groups)), "", *said])


def imagenet(page: str) -> str:
    """The page with what its runs reach, and with the values of its recipes."""
    return between(between(page, "runs", image_runs()), "recipes", "\n".join(markdown(images.recipe_table())))


def explains() -> str:
    """What explains a step: rank correlations, right signs, and what they amount to."""
    found = find_item("explains").run(Context())
    lines: list[str] = []
    for table in found.tables[:2]:
        lines += [f"{table.title}:", "", *markdown(table), ""]
    counted = len(found.tables[0].rows)
    words = [note for note in found.notes if "its interval above 0" in note]
    return "\n".join([*lines, f"Of these {counted} rows:", "", *(findings._typeset(f"- {note}.") for note in words)])


def disagree(page: str) -> str:
    """The page with every table of what explains a step, and of what a step is made of."""
    page = between(page, "explains", explains())
    constants, layers, outliers, norms = find_item("explains").run(Context()).tables[2:]
    shown = {"constants": constants, "constants by layer": layers, "outliers": outliers, "norms": norms}
    for name, table in shown.items():
        page = between(page, name, "\n".join(markdown(table)))
    return page


def text_runs() -> str:
    """What the text models of docs/text.md reach, a line a variant."""
    rows: list[list[Value]] = []
    for group in kept_groups(Context(), []):
        if group.column.data != "The Pile":
            continue
        for record in (kept.record for kept in group.models):
            tokens = record.end["step"] * record.recipe["batch_size"] * record.recipe["length"] / 1e6
            right = f"{100 * record.final['accuracy']:.1f}"
            rows.append([group.recipe, group.variant, f"{tokens:.0f} M", f"{record.final['loss']:.3f}", right])
    columns = ["recipe", "variant", "tokens read", "held-out loss", "hidden tokens right, in %"]
    return "\n".join(markdown(Table("What they reach", columns, rows)))


def fine_tuned() -> str:
    """What the runs of `unsmooth finetune` say, a table for each data set."""
    runs = [run for run in load_runs(ROOT / "zoo" / "finetuned") if run.scores]
    lines: list[str] = []
    for model, data in dict.fromkeys((run.model, run.data) for run in runs):
        here = [run for run in runs if (run.model, run.data) == (model, data)]
        differences = {c.name: c.difference for c in compared(here, data)}
        rows: list[list[Value]] = []
        for arm in sorted({run.arm for run in here}, key=arm_names().index):
            score = Summary.of([100 * run.scores["score"] for run in here if run.arm == arm])
            assert score is not None
            before, after = (
                statistics.fmean(run.scores[f"hfc_lfc_{when}"] for run in here if run.arm == arm)
                for when in ("before", "after")
            )
            against = differences[arm].text() if arm in differences else ""
            rows.append([arm, bare(score), str(score.count), against, f"{before:.3f} → {after:.3f}"])
        how = f"{here[0].settings['epochs']} epochs of {here[0].settings['batch_size']} a step"
        lines += [f"{model} on {data} ({how}, {here[0].made.hardware if here[0].made else 'unknown hardware'}):", ""]
        columns = ["arm", f"{here[0].unit} in %", "n", "minus plain (95 %)", "HFC/LFC"]
        lines += [*markdown(Table(data, columns, rows)), ""]
    return "\n".join(lines[:-1])


def markdown(table: Table) -> list[str]:
    """A table, with minus signs."""
    rows = [list(table.columns), ["---"] * len(table.columns), *table.cells()]
    return [findings._typeset("| " + " | ".join(row) + " |") for row in rows]


def findings_lines(said: list[str]) -> list[str]:
    """Sentences as one paragraph, with minus signs."""
    return [findings._typeset(" ".join(said))]


def between(page: str, name: str, text: str) -> str:
    """The page with what stands between the markers of that name replaced."""
    begin, end = f"<!-- begin {name}: python docs/records.py -->", f"<!-- end {name} -->"
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise SystemExit(f"no part called {name} between {begin} and {end}")
    return f"{before}{begin}\n{text}\n{end}{after}"


def readme(page: str) -> str:
    """Its rows of accuracies."""

    def row(match: re.Match[str]) -> str:
        summary = ours(SHARES[match[1]]).get(match[2])
        shown = "" if summary is None else f"{bare(summary)} (n = {summary.count})"
        return f"| {match[1]}, {match[2]} | {shown} | {poster(SHARES[match[1]], match[2])} |"

    return re.sub(rf"^\| ({'|'.join(SHARES)}), ({'|'.join(ORDER)}) \|.*\|$", row, page, flags=re.MULTILINE)


def recipe(source: str) -> str:
    """What the recipe's docstring expects, in lines that begin with the share of the data."""

    def line(match: re.Match[str]) -> str:
        found = ours(SHARES[match[1]])
        counts = sorted({s.count for s in found.values()})
        seeds = (
            FEW.get(counts[0], f"{counts[0]} seeds each") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds"
        )
        return f"    - {match[1]}: {', '.join(f'{found[v].mean:.2f}' for v in ORDER if v in found)} % ({seeds})"

    return re.sub(rf"^    - ({'|'.join(SHARES)}): .*$", line, source, flags=re.MULTILINE)


def pages() -> dict[Path, str]:
    """Every file that quotes records, with its text as it should be."""
    reproduce = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    reproduce = between(between(reproduce, "accuracy", accuracy()), "columns", columns())
    found = find_item("findings").run(Context())
    return {
        Path("docs/reproduce.md"): reproduce,
        Path("docs/imagenet.md"): imagenet((ROOT / "docs" / "imagenet.md").read_text(encoding="utf-8")),
        Path("docs/control.md"): between(
            (ROOT / "docs" / "control.md").read_text(encoding="utf-8"), "fine-tuned", fine_tuned()
        ),
        Path("docs/disagree.md"): disagree((ROOT / "docs" / "disagree.md").read_text(encoding="utf-8")),
        Path("docs/text.md"): between((ROOT / "docs" / "text.md").read_text(encoding="utf-8"), "runs", text_runs()),
        Path("docs/findings.md"): findings.written(findings.PAGE.read_text(encoding="utf-8"), found),
        Path("README.md"): readme((ROOT / "README.md").read_text(encoding="utf-8")),
        RECIPE: recipe((ROOT / RECIPE).read_text(encoding="utf-8")),
    }


def main() -> None:
    """All texts, and the picture of the findings."""
    for path, text in pages().items():
        (ROOT / path).write_text(text, encoding="utf-8")
    findings.main()


if __name__ == "__main__":
    main()
