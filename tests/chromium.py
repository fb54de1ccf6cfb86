"""A headless Chromium over a pipe: for the tests that use the page as a person would, and for screenshots.

Chromium reads commands from file descriptor 3 and answers on 4 (`--remote-debugging-pipe`), each message a JSON
text that ends with a zero byte. So no driver and no port is needed.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from unsmooth.errors import UnsmoothError

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip


def find_browser() -> str | None:
    """A Chromium-like browser: `UNSMOOTH_BROWSER`, or the first of the usual names on the path."""
    named = os.environ.get("UNSMOOTH_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a headless browser; use it in a `with`."""

    def __init__(self, path: str | None = None, width: int = 1280, height: int = 900, wait: float = 30.0) -> None:
        found = path or find_browser()
        if found is None or os.name != "posix":
            raise UnsmoothError(
                f"no Chromium was found (looked for {', '.join(NAMES)}): install one, or name it in UNSMOOTH_BROWSER"
            )
        self.path, self.size, self.wait = found, (width, height), wait
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        self._count = 0
        self._buffer = b""

    def __enter__(self) -> Self:
        self._start()
        try:
            target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
            self._session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.send(f"{domain}.enable")
            self.resize(*self.size)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="unsmooth-browser-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # The shell only moves the two ends to the numbers that Chromium expects, then becomes Chromium.
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, self.path, *FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)

    def close(self) -> None:
        """End the browser and remove its profile."""
        self._session = None
        try:
            if self._process.poll() is None:
                self._write({"id": 0, "method": "Browser.close"})
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._to)
            os.close(self._from)
            self._profile.cleanup()

    def send(self, method: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One command of the DevTools protocol, and its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": dict(parameters or {})}
        try:
            self._write(message | ({"sessionId": self._session} if self._session else {}))
        except BrokenPipeError:
            raise UnsmoothError(f"{self.path} ended: is it a Chromium that runs here?") from None
        until = time.monotonic() + self.wait
        while True:
            answer = self._read(until, method)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise UnsmoothError(f"the browser refused {method}: {answer['error'].get('message')}")
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, page: str | Path) -> None:
        """Load a file (or an address) and wait until it is drawn."""
        address = page.resolve().as_uri() if isinstance(page, Path) else page
        self.send("Page.navigate", {"url": address})
        self.until("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = self.send(
            "Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True, "userGesture": True}
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise UnsmoothError(f"the page threw: {details.get('exception', {}).get('description', details['text'])}")
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait for an expression to become true."""
        end = time.monotonic() + self.wait
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise UnsmoothError(f"the page did not become ready in {self.wait:g} s: {condition}")
            time.sleep(0.03)

    def resize(self, width: int, height: int, scale: float = 1.0, mobile: bool = False) -> None:
        """The window's size in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile},
        )

    def screenshot(self, clip: Mapping[str, float] | None = None) -> bytes:
        """The window, or a rectangle of the whole page, as PNG."""
        parameters: dict[str, Any] = {"format": "png"}
        if clip is not None:
            parameters |= {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True}
        return base64.b64decode(self.send("Page.captureScreenshot", parameters)["data"])

    def problems(self) -> list[str]:
        """Exceptions, console errors and refused requests so far."""
        self.evaluate("0")  # whatever was waiting comes in before its answer
        found = []
        for event in self.events:
            method, details = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                thrown = details["exceptionDetails"]
                found.append(thrown.get("exception", {}).get("description", thrown["text"]))
            elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "assert", "warning"):
                found.append(f"console.{details['type']}: {[arg.get('value') for arg in details['args']]}")
            elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
                found.append(f"{details['entry']['text']} {details['entry'].get('url', '')}")
        return found

    def requests(self) -> list[str]:
        """Every address asked for so far, data addresses left out."""
        sent = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [address for address in sent if not address.startswith(("data:", "blob:"))]

    def _write(self, message: Mapping[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]

    def _read(self, until: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(0.0, until - time.monotonic()))
            chunk = os.read(self._from, 1 << 20) if ready else b""
            if not chunk:
                state = "ended" if ready else f"gave no answer to {method} in {self.wait:g} s"
                raise UnsmoothError(f"{self.path} {state}: is it a Chromium that runs here?")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))
