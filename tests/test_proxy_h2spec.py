"""The proxy passes h2spec, the conformance tests of HTTP/2 and HPACK (RFC 9113, RFC 7541)."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.proxies import HELLO, Start, answers, raw
from tests.tools.tools import tool

pytestmark = pytest.mark.real

ANOTHER_PROTOCOL = "Sends invalid connection preface"
"""Its port takes HTTP/1.1 too, so bytes that begin no HTTP/2 are answered by a 400 of HTTP/1.1 before the end."""


def test_the_proxy_speaks_http2_as_the_standard_says(proxying: Start) -> None:
    with raw(answers(HELLO)) as server:
        proxy = proxying(server.port)
        command = [str(tool("h2spec")), "--host", "127.0.0.1", "--port", str(proxy.port), "--timeout", "30"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False).stdout
    # A failure is listed twice, as it comes and at the end.
    failed = set(re.findall(r"× \d+: (.*)", said))
    found = re.search(r"(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed", said)
    assert found is not None, said[-2000:]
    assert failed <= {ANOTHER_PROTOCOL}, said[-2000:]
    assert (int(found[1]), int(found[3])) == (145, 0)
