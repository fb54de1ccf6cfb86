"""The figures of what was explained: eigenvalues, types, exponents, heads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import partial
from html import escape
from itertools import product
from typing import Any

from unsmooth.analysis import Explanation
from unsmooth.analysis.explaining.tables import CANDIDATES, FORECAST, candidates
from unsmooth.analysis.subject import Subject
from unsmooth.figures import by_head, eigenvalues, prediction
from unsmooth.figures.drawing import Drawing
from unsmooth.figures.palette import model_colour
from unsmooth.figures.text import number_text, percent_text
from unsmooth.page.charts.controls import Choice, segmented, shown_when, slider, toolbar
from unsmooth.page.charts.parts import Subjects, caption, colour_bar, colour_key, drawn, heading, in_row, model_panel


def _explained(subjects: Subjects) -> list[tuple[int, Subject, Explanation]]:
    return [(i, subject, subject.explanation) for i, subject in enumerate(subjects) if subject.explanation is not None]


_OF: list[Choice] = [("layer", "Σ heads", "H = Σ_h H_h, what acts on the mean token"), ("heads", "each head", "")]
_FRAMES: list[Choice] = [("layer", "this layer", ""), ("all", "all layers", "")]
_FOLDINGS: list[Choice] = [
    ("raw", "before", "λ of the weights alone, as in the paper"),
    ("folded", "after", "sλ with the normalisation’s weight, centring, step s and LayerScale"),
]


class _Planes:
    """The eigenvalues of every model, layer by layer, and how large a frame must be to hold them."""

    OF = ("layer", "heads")

    def __init__(self, subjects: Subjects) -> None:
        self.found = {i: (s, eigenvalues.spectra_by_layer(explanation)) for i, s, explanation in _explained(subjects)}
        by_layer = [list(layers.values()) for _, layers in self.found.values()]
        self.deepest = max(map(len, by_layer))
        self.sizes: dict[tuple[str, str], float] = {}  # by what is shown, and the layer or "all"
        for of in self.OF:
            self.sizes[of, "all"] = eigenvalues.plane_size([v for layers in by_layer for v in _clouds(layers, of)])
            for at in range(self.deepest):
                here = [layers[at] for layers in by_layer if at < len(layers)]
                self.sizes[of, str(at)] = eigenvalues.plane_size(_clouds(here, of))
        self.sides: dict[tuple[str, str], set[str]] = {}  # that were drawn, by layer and what is shown

    def variants(self, index: int, now: dict[str, str]) -> Iterator[str]:
        """One model's drawing for every state of the controls."""
        subject, layers = self.found[index]
        for at, of, frame in product(range(len(layers)), self.OF, ("layer", "all")):
            layer, spectrum = list(layers.items())[at]
            most = self.sizes[of, "all" if frame == "all" else str(at)]
            clouds = {name: getattr(each, of) for name, each in spectrum.items()}
            label = f"Eigenvalues of H, layer {layer} of {subject.name}"
            seen = self.sides.setdefault((str(at), of), set())

            def draw(wide: float, c: Any = clouds, m: float = most, said: str = label, seen: Any = seen) -> Drawing:
                drawing, there = eigenvalues.plane_panel(c, m, label=said, wide=wide)
                seen.update(there)
                return drawing

            body = heading(index, f"{subject.name}, layer {layer}") + drawn(len(self.found), draw, chart="spectra")
            body += caption(eigenvalues.spectrum_note(spectrum, of, most))
            yield shown_when(now, body, layer=str(at), of=of, frame=frame)
        if len(layers) < self.deepest:
            absent = f'{heading(index, subject.name)}<p class="absent">has {len(layers)} layers only</p>'
            yield shown_when(now, absent, layer="|".join(map(str, range(len(layers), self.deepest))))

    def keys(self, now: dict[str, str]) -> str:
        """The colours of the sides that the drawings made so far show."""
        colours = {side: f"background:var(--{colour})" for side, colour in eigenvalues.SIDES.items()}
        return "".join(
            shown_when(now, colour_key((colours[side], side) for side in colours if side in there), layer=at, of=of)
            for (at, of), there in self.sides.items()
        )


def spectra_section(subjects: Subjects) -> str:
    """The complex plane, one layer at a time, all models in one frame."""
    planes = _Planes(subjects)
    now = {"layer": "0", "of": "layer", "frame": "layer"}
    panels = [f'<div class="panel" data-model="{index}">{"".join(planes.variants(index, now))}</div>'
              for index in planes.found]  # fmt: skip
    spectra = [layers for _, layers in planes.found.values()]
    folds = any("folded" in each for layers in spectra for each in layers.values())
    foldings = [*_FOLDINGS, ("both", "both", "")] if folds else []
    return (
        toolbar(
            slider("Layer", "layer", [str(layer) for layer in max(spectra, key=len)], 0, "spectra-layer"),
            segmented("Folding", "folding", foldings, "both", "spectra-folding"),
            segmented("Eigenvalues of", "of", _OF, "layer", "spectra-of"),
            segmented("Frame", "frame", _FRAMES, "layer", "spectra-frame"),
        )
        + in_row(len(planes.found), "spectra-charts", panels)
        + planes.keys(now)
    )  # fmt: skip


def _clouds(layers: Iterable[Any], of: str) -> list[Any]:
    return [getattr(spectrum, of) for found in layers for spectrum in found.values()]


def histograms_section(subjects: Subjects) -> str:
    """How the real parts are distributed; every model has its own range."""
    found = _explained(subjects)
    now = {"folding": "raw", "of": "heads"}
    panels = []
    for index, subject, explanation in found:
        layers = eigenvalues.spectra_by_layer(explanation)
        variants = []
        for folding, of in product(("raw", "folded"), ("heads", "layer")):
            values = eigenvalues.pooled(layers, folding, of)
            label = f"Distribution of the real parts of H's eigenvalues, {subject.name}"
            draw = partial(eigenvalues.histogram_panel, values, label=label)
            body = drawn(len(found), draw, chart="histogram") + caption(eigenvalues.histogram_note(values))
            variants.append(shown_when(now, body, folding=folding, of=of))
        panels.append(model_panel(index, subject, *variants))
    return toolbar(
        segmented("Folding", "folding", _FOLDINGS, "raw", "histograms-folding"),
        segmented("Eigenvalues of", "of", _OF[::-1], "heads", "histograms-of"),
    ) + in_row(len(found), "histogram-charts", panels)  # fmt: skip


def shares_section(subjects: Subjects) -> str:
    """How often each type dominates, by two ways to count."""
    rows = []
    now = {"count": "acting"}
    for index, subject, explanation in _explained(subjects):
        for count, shares in by_head.type_shares(explanation).items():
            row = shown_when(now, drawn(1, partial(by_head.shares_panel, shares, name=subject.name)), count=count)
            rows.append(f'<div data-model="{index}">{row}</div>')
    counts = [
        ("acting", "folded", "H with the normalisation folded in, and the step that it makes"),
        ("paper", "as in the paper", "raw weights, only the listed eigenvalues"),
    ]
    key = colour_key((f"background:var(--{colour})", said) for _, said, colour in by_head.TYPES)
    body = f'<div class="figure-body" id="shares-chart">{"".join(rows)}{key}</div>'
    return toolbar(segmented("Which H", "count", counts, "acting", "shares-count")) + body


def exponents_section(subjects: Subjects) -> str:
    """Predicted and measured by layer, and against each other."""
    found = _explained(subjects)
    lines, clouds = [], []
    usable = [p for p in prediction.PREDICTIONS if all(p.name in subject.agreements for _, subject, _ in found)]
    now = {"against": usable[0].name if usable else ""}
    for index, subject, explanation in found:
        frame = explanation.frame()
        label = f"Predicted and measured exponents by layer, {subject.name}"
        said = "Above zero the sub-layer sharpens, below it smooths. The band is one standard deviation over inputs."
        said += f" Steps are measured on the tokens “{explanation.policies[0]}”."
        svg = drawn(len(found), partial(prediction.exponents_panel, frame, label=label), chart="exponents", model=index)
        lines.append(model_panel(index, subject, svg, caption(said)))
        columns = prediction.rows_of(frame)
        variants = []
        for series in usable:
            predicted, measured = columns[series.name], columns["measured"]
            said = f"Predicted against measured, {subject.name}"
            draw = partial(prediction.agreement_panel, predicted, measured, model_colour(index), label=said)
            svg = drawn(len(found), draw, chart="agreement", model=index, against=series.name)
            note = caption(prediction.agreement_note(subject.agreements[series.name]))
            variants.append(shown_when(now, svg + note, against=series.name))
        clouds.append(model_panel(index, subject, *variants, _explains_table(explanation)))
    key = "".join(
        f'<span title="{escape(s.meaning)}">{prediction.line_key(s).html("sample")}{escape(s.title)}</span>'
        for s in prediction.SERIES
    )
    choices = [(series.name, series.title, series.meaning) for series in usable]
    return (
        f'{in_row(len(found), "exponent-charts", lines)}<p class="key">{key}</p>'
        + toolbar(segmented("Predicted by", "against", choices, now["against"], "exponents-against"))
        + in_row(len(found), "agreement-charts", clouds)
    )


_WHAT = {
    "exponent": "this layer, repeated for ever",
    "small_step": "the same for a small step",
    "direction_gain": "eigen-directions of H, weighted by the energy of the features along each",
    "mean_path": "what attention gives every token alike",
    "mean_field": "that, and one number a head for all deviations",
    FORECAST: "the step of this layer on the other half of the inputs",
}


def _explains_table(explanation: Explanation) -> str:
    """What explains a step, beside the two bars: guessing, and the step on other inputs."""
    known = {name: got for name, got in candidates(explanation).items() if got.count}
    if FORECAST not in known:
        return ""
    rows = []
    for name, got in known.items():
        order = number_text(got.spearman, 2) if math.isfinite(got.spearman) else "–"
        if math.isfinite(got.spearman_low):
            order += f" ({number_text(got.spearman_low, 2)} to {number_text(got.spearman_high, 2)})"
        rows.append(
            f'<tr><th scope="row" title="{escape(_WHAT[name])}">{escape(CANDIDATES[name])}</th>'
            f'<td data-label="is">{"a forecast" if name == FORECAST else "an explanation"}</td>'
            f'<td class="number" data-label="rank correlation">{order}</td>'
            f'<td class="number" data-label="right sign">{percent_text(got.accuracy)}</td></tr>'
        )
    guessing = percent_text(known[FORECAST].majority)
    return (
        '<table class="numbers"><caption>What explains a step in fewer numbers than the step itself. Explanations use '
        "the inputs whose steps they explain and forecast nothing; the last row is what the same layer did to other "
        f"inputs. Always guessing the more frequent sign is right in {guessing}. Intervals (95 %) draw layers and "
        "inputs anew.</caption><thead><tr><th>step from</th><th>is</th>"
        '<th class="number">rank correlation</th><th class="number">right sign</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def heads_section(subjects: Subjects) -> str:
    """Heat maps over layers and heads."""
    found = _explained(subjects)
    tables = {index: by_head.head_tables(explanation) for index, _, explanation in found}
    most, below, above = by_head.colour_range([t["exponent"] for t in tables.values() if "exponent" in t])
    choices = [(view, title, "") for view, title in by_head.TITLES.items() if any(view in t for t in tables.values())]
    now = {"view": choices[0][0]}
    bars = {
        "exponent": colour_bar("diverging", *by_head.range_text(most, below, above), middle="0"),
        "entropy": colour_bar("sequential", "0: one token", "1: all tokens alike"),
    }
    panels = []
    for index, subject, _ in found:
        variants = []
        for view, table in tables[index].items():
            label = f"{by_head.TITLES[view]} of every layer and head, {subject.name}"
            draw = partial(by_head.heads_panel, table, view, most, label=label)
            variants.append(shown_when(now, drawn(len(found), draw, chart="heads", model=index, view=view), view=view))
        panels.append(model_panel(index, subject, *variants))
    scale = "".join(shown_when(now, bar, view=view) for view, bar in bars.items())
    return toolbar(segmented("Show", "view", choices, now["view"], "heads-view")) + (
        f'<div class="figure-body">{scale}</div>' + in_row(len(found), "heads-charts", panels)
    )
