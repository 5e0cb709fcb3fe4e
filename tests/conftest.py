"""What every test shares: an environment without our variables, and properties without deadlines."""

from __future__ import annotations

import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.loaders import JSONFileLoader
from httpx import create_ssl_context
from httpx._transports import default
from hypothesis import settings

from inference_logging import Config, Logger
from inference_logging._native import forget_inherited_records, leave_waiting_records_to_parent
from inference_logging.record.logger import _open_loggers
from inference_logging.record.waiting import WAITING
from inference_logging.triton import log_requests
from tests.kit import fake_triton
from tests.kit.c_programs import built, install
from tests.kit.command_line import run_program
from tests.kit.identity import KEY
from tests.kit.proxies import Proxy, Start
from tests.kit.sidecars import PYTHON
from tests.kit.signatures import Configure, Recording
from tests.kit.support import Recorded

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# How long one example takes says nothing on a busy machine, so no deadline. CI has the same each time, and fewer.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# httpx reads all certificates of the machine for each client, also of plain HTTP, and tests make thousands.
default.create_ssl_context = functools.cache(create_ssl_context)  # type: ignore[attr-defined]

# botocore reads a megabyte that describes S3 for each client.
JSONFileLoader.load_file = staticmethod(functools.cache(JSONFileLoader().load_file))

# A shell without job control starts what runs in the background deaf to Ctrl-C, and every process that a test starts
# and ends by it would be, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files of release/ import each other by bare name.
sys.path.append(str(Path(__file__).parents[1] / "release"))

_REAL = (
    "chart",
    "clickhouse",
    "cluster",
    "embedded",
    "export",
    "foreign",
    "images",
    "node",
    "onnx",
    "parsl",
    "phoenix",
    "recipes",
    "shipping",
    "triton",
    "tsan",
    "vllm",
    "wheel",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test that needs programs of others, so that the layers of tests are chosen by one word.

    A test that kills is never run again: what does not come there may be lost.
    """
    if any(item.get_closest_marker(name) for name in _REAL):
        item.add_marker("real")
    if item.get_closest_marker("kills"):
        item.add_marker(pytest.mark.flaky(reruns=0))


def pytest_collection_finish() -> None:
    """Keep what all tests share out of the garbage collector's walks: they took a tenth of all time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter end as usual: what stays frozen is reported as leaked, behind the closing line."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away INFERENCE_LOGGING_… variables, so that a developer's own settings don't change a test."""
    for name in [name for name in os.environ if name.startswith("INFERENCE_LOGGING_")]:
        monkeypatch.delenv(name)
    # Most tests count records; those of server.started ask for it.
    monkeypatch.setenv("INFERENCE_LOGGING_SERVER_RECORD", "off")


@pytest.fixture(autouse=True)
def nothing_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test begin as a process does: no logger was open before, and what a test leaves to wait is no other's."""
    monkeypatch.setattr(WAITING, "_last", None)
    monkeypatch.setattr(WAITING, "_since_s", None)
    yield
    leave_waiting_records_to_parent()
    forget_inherited_records()


@pytest.fixture(autouse=True)
def no_logger_stays_open() -> Iterator[None]:
    """Fail the test that leaves a logger open: others would find it, a metrics collector among them."""
    before = set(_open_loggers)  # those of the module's fixtures
    yield
    left = set(_open_loggers) - before
    for logger in left:
        logger.close()
    assert not left, f"still open: {[logger.config.directory for logger in left]}"


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    """Make configurations whose queues and segments lie in this test's own directory."""

    def make(**parameters: Any) -> Config:
        own = {"directory": tmp_path / "segments", "queue_directory": tmp_path / "queues", "queue_bytes": 1 << 20}
        return Config(**{**own, **parameters})

    return make


@pytest.fixture
def keyed(configure: Configure, tmp_path: Path) -> Configure:
    """Make configurations with a key for hashes."""
    (tmp_path / "key").write_bytes(KEY)
    return lambda **parameters: configure(capture_hash_key_file=tmp_path / "key", **parameters)


@pytest.fixture(scope="session")
def listener_binary() -> Path:
    """Return the listener without Python: what is given, as release/installed.py does, or else built in debug mode."""
    if given := os.environ.get("LISTENER_PROGRAM"):
        return Path(given)
    return built() / "inference-logging-listener"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the C library in debug mode, and return where it is installed."""
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(params=["python", "native"])
def listener_command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Return the command that has `listen`: of the package, then the program without Python; sidecars are it."""
    command = PYTHON if request.param == "python" else (str(request.getfixturevalue("listener_binary")),)
    monkeypatch.setattr("tests.kit.sidecars.LISTEN", (*command, "listen"))
    return command


@pytest.fixture(params=["python", "native"])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Let ``run`` be the command of the package, then the program without Python; return how it is started."""
    if request.param == "python":
        return PYTHON
    binary = request.getfixturevalue("listener_binary")
    monkeypatch.setattr(request.module, "run", partial(run_program, binary))
    return (str(binary),)


@pytest.fixture
def recording(configure: Configure) -> Iterator[Recording]:
    """Open loggers with the given parameters; they are closed after the test."""
    opened: list[Recorded] = []

    def start(**parameters: Any) -> Recorded:
        opened.append(Recorded(configure(**parameters)))
        return opened[-1]

    yield start
    for recorded in opened:
        recorded.close()


@pytest.fixture
def recorded(recording: Recording) -> Recorded:
    """Return an open logger with the default parameters."""
    return recording()


@pytest.fixture(name="open_")
def open_audit(tmp_path: Path) -> Iterator[Callable[..., Logger]]:
    """Open loggers with an audit lane and the given parameters; they are closed after the test."""
    opened: list[Logger] = []

    def open_(**parameters: Any) -> Logger:
        own = {"service_name": "t", "directory": tmp_path / "logs", "queue_directory": tmp_path / "queues"}
        opened.append(Logger(Config(**{"audit": "on", **own, **parameters})))
        return opened[-1]

    yield open_
    for logger in opened:
        logger.close()


@pytest.fixture
def fake_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `triton_python_backend_utils` be there."""
    fake_triton.install(monkeypatch)


@pytest.fixture
def serve(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, fake_backend: None
) -> Iterator[Callable[..., tuple[Any, Recorded]]]:
    """Make a decorated model with this ``execute`` and the records that it leaves."""
    models: list[Any] = []

    def start(
        execute: Callable[..., Any],
        *,
        decoupled: bool = False,
        configuration: dict[str, Any] | None = None,
        **parameters: Any,
    ) -> tuple[Any, Recorded]:
        recorded = recording(**parameters)
        for name in recorded.config.model_fields_set:
            value = parameters.get(name, getattr(recorded.config, name))
            monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(value))
        model = log_requests(type("TritonPythonModel", (), {"execute": execute}))()
        model.initialize(fake_triton.arguments(decoupled=decoupled, **configuration or {}))
        models.append(model)
        return model, recorded

    yield start
    for model in models:
        model.finalize()


@pytest.fixture
def proxying(listener_binary: Path, configure: Configure) -> Iterator[Start]:
    """Start proxies in front of a port; they end with the test."""
    proxies: list[Proxy] = []

    def begin(to: int, *options: str, **parameters: Any) -> Proxy:
        proxies.append(Proxy(listener_binary, configure(**parameters), to, *options))
        return proxies[-1]

    yield begin
    for proxy in proxies:
        proxy.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run Chromium for the tests of a file."""
    from tests.kit.view_browser import chromium  # Playwright is loaded by tests that use it

    with chromium() as made:
        yield made
