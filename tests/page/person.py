"""A browser with a mouse and a keyboard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chromium import Browser

EVIL = "<script>window.hacked=1</script>\"'&amp;</style><img src=x onerror=window.hacked=2>"
KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9, "Enter": 13, " ": 32, "Escape": 27}


class Person(Browser):
    """Clicks where things are, presses keys, looks at what changed."""

    def read(self, page: Path, width: int = 1280, height: int = 900, mobile: bool = False) -> None:
        """Open the page afresh and wait until its last figure is drawn."""
        self.events.clear()
        self.resize(width, height, mobile=mobile)
        self.open(page)
        self.until("document.documentElement.dataset.ready === 'yes'")
        self.settle()
        self.evaluate("document.documentElement.style.scrollBehavior = 'auto'")

    def settle(self) -> None:
        """Wait until everything that a change causes is drawn."""
        drawn = "requestAnimationFrame(() => setTimeout(() => requestAnimationFrame(done), 120))"
        self.evaluate(f"new Promise((done) => {drawn})")

    def where(self, selector: str) -> tuple[float, float]:
        """The middle of an element, scrolled into view."""
        found = self.evaluate(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)}); if (!e) return null;"
            "e.scrollIntoView({block: 'center'}); await new Promise((d) => setTimeout(d, 60));"
            "const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        assert found is not None, f"nothing at {selector}"
        return found[0], found[1]

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        details: dict[str, Any] = {"type": kind, "x": x, "y": y, "button": button, "buttons": 1, "clickCount": 1}
        self.send("Input.dispatchMouseEvent", details)

    def click(self, selector: str) -> None:
        x, y = self.where(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)
        self.settle()

    def hover(self, selector: str, right: float = 0) -> None:
        x, y = self.where(selector)
        self.mouse("mouseMoved", x + right, y)
        self.settle()

    def drag(self, selector: str, right: float, down: float) -> None:
        x, y = self.where(selector)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y)
        for step in (0.5, 1.0):
            self.mouse("mouseMoved", x + right * step, y + down * step)
        self.mouse("mouseReleased", x + right, y + down)
        self.settle()

    def press(self, key: str, selector: str | None = None) -> None:
        if selector is not None:
            self.where(selector)
            self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        for kind in ("keyDown", "keyUp"):
            details = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            self.send("Input.dispatchKeyEvent", details)
        self.settle()

    def look(self, selector: str) -> str:
        """What can be seen of the figures inside an element: their leaves, without the switches."""
        return str(self.evaluate(
            f"(() => {{ const root = document.querySelector({json.dumps(selector)});"
            "const figures = [...root.querySelectorAll('.figure-body')];"
            "return (figures.length ? figures : [root]).flatMap((f) => [...f.querySelectorAll('*')])"
            ".filter((e) => !e.children.length && !e.closest('select') && e.getClientRects().length)"
            r".map((e) => e.outerHTML.replace(/(clip|choice|slider)-\d+/g, '')).join(); })()"
        ))  # fmt: skip

    def seen(self, selector: str) -> str:
        """The text of all elements of this kind that can be seen."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})].filter((e) => e.getClientRects().length)"
        return str(self.evaluate(f"{found}.map((e) => e.textContent).join(' ')"))

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent"))
