"""A real `tritonserver` with the Python backend on the CPU, on free ports, with queues and segments of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import pytest

from inference_logging import Config
from tests.integrations.names import Names
from tests.kit import books
from tests.kit.servers import free_port
from tests.kit.support import read_records, wait_until

VENV = Path(__file__).parent.parent.parent / ".venv-triton"
HERE = Path(__file__).parent / "triton"
MODELS = HERE / "models"
START_DEADLINE_S = 60.0
EXIT_TIMEOUT_S = 10
INSTANCES = 5
"""Of the models beside this file."""


def triton_directory() -> Path:
    """Return where the server is installed; skip the test, and say why, where it is not."""
    missing = VENV / "missing"
    if missing.exists():
        pytest.skip(f"missing: {missing.read_text(encoding='utf-8').strip()}")
    if not (VENV / ".stamp-package").exists():
        pytest.skip(f"no Triton in {VENV.name}: `make test-triton` sets it up")
    (server,) = VENV.glob("lib/python3*/site-packages/pytriton/tritonserver")
    return server


def environment_of(config: Config) -> dict[str, str]:
    """Return the environment of the server: the stubs' Python is the one whose `python3` comes first."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INFERENCE_LOGGING_")}
    libraries = filter(None, [str(sysconfig.get_config_var("LIBDIR")), os.environ.get("LD_LIBRARY_PATH", "")])
    paths = {"PATH": f"{VENV / 'bin'}{os.pathsep}{inherited['PATH']}", "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    return {**inherited, **books.variables(config), **paths}


class TritonServer:
    """One `tritonserver` and its stub processes, until it is stopped."""

    def __init__(
        self,
        directory: Path,
        *flags: str,
        repository: Path = MODELS,
        environment: Mapping[str, str] = MappingProxyType({}),
        **settings: object,
    ) -> None:
        triton = triton_directory()
        own = {"directory": directory / "segments", "queue_directory": directory / "queues", "flush_interval_s": 0.05}
        self.config = Config(**{**own, **settings})
        self.repository = directory / "models"
        shutil.copytree(repository, self.repository)
        self.http, self.grpc, self.metrics = free_port(), free_port(), free_port()
        self.log = directory / "console.log"
        # A name of its own, so that what it leaves in shared memory can be removed.
        self._regions = f"il{os.getpid()}x{self.http}_"
        ports = {"http": self.http, "grpc": self.grpc, "metrics": self.metrics}
        with self.log.open("wb") as console:
            command: list[str | Path] = [
                triton / "bin" / "tritonserver",
                f"--model-repository={self.repository}",
                f"--backend-directory={triton / 'backends'}",
                *(f"--{name}-address=127.0.0.1" for name in ports),
                *(f"--{name}-port={port}" for name, port in ports.items()),
                "--disable-auto-complete-config",
                "--allow-gpu-metrics=false",
                f"--exit-timeout-secs={EXIT_TIMEOUT_S}",
                f"--backend-config=python,shm-region-prefix-name={self._regions}",
                *flags,
            ]
            self.process = subprocess.Popen(
                command,
                env={**environment_of(self.config), **environment},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.names = Names()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.http}", timeout=180)

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self.log.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        """Wait until all models are there."""

        def is_ready() -> bool:
            assert self.process.poll() is None, f"Triton ended: {self.output[-8000:]}"
            with contextlib.suppress(httpx.TransportError):
                return self.client.get("/v2/health/ready").status_code == 200
            return False

        wait_until(is_ready, "Triton to be ready", START_DEADLINE_S)

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Return the answer to a request of KServe's protocol, or of Triton's extensions of it."""
        return self.client.post(f"/v2/{path}", json=body)

    def echo(self, name: str, *values: float, text: str | None = None, **parameters: Any) -> httpx.Response:
        """Ask the model ``echo``; ``name`` is the request's id."""
        inputs: list[dict[str, Any]] = [
            {"name": "X", "datatype": "FP32", "shape": [1, len(values)], "data": list(values)}
        ]
        if text is not None:
            inputs.append({"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": [text]})
        return self.post("models/echo/infer", id=self.names.take(name), inputs=inputs, parameters=parameters)

    def stream(self, model: str, count: int, **parameters: Any) -> list[str]:
        """Ask a decoupled model over HTTP (`generate_stream`) and return the words."""
        body = {"N": count, "parameters": parameters} if parameters else {"N": count}
        with self.client.stream("POST", f"/v2/models/{model}/generate_stream", json=body) as answer:
            events = [line.removeprefix("data:") for line in answer.iter_lines() if line.startswith("data:")]
        return [json.loads(event).get("TOKEN", event) for event in events]

    def grpc_client(self, what: str, *arguments: object) -> subprocess.Popen[str]:
        """Start a client over gRPC; see ``triton/client.py``."""
        command: list[str | Path] = [VENV / "bin" / "python", HERE / "client.py", str(self.grpc), what]
        return subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True)

    def ask_by_grpc(self, what: str, *arguments: object) -> Any:
        """Run a client over gRPC and return what it got."""
        with self.grpc_client(what, *arguments) as client:
            try:
                output, _ = client.communicate(timeout=180)
            finally:
                client.kill()
        assert client.returncode == 0, output
        return json.loads(output)

    def records(self, event: str = "request") -> list[dict[str, Any]]:
        """Return the records that are written so far."""
        return read_records(self.config.directory, event) if self.config.directory.is_dir() else []

    def wait_for(
        self, count: int = 1, event: str = "request", model: str | None = None, **fields: Any
    ) -> list[dict[str, Any]]:
        """Wait for so many records with these values, and return them."""
        fields = fields if model is None else {**fields, "triton.model_name": model}

        def found() -> list[dict[str, Any]] | None:
            records = [one for one in self.records(event) if fields.items() <= one.items()]
            return records if len(records) >= count else None

        records: list[dict[str, Any]] = wait_until(found, f"{count} of {event} with {fields}")
        assert len(records) == count, records
        return records

    def record(self, name: str, model: str = "echo") -> dict[str, Any]:
        """Wait for the terminal record of the last request with this id, and return it."""
        return self.wait_for(self.names.times(name) or 1, client_request_id=name, model=model)[-1]

    def stubs(self, instance: str = "") -> dict[str, int]:
        """Return the pids of the stub processes by the name of their model instance."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "cmdline").read_bytes().split(b"\0")
                if os.getsid(int(path.name)) == self.process.pid and b"triton_python_backend_stub" in words[0]:
                    found[words[8].decode()] = int(path.name)
        return {name: pid for name, pid in found.items() if name.startswith(instance)}

    def stop(self) -> int:
        """Send SIGTERM, and SIGKILL to all where that is not enough; return the exit code."""
        self.client.close()  # Triton waits for open connections
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(EXIT_TIMEOUT_S + 15)
        return self.kill()

    def stops(self) -> bool:
        """Send SIGTERM; say whether it ended as it should, or at least as it sometimes does."""
        return self.stop() == 0 or self.has_hung()

    def has_hung(self) -> bool:
        """Say whether its exit timeout was over before all models were unloaded.

        Some stops hang like that, with a stub that waits for the word to finalize; without us as well
        (triton-inference-server/server#8755 is alike).
        """
        return "Exit timeout expired" in self.output

    def kill(self) -> int:
        """Send SIGKILL to all of its processes and return the exit code."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self.client.close()
        for region in Path("/dev/shm").glob(f"{self._regions}*"):
            region.unlink(missing_ok=True)
        return code


@contextlib.contextmanager
def serving(directory: Path, *flags: str, **settings: Any) -> Iterator[TritonServer]:
    """Start a server with these settings, and perhaps an ``environment``, and wait until it is ready."""
    server = TritonServer(directory, *flags, **settings)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


def assert_books_balance(server: TritonServer, deaths: int = 0, *, may_end_in_order: bool = False) -> None:
    """Check the books of what has ended, and that so many processes have died, or more where Triton has hung."""
    books.assert_books_balance(server.config)
    died = [record for record in server.records("process.ended") if record["how"] == "died"]
    least, most = 1 if may_end_in_order else deaths, INSTANCES if server.has_hung() else deaths
    assert least <= len(died) <= most, died
