"""A real browser, driven through a pipe: what a person would see of a page, not what stands in its source."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="needs chromium (on Debian: apt-get install chromium); `make test` installs it where it can"
)

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")


class Page:
    """One page in the browser. The protocol: JSON messages with a NUL behind each, on two pipes."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        """Take the two ends that are ours."""
        self._to, self._from = to_browser, from_browser
        self._number, self._session, self._unread = 0, "", b""

    def open(self, path: Path) -> None:
        """Show the file at ``path``."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")
        self._call("Page.navigate", url=path.as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def resize(self, width: int) -> None:
        """Make the window ``width`` pixels wide."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Be a user who prefers ``light`` or ``dark``."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """Return what a JavaScript expression gives in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            pass
        assert "result" in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            read = os.read(self._from, 1 << 16)
            assert read, "the browser ended"
            self._unread += read
        message, self._unread = self._unread.split(b"\0", 1)
        parsed = json.loads(message)
        assert isinstance(parsed, dict)
        return parsed


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Run a browser with a fresh ``profile``."""
    assert BROWSER is not None
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    # The browser reads from descriptor 3 and writes to 4.
    command = f'exec "$0" "$@" 3<&{their_in} 4>&{their_out} {their_in}<&- {their_out}>&-'
    arguments = ["bash", "-c", command, BROWSER, *_FLAGS, f"--user-data-dir={profile}"]
    with subprocess.Popen(arguments, pass_fds=(their_in, their_out), stderr=subprocess.DEVNULL) as process:
        os.close(their_in)
        os.close(their_out)
        try:
            yield Page(our_out, our_in)
        finally:
            os.close(our_out)
            os.close(our_in)
            process.kill()
