"""A real `vllm serve` on the CPU with our middleware, on a free port, with queues and segments of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import httpx
import pytest

from inference_logging import Config
from tests.integrations.names import Names
from tests.kit.books import variables
from tests.kit.servers import free_port
from tests.kit.support import read_records, wait_until

VENV = Path(__file__).parent.parent.parent / ".venv-vllm"
MODEL = VENV / "models" / "tiny"
ADAPTER = VENV / "models" / "adapter"
PROCESSORS = Path(__file__).parent / "vllm_processors"
MIDDLEWARE = ("--middleware", "inference_logging.InferenceLoggingMiddleware")
START_DEADLINE_S = 240.0
STOP_DEADLINE_S = 10.0
ENGINE = "VLLM::EngineCore"

# No process for the worker and no scheduling ahead: on few cores their busy waiting holds streams back for a second.
# Without a size of its own the KV cache takes nearly all of the memory. On a CPU with AMX the engine dies of SIGILL in
# bfloat16, as soon as two requests decode.
SMALL = (
    *("--dtype", "float32"),
    *("--distributed-executor-backend", "uni", "--no-async-scheduling", "--enforce-eager"),
    *("--kv-cache-memory-bytes", str(1 << 28), "--max-model-len", "8192", "--max-num-seqs", "32"),
)
# Of a server whose clients leave before the answer is whole.
SLOW_LONG_ANSWERS = ("--logits-processors", "long_answers:SlowLongAnswers")
# Of a server that writes text, tool calls as well.
WRITING = (
    *SLOW_LONG_ANSWERS,
    *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--enable-scale-out"),
    # A model that knows nothing would write spaces without end.
    *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
)
ON_CPU = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
ENVIRONMENT = {**ON_CPU, "VLLM_CACHE_ROOT": str(VENV / "cache"), "VLLM_CONFIG_ROOT": str(VENV / "config")}


def environment_of(**variables: str) -> dict[str, str]:
    """Return the environment of a command of vLLM: this package is the installed one, not the checkout."""
    return {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(PROCESSORS), **variables}


def require_vllm() -> None:
    """Skip the test, and say why, where there is no vLLM."""
    missing = VENV / "missing"
    if missing.exists():
        pytest.skip(f"missing: {missing.read_text(encoding='utf-8').strip()}")
    if not (VENV / ".stamp-package").exists():
        pytest.skip(f"no vLLM in {VENV.name}: `make test-vllm` sets it up")


class VllmServer:
    """One `vllm serve`, with all of its processes, until it is stopped."""

    open: ClassVar[set[VllmServer]] = set()
    """Those that no test has stopped."""

    def __init__(
        self, directory: Path, *flags: str, environment: Mapping[str, str] = MappingProxyType({}), **settings: object
    ) -> None:
        own = {"directory": directory / "segments", "queue_directory": directory / "queues", "flush_interval_s": 0.05}
        self.config = Config(**{**own, **settings})
        self.place, self.port = directory, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [str(VENV / "bin" / "vllm"), "serve", str(MODEL), "--served-model-name", "tiny", "alias"]
        self.process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(self.port), *SMALL, *flags],
            env=environment_of(**variables(self.config), **environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.names = Names()
        self._said: list[bytes] = []
        # Read all the time, so that the server never waits for a full pipe.
        self._reader = threading.Thread(target=lambda: self._said.extend(self.process.stdout or ()))
        self._reader.start()
        self.client = httpx.Client(base_url=self.url, timeout=180)
        self._engines: list[int] = []
        self.open.add(self)

    @property
    def output(self) -> str:
        """What it has said so far."""
        return b"".join(self._said).decode(errors="replace")

    def wait_until_ready(self) -> None:
        """Wait for the health route, which is not recorded."""

        def is_ready() -> bool:
            assert self.process.poll() is None, "vLLM ended before it was ready"
            with contextlib.suppress(httpx.TransportError):
                return self.client.get("/health").status_code == 200
            return False

        wait_until(is_ready, "vLLM to be ready", START_DEADLINE_S)
        self._engines = self.processes(ENGINE)

    def last_words(self) -> str:
        """Return the end of what it has said if it has died, or has not come up; else nothing."""
        if self._engines and self.process.poll() is None and self.processes(ENGINE) == self._engines:
            return ""
        # It notices the death of its engine a little later, and says so.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_DEADLINE_S if self._engines else 0)
        return f"exit status: {self.process.poll()}\n{self.output[-8000:]}"

    def post(self, path: str, name: str, /, **body: Any) -> httpx.Response:
        """Return the answer to a request that sends ``name`` as its X-Request-Id; the model is ours unless given."""
        return self.client.post(path, json={"model": "tiny", **body}, headers={"x-request-id": self.names.take(name)})

    def records(self, event: str = "request") -> list[dict[str, Any]]:
        """Return the records that are written so far."""
        return read_records(self.config.directory, event) if self.config.directory.is_dir() else []

    def record(self, name: str) -> dict[str, Any]:
        """Wait for the terminal record of the last request of this name, and return it."""
        times = self.names.times(name) or 1

        def found() -> list[dict[str, Any]] | None:
            records = [record for record in self.records() if record.get("client_request_id") == name]
            return records if len(records) >= times else None

        records: list[dict[str, Any]] = wait_until(found, f"the record of {name}")
        assert len(records) == times
        return records[-1]

    def processes(self, title: str) -> list[int]:
        """Return the pids of those of its processes that call themselves ``title``."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ProcessLookupError):
                of_ours = os.getsid(int(path.name)) == self.process.pid
                if of_ours and (path / "cmdline").read_bytes().startswith(title.encode()):
                    found.append(int(path.name))
        return sorted(found)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL to all where that is not enough, as operators do."""
        self.open.discard(self)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_DEADLINE_S)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL to all of its processes."""
        self.open.discard(self)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        self.client.close()


@contextlib.contextmanager
def serving(directory: Path, *flags: str, **settings: Any) -> Iterator[VllmServer]:
    """Start `vllm serve` with our middleware and these settings, and wait until it is ready."""
    with serving_without(directory, *MIDDLEWARE, *flags, **settings) as server:
        yield server


@contextlib.contextmanager
def serving_without(directory: Path, *flags: str, **settings: Any) -> Iterator[VllmServer]:
    """Start `vllm serve` as it is, and wait until it is ready."""
    require_vllm()
    server = VllmServer(directory, *flags, **settings)
    try:
        server.wait_until_ready()
        yield server
    except BaseException:
        if server in VllmServer.open:
            print(server.last_words())  # noqa: T201 - pytest shows it with the failure
        raise
    finally:
        server.stop()
        if server.process.stdout is not None:
            server.process.stdout.close()


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the JSON of each server-sent event, without the closing mark."""
    lines = [line[len("data: ") :] for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def written(events: list[dict[str, Any]]) -> list[str]:
    """Return the text of each event of Chat or Completions that has some."""
    choices = [choice for event in events for choice in event["choices"]]
    texts = [choice["delta"].get("content") if "delta" in choice else choice["text"] for choice in choices]
    return [text for text in texts if text]


LONG = 8000

BODIES = {
    "/v1/completions": {"prompt": "tell me a story", "max_tokens": LONG, "ignore_eos": True},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "tell me a story"}],
        "max_tokens": LONG,
        "ignore_eos": True,
    },
    "/v1/messages": {"messages": [{"role": "user", "content": "tell me a story"}], "max_tokens": LONG},
    "/v1/responses": {"input": "tell me a story", "max_output_tokens": LONG, "ignore_eos": True},
}

# In an event with text, of each protocol.
WRITTEN = rb'"(content|delta|text)":"[^"]'


def ask(server: VllmServer, path: str, name: str, *, stream: bool) -> socket.socket:
    """Send a request, byte by byte as curl does, and return its connection."""
    body = json.dumps({"model": "tiny", "stream": stream, **BODIES[path]}).encode()
    name = server.names.take(name)
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nx-request-id: {name}\r\ncontent-length: {len(body)}\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=180)
    connection.sendall(f"{head}content-type: application/json\r\n\r\n".encode() + body)
    return connection


def read_until(connection: socket.socket, mark: bytes) -> None:
    """Read until what the pattern ``mark`` describes has come."""
    read = b""
    while not re.search(mark, read):
        more = connection.recv(65536)
        assert more, f"the stream ended before {mark!r}: {read!r}"
        read += more


def running(server: VllmServer) -> float:
    """Return how many requests the engine says it works on."""
    metrics = server.client.get("/metrics").text
    return sum(float(number) for number in re.findall(r"^vllm:num_requests_running\{.*\} (.+)$", metrics, re.MULTILINE))
