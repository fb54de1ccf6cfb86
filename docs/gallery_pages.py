"""The gallery's report pages: made from results when the site is built, so that nobody needs the models for it.

    python docs/gallery_pages.py MODELS [NAME…]     # measures again: docs/results/NAME.json.gz, one file per model

MODELS is a folder with the pretrained models, as `make models` lays it out. Everything is measured on the pictures and
passages that ship with the package, so that anybody who has a model gets its page by the command that is printed on it.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import shlex
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unsmooth.analysis import Attribution, Explanation, Measurement, Origin, Subject, Sweep, TokenView, analyse

RESULTS = Path(__file__).parent / "results"
SWEEPS = Path(__file__).parents[1] / "zoo" / "results" / "sweeps"
SAMPLES, EXPLAINED = 16, 2
SIMILARITIES = 120_000  # bytes


class Model(NamedTuple):
    """One page: what it calls the model, the command's arguments (in MODELS), and why it is shown."""

    title: str
    arguments: str
    why: str


MODELS = {
    "dinov2-s14": Model(
        "DINOv2 ViT-S/14",
        "timm:vit_small_patch14_dinov2 --weights dinov2-s14/model.safetensors --model-option img_size=224 "
        "--model-option num_classes=0",
        "a self-supervised vision Transformer",
    ),
    "mpnet-base": Model("MPNet base", "hf:mpnet-base", "a sentence encoder, post-norm"),
    "smollm2-135m": Model("SmolLM2 135M", "hf:smollm2-135m", "a language model, with a massive activation"),
    "cifar100-plain": Model("ViT-Ti, plain", "zoo:cifar100-plain", "trained here, weights unconstrained"),
    "cifar100-sharpening": Model("ViT-Ti, sharpening", "zoo:cifar100-sharpening", "eigenvalues of H held below zero"),
    "cifar100-smoothing": Model("ViT-Ti, smoothing", "zoo:cifar100-smoothing", "eigenvalues of H held above zero"),
}


def command(name: str) -> str:
    """What makes the same page."""
    swept = f" --sweep zoo/results/sweeps/{name}.json" if (SWEEPS / f"{name}.json").exists() else ""
    how = f"--data bundled --samples {SAMPLES} --explain-inputs {EXPLAINED}"
    return f"unsmooth report {MODELS[name].arguments} {how}{swept}"


def measured(name: str, folder: Path) -> Subject:
    """The model on what is bundled."""
    from unsmooth.sources import load_model, open_data

    reference, *rest = shlex.split(MODELS[name].arguments)
    given = list(zip(rest[::2], rest[1::2], strict=True))
    weights = next((folder / value for key, value in given if key == "--weights"), None)
    options = {value.split("=")[0]: int(value.split("=")[1]) for key, value in given if key == "--model-option"}
    loaded = load_model(reference.replace("hf:", f"hf:{folder}/"), weights, options=options)
    data = open_data("bundled", loaded, batch_size=8, samples=SAMPLES)
    origin = replace(Origin.of(loaded, data, command(name)), model=reference)
    return analyse(loaded, data, MODELS[name].title, explain_inputs=EXPLAINED, origin=origin)


def thinned(view: TokenView) -> TokenView:
    """With the similarities of every k-th token, which take most of the room."""
    every = math.ceil(view.size / math.sqrt(2 * SIMILARITIES / len(view.points)))
    rows, columns = np.tril_indices(view.size)
    kept = (rows % every == 0) & (columns % every == 0)
    return replace(view, size=math.ceil(view.size / every), cosine=view.cosine[:, kept])


def save(name: str, subject: Subject) -> Path:
    """All results in one small file."""
    assert subject.explanation is not None
    assert subject.tokens is not None
    assert subject.attribution is not None
    kept = subject.measurement.per_sample
    per_sample = {} if kept is None else {"per_sample": kept.ordered(subject.measurement.cells).to_json()}
    parts = {
        "measurement": subject.measurement.to_json() | per_sample,  # what the page's tests over samples need
        "explanation": subject.explanation.to_json(),
        "tokens": thinned(subject.tokens).to_json(),
        "attribution": subject.attribution.to_json(),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(parts).encode(), 9, mtime=0))
    return path


@cache
def load(name: str) -> Subject:
    """What `save` wrote, and what edits of the model cost, where that was measured."""
    from unsmooth.analysis.results import load as load_result
    from unsmooth.reporting import with_sweeps

    found = json.loads(gzip.decompress((RESULTS / f"{name}.json.gz").read_bytes()))
    subject = Subject(
        MODELS[name].title,
        Measurement.from_json(found["measurement"]),
        Explanation.from_json(found["explanation"]),
        TokenView.from_json(found["tokens"]),
        Attribution.from_json(found["attribution"]),
    )
    swept = SWEEPS / f"{name}.json"
    if swept.exists():
        sweep = load_result(swept)
        assert isinstance(sweep, Sweep)
        (subject,) = with_sweeps([subject], [sweep])
    return subject


def shown() -> list[str]:
    """The models of the list, or those that UNSMOOTH_GALLERY names, for a quick build."""
    return os.environ.get("UNSMOOTH_GALLERY", " ".join(MODELS)).split()


def row(name: str) -> str:
    """One line of the gallery's table: both ends and the turns of each metric, and the page's own words."""
    from unsmooth.figures.text import number_text
    from unsmooth.metrics.registry import METRICS
    from unsmooth.page.course import leading_metrics
    from unsmooth.page.data import shared_policies
    from unsmooth.page.glance import TOKENS, in_short, passed

    subject = load(name)
    metrics, policy = leading_metrics([subject]), shared_policies([subject])[0]
    numbers = (" → ".join(map(number_text, passed(subject.measurement, metric, policy))) for metric in metrics[:3])
    assert [METRICS[metric].title for metric in metrics[:3]] == ["HFC/LFC", "cosine similarity", "effective rank"]
    said = in_short(subject.measurement, metrics, policy, {1: "smooths", -1: "sharpens"})
    return f"| [{subject.name}](#page-{name}) | {' | '.join(numbers)} | {said} | {TOKENS.get(policy, policy)} |"


def contents() -> str:
    """The gallery's table, and every page behind a line that opens it in place."""
    lines = ["| model | HFC/LFC | cosine similarity | effective rank | in short | of |", "|---|---|---|---|---|---|"]
    lines += [row(name) for name in shown()]
    for name in shown():
        model = MODELS[name]
        lines += [
            "",
            f'<details class="page" id="page-{name}"><summary>{model.title}: {model.why}</summary>',
            f'<p><a href="{name}.html">Open it alone</a>, or make it yourself: <code>{command(name)}</code></p>',
            f'<iframe loading="lazy" title="Report on {model.title}" data-src="{name}.html"></iframe></details>',
        ]
    return "\n".join(lines)


# A page in a frame is loaded when it is opened: each is as large as a report is.
OPEN = """
<script>
document.querySelectorAll("details.page").forEach(function (page) {
  var frame = page.querySelector("iframe");
  page.addEventListener("toggle", function () { if (page.open && !frame.src) frame.src = frame.dataset.src; });
});
function openNamed() {
  var page = document.querySelector("details.page" + (location.hash || "#none"));
  if (page) page.open = true;
}
addEventListener("hashchange", openNamed); openNamed();
</script>
"""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs: put the table and the pages into the gallery, and the changelog into its page."""
    if page.file.src_uri == "changelog.md":
        return (RESULTS.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8").replace("](docs/", "](")
    return markdown.replace("<!-- pages -->", contents() + OPEN) if "<!-- pages -->" in markdown else markdown


def on_post_build(config: Any, **_: Any) -> None:
    """mkdocs: write the pages beside the gallery."""
    from unsmooth.page import build_report

    for name in shown():
        page = build_report([load(name)], command=command(name))
        (Path(config["site_dir"]) / "gallery" / f"{name}.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[2:] or MODELS:
        print(save(name, measured(name, Path(sys.argv[1]))))
