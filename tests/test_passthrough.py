"""Where the core does not run: the same names, one line on stderr, and requests as without us."""

from __future__ import annotations

import subprocess
import sys

import inference_logging

# As on Windows, where the core does not exist either.
BEGIN = """
import asyncio
import shutil  # which looks for Windows's modules where it is imported
import sys
sys.platform = "win32"
sys.modules["inference_logging._native"] = None
import inference_logging
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False)


def test_every_public_name_can_be_imported_and_one_line_says_what_is_missing() -> None:
    done = run("for name in inference_logging.__all__: print(name, getattr(inference_logging, name) is not None)")
    assert (done.returncode, done.stdout.split()[::2]) == (0, sorted(inference_logging.__all__)), done.stderr
    assert done.stderr == "inference_logging: no records are kept on win32: requests pass through\n"


def test_an_application_answers_as_without_us() -> None:
    done = run("""
import asyncio, logging
from inference_logging import Config, Handler, InferenceLoggingMiddleware, Logger, get_logger, install_logger

async def app(scope, receive, send):
    get_logger("app").bind(a=1).info("seen", tokens=3)
    await send({"type": "http.response.start", "status": 204, "headers": []})

async def main():
    sent = []
    async def send(message):
        sent.append(message)
    await InferenceLoggingMiddleware(app, Config(directory="logs"))({"type": "http"}, None, send)
    print(sent)

loop = asyncio.SelectorEventLoop()
loop.run_until_complete(main())
loop.close()
install_logger()
logging.getLogger().addHandler(Handler())
logging.getLogger("x").warning("dropped")
with Logger(Config()) as logger:
    print(logger.event("e", ["a"])(1), logger.flush(), logger.backlog_records, logger.stats())
""")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[{'type': 'http.response.start', 'status': 204, 'headers': []}]",
        "False True 0 {}",
    ]
    assert len(done.stderr.splitlines()) == 1
