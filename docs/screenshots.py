"""Screenshots of a report, at most 200 KB each.

python docs/screenshots.py demo.html docs/images            # for the README and report.md
python docs/screenshots.py gpt2.html docs/images gpt2       # its first look alone, for the gallery
"""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

from unsmooth.sources.files import write_atomically

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from chromium import Browser

# name, colour scheme, first and last element that are seen, what to do before
SHOTS = (
    ("report-light", "light", ".masthead", "#depth", ""),
    (
        "report-dark",
        "dark",
        "#spectra",
        "#spectra",
        "const s = document.querySelector('#spectra input[type=range]'); s.value = Math.floor(s.max / 2);"
        "s.dispatchEvent(new Event('input', {bubbles: true}));",
    ),
    (
        "report-tokens",
        "light",
        "#tokens",
        "#tokens",
        "const s = document.querySelector('#tokens input[type=range]'); s.value = s.max;"
        "s.dispatchEvent(new Event('input', {bubbles: true}));",
    ),
)


FIRST = SHOTS[0][1:]


def main(page: Path, folder: Path, name: str | None = None) -> None:
    """Write every screenshot into the folder, or only the first look at the page as `report-NAME.png`."""
    shots = SHOTS if name is None else ((f"report-{name}", *FIRST),)
    with Browser(width=1160, height=900) as browser:
        for called, scheme, first, last, before in shots:
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            browser.send("Emulation.setEmulatedMedia", {"features": features})
            browser.open(page)
            browser.until("document.documentElement.dataset.ready === 'yes'")
            # the bar would cover what is above it in a picture of the whole page
            browser.evaluate(f"(() => {{ document.querySelector('.bar').style.position = 'static'; {before} }})()")
            time.sleep(0.5)
            top, bottom = (
                browser.evaluate(f"document.querySelector('{at}').getBoundingClientRect().{edge} + window.scrollY")
                for at, edge in ((first, "top"), (last, "bottom"))
            )
            clip = {"x": 0.0, "y": max(0.0, top), "width": 1160.0, "height": bottom - top}
            print(write_atomically(folder / f"{called}.png", smaller(browser.screenshot(clip))))


def smaller(image: bytes) -> bytes:
    """The picture with 256 colours that cover all that are there, small areas too; each is the mean of its own."""
    from PIL import Image

    file = io.BytesIO()
    found = Image.open(io.BytesIO(image)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=8)
    found.save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
