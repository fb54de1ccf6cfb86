"""What one could do: edits of this model with their price, where a sweep measured it; else the command that does."""

from __future__ import annotations

import shlex
from functools import partial
from html import escape

from unsmooth.analysis import Sweep
from unsmooth.analysis.subject import NOT_EXPLAINED, Subject
from unsmooth.analysis.sweep import HEADLINE, SweptEdit
from unsmooth.figures.by_strength import prices
from unsmooth.figures.text import number_text, percent_text, signed_text
from unsmooth.page.charts.parts import Subjects, caption, drawn, in_row, model_panel

LOADING = ("--weights", "--model-option", "--random-init")  # without these, a reference names another model


def could_section(subjects: Subjects) -> str:
    """For every model the figure, sentences and table of its sweep, or what to run."""
    panels = []
    for index, subject in enumerate(subjects):
        if (sweep := subject.sweep) is None:
            body = f'<p class="reading">{_to_measure(subject)}</p>'
        else:
            svg = drawn(len(subjects), partial(prices, sweep, name=subject.name), chart="prices", model=index)
            said = "".join(caption(priced(subject.name, sweep, swept)) for swept in sweep.edits)
            body = svg + said + _table(sweep) + caption(_note(subject, sweep))
        panels.append(model_panel(index, subject, body))
    return in_row(len(subjects), "could-charts", panels)


def _to_measure(subject: Subject) -> str:
    """What to run where no sweep is known, and how the page gets to know it; why nothing, if H is not known."""
    about = subject.measurement.about
    if any(note.startswith(NOT_EXPLAINED) for note in subject.measurement.notes):
        return (
            "Not measured for this model: edits change H, which could not be read from it, as the findings above say."
        )
    if about.command is None and about.model.reference is None:
        return (
            "Not measured for this model. To measure it: <code>found = unsmooth.sweep(model, batches, loss)</code>, "
            "with a loss of your task. Then <code>unsmooth.report</code> as before, with <code>sweeps=[found]</code>, "
            "shows it here."
        )
    said = f"Not measured for this model. To measure it: <code>{escape(command(subject))}</code>"
    asked = about.command or ""
    if loading := [option for option in LOADING if f" {option}" in asked]:
        said += f", with the options that loaded the model for this page ({', '.join(loading)})"
    return f"{said}. Then <code>unsmooth report</code> as before, with <code>--sweep sweep.json</code>, shows it here."


def command(subject: Subject) -> str:
    """What measures the price of edits of this model, with a task that its kind of data allows."""
    about = subject.measurement.about
    if about.data.kind == "images":
        task = "knn:LABELLED_IMAGES"
    else:
        task = "perplexity:TEXTS" if about.model.causal else "retrieval:FILE.jsonl:FIELD,FIELD"
    model = shlex.quote(about.model.reference) if about.model.reference else "MODEL"
    data = "bundled" if (about.data.reference or "").startswith("bundled") else "DATA"  # a result names data, not paths
    return f"unsmooth sweep {model} --data {data} --task {task} --out sweep.json"


def priced(name: str, sweep: Sweep, swept: SweptEdit) -> str:
    """What an edit does and costs: the strongest that costs nothing one could claim, and the strongest of all."""
    task, policy = sweep.task, sweep.policy()
    start, end = swept.points[0], swept.points[-1]

    def at(point: object) -> str:
        return number_text(point.smoothness[policy][HEADLINE])  # type: ignore[attr-defined]

    before, after = (p.smoothness[policy][HEADLINE] for p in (start, end))
    does = "raises" if after > before else "lowers" if after < before else "does not move"
    said = f"The edit {swept.name} {does} HFC/LFC of {name}"
    if after == before:
        return f"{said} ({at(start)})."
    said += f" from {at(start)} to {at(end)}"
    turn = max(swept.points, key=lambda p: (before - after) * p.smoothness[policy][HEADLINE])  # farthest the other way
    if turn is not start:
        said += f", after {'raising' if after < before else 'lowering'} it to {at(turn)} at strength {turn.strength:g}"
    said += f", and its {task.name} goes from {number_text(start.score)} to {number_text(end.score)}"
    if end.low is None or end.high is None:
        return f"{said}; that difference comes without an interval, for the task gives one number."
    worse = (end.difference < 0) == (task.better == "higher")
    judged = "worse" if worse else "better"
    within = f"{signed_text(end.difference)}, 95 % {signed_text(end.low)} to {signed_text(end.high)}"
    said += f" ({within}: {judged if end.significant else 'no difference that can be claimed'})"
    free = [p for p in swept.points[1:] if not p.significant]
    costly = [p for p in swept.points[1:] if p.significant]
    if end.significant and free and max(p.strength for p in free) < min(p.strength for p in costly):
        most = max(free, key=lambda p: p.strength)
        said += (
            f". Up to strength {most.strength:g}, where HFC/LFC is {at(most)}, no difference of the {task.name} can be "
            f"claimed with {task.samples} samples"
        )
    return said + "."


def _note(subject: Subject, sweep: Sweep) -> str:
    data = sweep.about.data
    ours, theirs = (about.model.weights for about in (subject.measurement.about, sweep.about))
    other = (
        "The sweep was of the same reference, but its weights are not those of this page (another image size makes "
        "other position embeddings): HFC/LFC need not be that of the figures above. "
    )
    return (
        "The dashed line is the model as it is; whiskers are 95 % intervals of the difference. Moved: the norm of the "
        "change of H in units of H’s norm; of drop_sink, of the MLP’s weights. "
        f"{other if ours and theirs and ours != theirs else ''}"
        f"{sweep.task.name}: {sweep.task.definition}. HFC/LFC after the last block, {sweep.policy()} tokens, mean over "
        f"{data.inputs} inputs of {data.reference or 'tensors in memory'}. Intervals are Student's, over the "
        f"{sweep.task.samples} samples of the task, paired. Edits were of layers: {sweep.about.settings.layers}."
    )


def _table(sweep: Sweep) -> str:
    policy, rows = sweep.policy(), []
    for swept in sweep.edits:
        for p in swept.points[1:]:
            within = "" if p.low is None or p.high is None else f" ({signed_text(p.low)} to {signed_text(p.high)})"
            cells = {
                "strength": f"{p.strength:g}", "moved": percent_text(p.moved),
                "HFC/LFC": number_text(p.smoothness[policy][HEADLINE]), sweep.task.name: number_text(p.score),
                "difference (95 %)": signed_text(p.difference) + within,
            }  # fmt: skip
            inside = "".join(f'<td class="number" data-label="{escape(k)}">{escape(v)}</td>' for k, v in cells.items())
            rows.append(f'<tr><th scope="row">{escape(swept.name)}</th>{inside}</tr>')
    heads = "".join(f'<th class="number">{escape(k)}</th>' for k in cells)
    start, task = number_text(sweep.edits[0].points[0].score), sweep.task
    said = f"Edits and their price: {task.name} in {task.unit}, {task.better} is better; without an edit {start}."
    return (
        f'<table class="numbers"><caption>{escape(said)}</caption><thead><tr><th>edit</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )
