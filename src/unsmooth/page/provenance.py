"""Where every number comes from: model, weights, data, counts, definitions, versions, command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from unsmooth.analysis.subject import Subject
from unsmooth.page.words.phrases import counted, listed, samples_said

DATA = {
    "bundled": "the pictures that come with unsmooth",
    "bundled passages": "the passages of books that come with unsmooth",
    "random": "random inputs",
}


def analysed(subjects: Sequence[Subject]) -> str:
    """What was analysed, on what data, in two plain sentences."""
    models, data = [], []
    for about in (subject.measurement.about for subject in subjects):
        model = about.model
        models.append(f"{model.class_name} with {counted(model.layers, 'layer')} of width {model.width}")
        reference = about.data.reference or "data given in Python"
        data.append(DATA.get(reference, reference))
    counted_all = sorted({(s.measurement.samples, samples_said(s.measurement)) for s in subjects})
    counts = [said for _, said in counted_all]
    kinds = list(dict.fromkeys(models))
    many = f"{len(models)} models, " if len(models) > 1 else ""
    each = "each a " if len(models) > 1 and len(kinds) == 1 else ""
    return f"{many}{each}{listed(kinds)}, measured on {listed(list(dict.fromkeys(data)))} ({' or '.join(counts)})."


def provenance(subjects: Sequence[Subject], command: str | None) -> str:
    """The section's body as HTML."""
    parts = [f"<h3>Command</h3><pre>{escape(command)}</pre>"] if command else []
    for subject in subjects:
        parts.append(f"<h3>{escape(subject.name)}</h3>{_list(_facts(subject))}")
        notes = list(dict.fromkeys([*subject.measurement.notes, *_explanation_notes(subject)]))
        if notes:
            parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    about = subjects[0].measurement.about
    known = about.definitions
    tokens, changes = _prefixed("tokens: ", known.tokens), _prefixed("change: ", known.changes)
    parts.append("<h3>Definitions</h3>" + _list({**known.metrics, **tokens, **changes}))
    explanation = next((s.explanation for s in subjects if s.explanation is not None), None)
    if explanation is not None:
        parts.append("<h3>Definitions of the explanation</h3>" + _list(explanation.about.definitions.columns))
    parts.append("<h3>Versions</h3>" + _list({"made": about.created, **about.versions}))
    return "".join(parts)


def _placement(name: str) -> str:
    """Where the normalisation is.

    >>> _placement("post"), _placement("parallel")
    ('post-norm', 'pre-norm, attention and MLP in parallel')
    """
    if not name.startswith("parallel"):
        return f"{name}-norm"
    return "pre-norm, attention and MLP in parallel" + (" behind one norm" if name.endswith("shared") else "")


def _facts(subject: Subject) -> dict[str, Any]:
    model, data = subject.measurement.about.model, subject.measurement.about.data
    explained = 0 if subject.explanation is None else subject.explanation.inputs
    return {
        "model": model.name,
        "class": f"{model.class_name}, family {model.family}, {_placement(model.placement)}",
        **({} if model.row is None else {"row (found or registered, not tested with unsmooth)": model.row}),
        "size": f"{counted(model.layers, 'layer')}, width {model.width}, {model.dtype} on {model.device}",
        "weights (SHA-256)": model.weights or "not recorded",
        "data": f"{data.reference or 'given in Python'} ({data.kind or 'unknown kind'})",
        "counts": f"{samples_said(subject.measurement)} in {data.batches} "
        f"{'batch' if data.batches == 1 else 'batches'}; {counted(explained, 'input')} explained"
        + ("; interrupted before the end" if subject.measurement.partial else ""),
    }


def _explanation_notes(subject: Subject) -> list[str]:
    return [] if subject.explanation is None else subject.explanation.notes


def _prefixed(prefix: str, items: Mapping[str, str]) -> dict[str, str]:
    return {prefix + name: text for name, text in items.items()}


def _list(items: Mapping[str, Any]) -> str:
    rows = "".join(f"<dt>{escape(str(name))}</dt><dd>{escape(str(value))}</dd>" for name, value in items.items())
    return f"<dl>{rows}</dl>"
