"""`inference-logging-listener`: what it reads, says and answers is what `inference-logging` does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging import Config, Logger, get_logger
from tests.kit.c_programs import PLATFORM
from tests.kit.child import in_child, numbers, produce
from tests.kit.command_line import run
from tests.kit.sidecars import PYTHON, Sidecar, served_port
from tests.kit.signatures import Configure
from tests.kit.support import wait_until

pytestmark = pytest.mark.servers

NAME = "inference-logging-listener"
CONFIGURATION = "configuration.yaml"
"""In each queue directory: the text of its configuration."""


@pytest.fixture
def binary(listener_binary: Path) -> tuple[str, ...]:
    """Return the command without Python."""
    return (str(listener_binary),)


def both(binary: tuple[str, ...], *arguments: str, **variables: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a command line with Python and without."""
    return [
        subprocess.run(
            [*command, *arguments], env=os.environ | variables, capture_output=True, text=True, check=False, timeout=180
        )
        for command in (PYTHON, binary)
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--status-interval-s", "-1"),
        ("--status-interval-s", "soon"),
        ("--metrics-port", "70000"),
        ("--metrics-port=http",),
        ("--config",),
        ("--frequently",),
        ("elsewhere",),
    ],
)
def test_a_wrong_command_line_is_refused_in_the_same_words(binary: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    python, native = both(binary, "listen", *arguments)
    assert python.returncode == native.returncode == 2
    what = re.sub(r" \(see .*| Did you mean.*", "", python.stderr).strip()
    assert native.stderr.startswith(what.replace("-1.0", "-1")), native.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"QUEUE_BYTES": "7"}, 'queue_bytes="7" (environment INFERENCE_LOGGING_QUEUE_BYTES): must be from 65536'),
        (
            {"FLUSH_RECORDS": "many"},
            'flush_records="many" (environment INFERENCE_LOGGING_FLUSH_RECORDS): must be a whole',
        ),
        (
            {"QUEUE_BITES": "1"},
            "queue_bites (environment INFERENCE_LOGGING_QUEUE_BITES): unknown parameter, the nearest",
        ),
        ({"ADVANCED": "{}"}, "advanced (environment INFERENCE_LOGGING_ADVANCED): "),
        (
            {"REDACT_CUSTOM": "a=x\na=y"},
            'redact_custom="a=x\\na=y" (environment INFERENCE_LOGGING_REDACT_CUSTOM): must be',
        ),
        ({"MAX_RECORD_BYTES": "1MiB", "QUEUE_BYTES": "64KiB"}, "max_record_bytes=1048576: must be at most 16384"),
    ],
)
def test_a_wrong_variable_is_named_with_where_it_comes_from(
    binary: tuple[str, ...], variables: dict[str, str], said: str
) -> None:
    named = {f"INFERENCE_LOGGING_{name}": value for name, value in variables.items()}
    python, native = both(binary, "listen", **named)
    assert python.returncode == native.returncode == 2
    first, sentence, *_ = native.stderr.splitlines()
    assert first == python.stderr.splitlines()[0]
    assert sentence.startswith(f"  {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 1\nadditional_sinks:\n  - stdout\n", "config_file='{}': this program reads JSON"),
        ("version: 1\nsink: 'file'\n", "config_file='{}': this program reads JSON"),
        ("version: 1\nsink: files\n", 'sink="files" (file): must be file, '),
        ("[]", "config_file='{}': must be a mapping of parameters to values"),
        ('{"sink": "file"}', "version=null (file): must be 1"),
        ('{"version": 2}', "version=2 (file): must be 1"),
        ('{"version": 1, "config_file": "other"}', "config_file='{}': a file can't name another file"),
    ],
)
def test_a_file_that_it_cannot_use_is_refused(binary: tuple[str, ...], tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "logging.yaml"
    path.write_text(text)
    done = subprocess.run([*binary, "listen", "--config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said.format(path) in done.stderr


def test_a_database_of_the_audit_lane_needs_python(binary: tuple[str, ...]) -> None:
    variables = {"INFERENCE_LOGGING_AUDIT": "on", "INFERENCE_LOGGING_AUDIT_SINK": "sqlite"}
    done = subprocess.run([*binary, "listen"], env=os.environ | variables, capture_output=True, text=True, check=False)
    assert (done.returncode, "audit_sink='sqlite': must be file here" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"REDACT_FIELDS": "password, customer.email", "REDACT_PATTERNS": '["email"]', "COMPRESS": "zstd"},
        {"REDACT_CUSTOM": "order=[A-Z]{2},[0-9]+\nticket=a=b", "SAMPLE_ROUTES": "/v1/*=0.1, /a=1", "LEVEL": "warn"},
        {"ADDITIONAL_SINKS": "stdout", "FALLBACK": "stderr", "ROTATE_BYTES": "1 GiB", "FLUSH_INTERVAL_S": "1e-1"},
        {"AUDIT": "on", "AUDIT_DIRECTORY": "", "REDACT_REPLACEMENT": "ä{name}", "SERVICE_PORT_HTTP": "tcp://1.2.3.4"},
        {"CHUNKS": "off", "ENABLED": "true", "SLOW_S": "2", "SHIP_TO": "", "HEALTH_PATH": "", "SKIP_PATHS": ""},
    ],
)
def test_the_same_environment_is_the_same_configuration_and_the_same_default_directory(
    binary: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bare = Config()  # it adds no variable to those below
    own = {"SERVICE_NAME": f"origin-{os.getpid()}", "DIRECTORY": "some/./logs/", **variables}
    named = {f"INFERENCE_LOGGING_{name}": value for name, value in own.items()}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    config = Config()
    expected = config.resolved_queue_directory
    try:
        with Sidecar(bare, listen=(*binary, "listen")) as sidecar:
            sidecar.wait_for("leader")
            text = (expected / CONFIGURATION).read_text()
            # The same directory is this configuration's, or a logger would not open.
            with Logger(config.model_copy(update={"listener": "external"})):
                sidecar.wait_for("queues=[12]")
            assert sidecar.stop() == 0
        assert f'service_name: "{config.service_name}"' in text
    finally:
        subprocess.run(["rm", "-rf", expected], check=True)


def test_a_file_of_json_says_the_same_to_both(binary: tuple[str, ...], tmp_path: Path, configure: Configure) -> None:
    config = configure(listener="external", flush_interval_s=0.05)
    values: dict[str, Any] = {
        "version": 1,
        "directory": str(config.directory),
        "queue_directory": str(config.queue_directory),
        "listener": "external",
        "flush_interval_s": 0.05,
        "redact_fields": ["password"],
        "chunks": False,
        "advanced": {"flush_records": 10},
    }
    path = tmp_path / "logging.yaml"
    path.write_text(json.dumps(values))
    of_file = Config(config_file=path)
    arguments = ("--config", str(path))
    bare = Config(service_name="inference")
    with Sidecar(bare, *arguments, listen=(*binary, "listen")) as native:
        native.wait_for("leader queues=0")
        with Sidecar(bare, *arguments) as python:
            python.wait_for("waiting queues=0")
            with Logger(of_file) as logger:
                assert get_logger("t").warning("n", password="secret")
                assert logger.flush(60)
            assert python.stop() == 0
        assert native.stop() == 0
    assert run("verify", str(config.directory)).code == 0


def test_a_process_that_only_calls_listen_does_not_become_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr("inference_logging.cli.native.become", lambda arguments, _: called.append(arguments[0]))
    (tmp_path / "file").touch()
    assert run("listen", "--queue-directory", str(tmp_path / "file")).code == 1
    assert called == []


@pytest.mark.parametrize("can_run", [True, False])
def test_listen_goes_on_as_the_program_that_is_installed_with_it_where_that_can_run(
    binary: tuple[str, ...], configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_run: bool
) -> None:
    config = configure(listener="external", flush_interval_s=0.05, service_name="environment")
    own = (tmp_path / "site" / "inferlog_listener-1.0.dist-info", tmp_path / "bin")
    for directory in own:
        directory.mkdir(parents=True)
    (own[0] / "METADATA").write_text("Metadata-Version: 2.1\nName: inferlog-listener\nVersion: 1.0\n")
    (own[0] / "RECORD").write_text(f"../bin/{NAME},,\n")
    if can_run:
        (own[1] / NAME).symlink_to(binary[0])
    else:
        (own[1] / NAME).touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with Sidecar(config, "--service-name", "option", listen=(*PYTHON, "listen")) as sidecar:
        sidecar.wait_for("leader queues=0")
        program = Path(f"/proc/{sidecar.process.pid}/exe").resolve()
        assert (program == Path(binary[0])) == can_run
        # What the option says counts more than the environment, in the program too.
        noted = (config.resolved_queue_directory / CONFIGURATION).read_text()
        assert 'service_name: "option"' in noted
        with Logger(Config(**{**config.model_dump(exclude_unset=True), "service_name": "option"})) as logger:
            assert get_logger("t").warning("n", n=0)
            assert logger.flush(60)
        assert sidecar.stop() == 0
    assert numbers(config) == [0]


def test_its_endpoint_answers_as_that_with_python(binary: tuple[str, ...], configure: Configure) -> None:
    config = configure(listener="external", flush_interval_s=0.05, audit="on")
    arguments = ("--metrics-port", "0", "--metrics-address", "127.0.0.1")
    with Sidecar(config, *arguments, listen=(*binary, "listen")) as native, Sidecar(config, *arguments) as python:
        with Logger(config.model_copy(update={"listener": "external"})) as logger:
            assert all(get_logger("t").warning("n", n=n) for n in range(100))
            assert logger.flush(60)
            for path in ("/health", "/live", "/producers", "/elsewhere", "/metrics", "/metrics?name=x"):
                assert answer(native, path) == answer(python, path), path
            accept = {"accept": "application/openmetrics-text; version=1.0.0"}
            assert answer(native, "/metrics", **accept) == answer(python, "/metrics", **accept)
        assert (native.stop(), python.stop()) == (0, 0)


def answer(sidecar: Sidecar, path: str, **headers: str) -> tuple[int, str, str]:
    """Return status, content type and body: without numbers, the leader and what names the program."""
    port = wait_until(lambda: served_port(sidecar.lines), "the port")
    got = httpx.get(f"http://127.0.0.1:{port}{path}", headers=headers, timeout=120)
    body = re.sub(r"[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", "0", got.text)
    body = re.sub(r"\b(here|elsewhere)\b", "somewhere", body)
    return got.status_code, got.headers["content-type"], re.sub(r"(?m)^(.*_build_info)\{.*$", r"\1", body)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"nonsense\r\n\r\n", b" 400 "),
        (b"GET /live SPDY/3\r\n\r\n", b" 400 "),
        (b"GET /live HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b" 431 "),
        (b"POST /live HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b" 405 "),
        (b"GET /live HTTP/1.0\n\n", b" 200 "),
        (b"\xff\xfe\x00 /live HTTP/1.1\r\n\r\n", b" 405 "),
    ],
)
def test_whatever_a_client_sends_it_answers_and_serves_the_next(
    binary: tuple[str, ...], configure: Configure, request_: bytes, status: bytes
) -> None:
    config = configure(listener="external")
    arguments = ("--metrics-port", "0", "--metrics-address", "127.0.0.1")
    with Sidecar(config, *arguments, listen=(*binary, "listen")) as sidecar:
        port = wait_until(lambda: served_port(sidecar.lines), "the port")
        with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
            client.sendall(request_)
            assert status in client.recv(200)
        assert httpx.get(f"http://127.0.0.1:{port}/live", timeout=120).status_code == 200


def test_killed_under_load_it_is_followed_by_one_with_python_and_the_other_way_round(
    binary: tuple[str, ...], configure: Configure
) -> None:
    config = configure(listener="external", flush_records=1, flush_interval_s=0.01)
    native, python = (*binary, "listen"), (*PYTHON, "listen")
    reading, writing = os.pipe()

    def child() -> None:
        os.close(writing)
        log, number = get_logger("t"), 0
        os.set_blocking(reading, False)
        with Logger(config):
            while not is_closed(reading):
                number += log.warning("n", n=number)

    pid = in_child(child)
    os.close(reading)
    try:
        for command in (native, python, native, native):
            with Sidecar(config, listen=command) as leader:
                leader.wait_for(r"leader queues=1 .* written=[1-9]")
                leader.signal(signal.SIGKILL)
        with Sidecar(config, listen=native) as last:
            last.wait_for("leader queues=1")
            os.close(writing)
            assert os.waitpid(pid, 0)[1] == 0
            assert last.stop() == 0
    finally:
        with contextlib.suppress(OSError):  # it has ended by itself
            os.close(writing)
    report = run("verify", str(config.directory), "--json")
    assert report.code == 0, report.out
    totals = json.loads(report.out)["totals"]
    assert (totals["missing"], totals["doubled"], totals["in_queue"]) == (0, 0, 0)


def is_closed(reading: int) -> bool:
    """Say whether the other end of a pipe is closed."""
    try:
        return os.read(reading, 1) == b""
    except BlockingIOError:
        return False


def damage_nothing(_segments: list[Path]) -> None:
    """Leave the segments as they are."""


def damage_some(segments: list[Path]) -> None:
    """Remove a line of the first segment, the second one, and alter the third."""
    first, second, third, *_ = segments
    lines = first.read_text().splitlines(keepends=True)
    first.write_text("".join([*lines[:4], *lines[5:]]))
    second.unlink()
    third.write_text(third.read_text().replace('"n":', '"m":'))


@pytest.mark.parametrize("damage", [damage_nothing, damage_some])
@pytest.mark.parametrize("audit", ["off", "on"])
def test_verify_says_the_same_as_that_with_python(
    binary: tuple[str, ...], configure: Configure, damage: Callable[[list[Path]], None], audit: str
) -> None:
    config = configure(rotate_bytes=4096, audit=audit, service_name="a-b")
    for life in range(25):
        with Logger(config) as logger:
            if audit == "on":
                assert logger.event("step", ["n"], lane="audit")(life)
            assert all(get_logger("t").warning("é", n=n) for n in range(20))
    damage(sorted(path for path in config.directory.glob("*.jsonl") if not path.is_symlink()))
    for options in ((), ("--json",), ("--prefix", "a-b"), ("--service-name", "other")):
        python, native = both(binary, "verify", str(config.directory), *options)
        assert native.returncode == python.returncode
        assert without_times(native.stdout) == without_times(python.stdout)
        assert native.stderr == python.stderr.replace("inference-logging verify --help", f"{NAME} verify --help")


def without_times(text: str) -> str:
    """Take away how long it took."""
    return re.sub(r'in [0-9.]+ s \([0-9,]+ MB/s\)|"seconds": [0-9.e-]+', "", text)


def test_recover_says_the_same_as_that_with_python_also_of_another_configuration(
    binary: tuple[str, ...], configure: Configure, tmp_path: Path
) -> None:
    config = configure(listener="external", redact_fields=["password"])
    tables = []
    for number, command in enumerate((PYTHON, binary)):
        queues = tmp_path / f"queues-{number}"
        produce(config.model_copy(update={"queue_directory": queues}), 100 * number, 100)
        arguments = [*command, "recover", str(queues)]
        refused = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert refused.returncode == 2
        file = ["--config", str(queues / CONFIGURATION), "--directory", str(config.directory)]
        done = subprocess.run([*arguments, *file], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        tables.append(
            re.sub(r"[0-9a-f]{16}|queues-[0-9]", "x", refused.stderr + done.stdout).replace(
                f"{NAME} ", "inference-logging "
            )
        )
    with_python, without = (re.sub(r" +[0-9]+ +ended", " ended", re.sub(" +", " ", table)) for table in tables)
    assert without == with_python
    assert numbers(config) == list(range(200))


def test_a_database_is_verified_with_python_alone(binary: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "chat-audit.sqlite").touch()
    done = subprocess.run([*binary, "verify", tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, "is read by `inference-logging verify`" in done.stderr) == (1, True)


STATIC = Path(__file__).parents[2] / "dist" / "inference-logging-listener"
WHEELS = sorted(STATIC.parent.glob("*.whl"))


@pytest.mark.wheel
@pytest.mark.skipif(not STATIC.exists(), reason="make listener was not run")
def test_what_make_builds_needs_no_library() -> None:
    said = subprocess.run(["ldd", STATIC], capture_output=True, text=True, check=False)
    assert re.search("statically linked|not a dynamic executable", said.stdout + said.stderr)


@pytest.mark.wheel
@pytest.mark.skipif(not WHEELS, reason="make wheel was not run")
def test_the_wheels_are_the_package_and_the_program_and_listen_becomes_it(tmp_path: Path, configure: Configure) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    assert [wheel.name.partition("-")[0] for wheel in WHEELS] == ["inferlog", "inferlog_listener"]
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *map(str, WHEELS)]
    subprocess.run([python, *install], check=True)
    # What the package needs is found behind what is installed with it.
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    config = configure(listener="external")
    with Sidecar(config, listen=(str(python.with_name("inference-logging")), "listen")) as sidecar:
        sidecar.wait_for("leader queues=0")
        assert Path(f"/proc/{sidecar.process.pid}/exe").resolve() == python.with_name(NAME).resolve()
        assert sidecar.stop() == 0


def test_it_is_one_file_that_says_its_name_and_its_commands(binary: tuple[str, ...]) -> None:
    def show(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*binary, *arguments], capture_output=True, text=True, check=False)

    platform = "" if PLATFORM == "linux" else rf" \({PLATFORM}\)"
    assert re.fullmatch(rf"inference-logging-listener \d+\.\d+\.\d+{platform}\n", show("--version").stdout)
    assert (show("--help").returncode, show("listen", "--help").returncode) == (0, 0)
    assert "--metrics-port" in show("listen", "--help").stdout
    assert (show().returncode, show("serve").returncode) == (2, 2)
