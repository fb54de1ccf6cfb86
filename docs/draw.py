"""Draw the figures of this documentation again, from measurements and explanations.

    python docs/draw.py RUNS      # all of them
    python docs/draw.py           # only what comes from the records in zoo/

RUNS is the folder with the files that the commands in gallery.md and disagree.md write (NAME.json and
NAME.explained.json). Needs `unsmooth[report]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from unsmooth.analysis import Sweep, load, load_explanation, load_measurement
from unsmooth.figures import Drawing, agreement, depth, norm_impact, phase, prices
from unsmooth.paper import Context, find_item
from unsmooth.theory.scenario import log10_curves

IMAGES = Path(__file__).parent / "images"
NAMES = {
    "dinov2-s14": "DINOv2 ViT-S/14",
    "mpnet-base": "MPNet base",
    "smollm2-135m": "SmolLM2 135M",
    "albert-rxn": "ALBERT (reactions)",
}
SHOWN = {
    "dinov2-s14": ("patches",),
    "mpnet-base": ("content",),
    "smollm2-135m": ("all", "no-outliers"),
    "albert-rxn": ("all",),
}
FRONT = ("dinov2-s14", "mpnet-base", "smollm2-135m")


def draw_records() -> None:
    """How eigenvalues and features move in training."""
    save(find_item("training").run(Context()).figures["training"], "training")


def draw_sweeps() -> None:
    """What edits of real models cost."""
    for path in sorted((Path(__file__).parent.parent / "zoo" / "results" / "sweeps").glob("*.json")):
        found = load(path)
        assert isinstance(found, Sweep)
        save(prices(found, name=NAMES[path.stem]), f"sweep-{path.stem}")


def draw_runs(runs: Path) -> None:
    """Every image of real models."""
    measured = {key: load_measurement(runs / f"{key}.json") for key in NAMES}
    save(depth({NAMES[key]: measured[key] for key in FRONT}), "depth-curves")
    for key, policies in SHOWN.items():
        for policy in policies:
            save(depth({NAMES[key]: measured[key]}, tokens=policy), f"depth-{key}-{policy}")
    save(norm_impact(log10_curves(range(20))), "norm-impact")
    save(phase(), "phase-diagram")
    for key in ("dinov2-s14", "mpnet-base"):
        save(agreement(load_explanation(runs / f"{key}.explained.json")), f"predicted-{key}")


def save(figure: Drawing, name: str) -> None:
    """As PNG, at twice the size for sharp screens."""
    figure.save(IMAGES / f"{name}.png")


if __name__ == "__main__":
    draw_records()
    draw_sweeps()
    for folder in sys.argv[1:]:
        draw_runs(Path(folder))
