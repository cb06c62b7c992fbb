"""Headless Chromium by its own DevTools protocol over a pipe: a real browser, and no library for it."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PIPES = "import os,sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
"""Chromium reads commands from 3 and writes answers to 4"""


def executable() -> str | None:
    """Where Chromium is, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Tab:
    """One page in the browser, with everything that it reported."""

    commands: Any
    answers: Any
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _number: int = 0

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its answer; events that come before it are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.commands.write(json.dumps(message).encode() + b"\0")
        self.commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        raw = bytearray()
        while (byte := self.answers.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            raw += byte
        found: dict[str, Any] = json.loads(raw)
        return found

    def wait(self, method: str) -> dict[str, Any]:
        """The first event of that name, already there or still to come."""
        for event in self.events:
            if event.get("method") == method:
                return event
        while True:
            event = self._next()
            self.events.append(event)
            if event.get("method") == method:
                return event

    def named(self, method: str) -> list[dict[str, Any]]:
        """Parameters of all events of that name."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait until everything in it is there."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of what is seen, or of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def paper(self) -> bytes:
        """The page as it is printed, a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])


@contextlib.contextmanager
def tab(profile: Path) -> Iterator[Tab]:
    """A new tab of a new browser, which is ended at the end."""
    binary = executable()
    assert binary is not None
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    words = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--no-sandbox"]
    words += ["--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        [sys.executable, "-c", PIPES, str(to_read), str(from_write), binary, *words, "about:blank"],
        pass_fds=(to_read, from_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    with os.fdopen(to_write, "wb") as commands, os.fdopen(from_read, "rb") as answers:
        try:
            made = Tab(commands, answers)
            target = made.call("Target.createTarget", url="about:blank")["targetId"]
            made.session = made.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                made.call(f"{domain}.enable")
            yield made
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()
