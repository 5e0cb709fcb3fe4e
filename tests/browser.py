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

DRAWN = """[...document.querySelectorAll('svg')].map(svg => {
  const box = svg.getBoundingClientRect(), colour = name => {
    const probe = document.body.appendChild(document.createElement('i'));
    probe.style.color = `var(--${name})`;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const data = [colour('first'), colour('second')];
  const marks = [...svg.querySelectorAll('path, use')].filter(mark => {
    const style = getComputedStyle(mark), size = mark.getBoundingClientRect();
    return data.includes(style.fill) && size.width > 2 && size.height > 2
      || data.includes(style.stroke) && size.width + size.height > 20;
  });
  return {width: box.width, height: box.height, marks: marks.length,
    name: document.getElementById(svg.getAttribute('aria-labelledby').split(' ')[0]).textContent,
    words: document.getElementById(svg.getAttribute('aria-labelledby').split(' ')[1]).textContent};
})"""
"""Each plot: its size, the marks in the colours of data, its name and words."""

OVERLAPS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  // The box around a slanted label is larger than the label.
  const slanted = text => /rotate\\(-(?!0|90)/.test(text.getAttribute('transform') + text.style.transform);
  const texts = [...svg.querySelectorAll('text')].filter(text => !slanted(text))
    .map(text => [text.textContent, text.getBoundingClientRect()]);
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return texts.flatMap(([text, box], at) => texts.slice(at + 1)
    .filter(([_, other]) => meet(box, other)).map(([other]) => `${text} | ${other}`));
})"""
"""Pairs of labels of one plot that lie over each other."""

CONTRAST = """(() => {
  const light = colour => { const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(Number)
    .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const against = colour => { const ink = light(colour);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); };
  return {paper,
    text: Math.min(...[...document.querySelectorAll('h1, h2, p, td, th, dt, dd')]
      .map(e => against(getComputedStyle(e).color))),
    labels: Math.min(...[...document.querySelectorAll('svg text')].map(e => against(getComputedStyle(e).fill)))};
})()"""
"""The brightness of the page, and the least contrast of its text and of the labels."""

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")


class Page:
    """One page in the browser. The protocol: JSON messages with a NUL behind each, on two pipes."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        """Take the two ends that are ours."""
        self._to, self._from = to_browser, from_browser
        self._number, self._session, self._unread = 0, "", b""

    def open(self, path: Path) -> None:
        """Show the file at ``path``."""
        self.visit(path.as_uri())

    def visit(self, url: str) -> None:
        """Show the page at ``url``, and wait until it is loaded."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Page.enable")
        self._call("Page.navigate", url=url)
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
