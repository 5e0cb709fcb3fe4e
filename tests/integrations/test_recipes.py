"""Servers that build their own ASGI application, started by `inference-logging run`: each request is on record once.

Each server has an environment of its own below `.venv-recipes`; `make recipes` sets them up. The commands are those of
docs/servers.md.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from inference_logging import Config
from tests.kit.servers import Server
from tests.kit.signatures import Configure
from tests.kit.support import read_records, wait_until

pytestmark = pytest.mark.recipes

ROOT: Final = Path(__file__).parents[2]
HERE: Final = Path(__file__).parent / "recipes"
INSTALLED: Final = Path(os.environ.get("RECIPES", ROOT / ".venv-recipes"))
KEY: Final = "sk-recipes-0123456789abcdef"
CHAT: Final = {"model": "tiny", "messages": [{"role": "user", "content": "say it"}]}
TEXT: Final = {"text": "one two three"}
STARTING_S: Final = 300.0
CLIENTS: Final = 4


@dataclass(frozen=True)
class Recipe:
    """A server: its command, in its environment's folder `bin`, and a request for a whole answer and for a stream."""

    command: tuple[str, ...]
    whole: tuple[str, dict[str, Any]] = ("/whole", TEXT)
    stream: tuple[str, dict[str, Any]] = ("/stream", TEXT)
    chunks: int = 3
    environment: dict[str, str] = field(default_factory=dict)


RECIPES: Final = {
    "litserve": Recipe(("python", "litserve_app.py", "{port}")),
    "bentoml": Recipe(
        ("bentoml", "serve", "bentoml_app:Echo", "--working-dir", str(HERE), "--port", "{port}"),
        environment={"BENTOML_DO_NOT_TRACK": "True"},
    ),
    "ray": Recipe(
        ("python", "ray_app.py", "{port}"), environment={"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    ),
    "kserve": Recipe(
        ("python", "kserve_app.py", "{port}"),
        whole=("/v1/models/echo:predict", {"instances": ["one two three"]}),
        stream=("/v1/models/echo:predict", {"instances": ["one two three"], "stream": True}),
    ),
    "litellm": Recipe(
        ("litellm", "--config", "litellm.yaml", "--port", "{port}"),
        whole=("/v1/chat/completions", CHAT),
        stream=("/v1/chat/completions", {**CHAT, "stream": True}),
        chunks=5,
        environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MASTER_KEY": KEY},
    ),
}


class Recorded:
    """A server that was started by `run`, and requests to it, each with a name of its own."""

    def __init__(self, name: str, config: Config, home: Path) -> None:
        self.recipe = RECIPES[name]
        self._numbers = itertools.count()
        files = {path.name: str(path) for path in HERE.iterdir()}
        program, *arguments = (files.get(part, part) for part in self.recipe.command)
        command = ["inference_logging.cli.main", "run", "--", str(INSTALLED / name / "bin" / program), *arguments]
        environment = {"PYTHONPATH": str(ROOT), "HOME": str(home), **self.recipe.environment}
        self.server = Server(config, command, **environment)
        self.config = config

    def wait_until_ready(self) -> None:
        """Wait until it answers as it should; before, it can refuse, or know no such route."""

        def is_ready() -> bool:
            assert self.server.process.poll() is None, self._said()
            with contextlib.suppress(httpx.TransportError):
                return self.ask(self.recipe.whole, "ready")[1].status_code == 200
            return False

        try:
            wait_until(is_ready, "the server to be ready", STARTING_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._said()}") from None

    def ask(self, request: tuple[str, dict[str, Any]], prefix: str) -> tuple[str, httpx.Response]:
        """Send a request; return its name and the whole answer."""
        path, body = request
        name = f"{prefix}-{next(self._numbers)}"
        headers = {"x-request-id": name, "authorization": f"Bearer {KEY}"}
        return name, httpx.post(f"{self.server.url}{path}", json=body, headers=headers, timeout=60)

    def records(self, prefix: str) -> list[dict[str, Any]]:
        """Return the records of requests whose names begin so."""
        found = read_records(self.config.directory, "request")
        return [record for record in found if str(record.get("client_request_id")).startswith(prefix)]

    def kill(self) -> None:
        """Kill all its processes, also those in process groups and sessions of their own."""
        while found := self._processes():
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.server.process.poll()

    def _processes(self) -> list[int]:
        """Return those that have not ended: of the server's session, or with its environment."""
        queues, found = f"={self.config.resolved_queue_directory}\0".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                is_ours = int(session) == self.server.process.pid or queues in (folder / "environ").read_bytes()
                if is_ours and state != "Z":
                    found.append(int(folder.name))
        return found

    def _said(self) -> str:
        return b"".join(self.server.output).decode(errors="replace")[-4000:]


@pytest.fixture(params=RECIPES)
def recorded(request: pytest.FixtureRequest, configure: Configure, tmp_path: Path) -> Iterator[Recorded]:
    name = request.param
    if not (INSTALLED / name / ".stamp-installed").exists():
        pytest.skip(f"{name} is not installed: `make recipes` does it")
    running = Recorded(name, configure(flush_interval_s=0.1), tmp_path)
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()
        running.server.end()


def test_each_request_is_on_record_once_also_of_a_server_that_is_killed(recorded: Recorded) -> None:
    recipe = recorded.recipe
    whole = [recorded.ask(recipe.whole, "whole") for _ in range(20)]
    streams = [recorded.ask(recipe.stream, "stream") for _ in range(5)]
    for _, answer in (*whole, *streams):
        assert answer.status_code == 200
        assert re.search("ONE.*TWO.*THREE", re.sub(r'[^A-Z]|"role"', "", answer.text)), answer.text
    names = Counter(name for name, _ in (*whole, *streams))
    wait_until(lambda: len(recorded.records("whole")) + len(recorded.records("stream")) >= 25, "the records")
    records = [*recorded.records("whole"), *recorded.records("stream")]
    assert Counter(record["client_request_id"] for record in records) == names
    assert {(record["outcome"], record["http.response.status_code"]) for record in records} == {("ok", 200)}
    assert all(record["chunks"] >= recipe.chunks for record in recorded.records("stream"))

    answered, asked = killed_under_load(recorded)
    queues = str(recorded.config.resolved_queue_directory)
    inference_logging("recover", queues, "--directory", str(recorded.config.directory))
    found = Counter(record["client_request_id"] for record in recorded.records("load"))
    assert {name for name in answered if found[name] != 1} == set()
    assert found.keys() <= asked
    assert set(found.values()) == {1}
    inference_logging("verify", str(recorded.config.directory), "--queue-directory", queues)


def killed_under_load(recorded: Recorded) -> tuple[set[str], set[str]]:
    """Kill the server under load; return the names of requests that were answered, and of all."""
    answered: set[str] = set()
    asked: set[str] = set()
    ending = threading.Event()

    def send(client: int) -> None:
        for number in itertools.count():
            if ending.is_set():
                return
            name = f"load-{client}-{number}"
            asked.add(name)
            request = recorded.recipe.stream if number % 3 == 0 else recorded.recipe.whole
            headers = {"x-request-id": name, "authorization": f"Bearer {KEY}"}
            with contextlib.suppress(httpx.TransportError):
                url = f"{recorded.server.url}{request[0]}"
                if httpx.post(url, json=request[1], headers=headers, timeout=60).status_code == 200:
                    answered.add(name)

    threads = [threading.Thread(target=send, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(answered) >= 100, "answers under load")
        recorded.kill()
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    return answered, asked


def inference_logging(*arguments: str) -> None:
    """Run a command of ours, which must end well."""
    command = [sys.executable, "-m", "inference_logging.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
