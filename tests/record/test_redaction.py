"""The redaction of records, and no canary in any output."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from inference_logging.errors import ConfigError
from inference_logging.record.config import ENV_PREFIX
from inference_logging.testing import capture_records
from tests.kit.servers import HERE
from tests.kit.signatures import Configure
from tests.kit.support import Client, answer, body_messages, http_scope, read_lines, read_records, replying, serve_one


def post(config: Config, body: object) -> None:
    """Send one request for chat through the middleware."""
    scope = http_scope("/v1/chat/completions", "POST", [(b"content-type", b"application/json")])
    client = Client(body_messages(json.dumps(body).encode()))
    serve_one(InferenceLoggingMiddleware(replying(*answer(b"{}")), config), scope, client)


def problem(**parameters: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Config(**parameters)
    (found,) = caught.value.problems
    return found


@pytest.mark.parametrize(
    ("parameters", "reported"),
    [
        ({"redact_custom": {"pin": "(a"}}, 'redact_custom["pin"]="(a": is no regular expression: unclosed group'),
        ({"redact_custom": {"pin": "a*"}}, 'redact_custom["pin"]="a*": must not match an empty text'),
        (
            {"redact_custom": {"pin": r"(\w{99}){99}"}},
            r'redact_custom["pin"]="(\\w{99}){99}": must take at most 1048576',
        ),
        ({"redact_custom": {"pin": r"(?<=a)b"}}, "look-around, including look-ahead and look-behind, is not supported"),
        ({"redact_fields": ["user..email"]}, 'redact_fields="user..email": must have a name between two dots'),
        ({"redact_fields": ["a", "a"]}, "redact_fields=['a', 'a'] (keyword): must be at most 256 paths"),
        ({"redact_patterns": ["mail"]}, "redact_patterns='mail' (item 1 of keyword): must be email, phone, card, key"),
        ({"redact_replacement": "a\nb"}, r"redact_replacement='a\nb' (keyword): must be at most 200 characters"),
    ],
)
def test_a_rule_that_cannot_be_used_stops_the_start_with_its_name_and_value(
    parameters: dict[str, Any], reported: str
) -> None:
    assert reported in problem(**parameters)


def test_expressions_are_written_one_per_line_in_a_variable_and_as_a_mapping_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expressions = {"ssn": r"\b\d{3}-\d{2}-\d{4}\b", "ticket": "T=[A-Z]{2,4}"}
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "redact_custom": expressions, "redact_fields": ["a.b", "c[*]"]}))
    written = Config(config_file=file)
    assert dict(written.redact_custom) == expressions
    monkeypatch.setenv(f"{ENV_PREFIX}REDACT_CUSTOM", "".join(f"{name}={text}\n" for name, text in expressions.items()))
    monkeypatch.setenv(f"{ENV_PREFIX}REDACT_FIELDS", "a.b, c[*]")
    assert (Config().redact_custom, Config().redact_fields) == (written.redact_custom, written.redact_fields)


def test_records_are_redacted_by_field_pattern_and_expression(configure: Configure) -> None:
    config = configure(
        redact_fields=["password", "$.attributes.user.email"],
        redact_patterns=["email", "card"],
        redact_custom={"ssn": r"\b\d{3}-\d{2}-\d{4}\b"},
        redact_replacement="<{name}>",
    )
    with Logger(config):
        user = {"email": "x", "tags": ["a@example.com"]}
        assert get_logger("shop").info("for a@example.com, 123-45-6789", password=1, user=user, card=4111111111111111)
    (record,) = read_records(config.directory, "log")
    assert record["message"] == "for <email>, <ssn>"
    kept = {"password": "<field>", "user": {"email": "<field>", "tags": ["<email>"]}, "card": "<card>"}
    assert record["attributes"] == kept


def test_a_secret_that_the_cap_of_a_capture_cuts_is_found_by_what_is_left_of_it(configure: Configure) -> None:
    caps = {"capture_head_bytes": 64, "capture_tail_bytes": 64, "capture_text_bytes": 512}
    config = configure(capture_input="truncated", redact_patterns=["card", "key"], **caps)
    card, key = "4111111111111111", "sk-a1b2c3d4e5f6g7h8i9j0k1l2m3n4o5p6"
    with Logger(config):
        for padding in range(160, 300, 3):
            before, after = "x " * (padding // 2) + "." * (padding % 2), " z" * (padding // 2)
            text = f"{before}{card} {key} {'y ' * 500} {card} {key}{after}"
            post(config, {"messages": [{"role": "user", "content": text}]})
    records = read_records(config.directory, "request")
    assert len(records) > 40
    for record in records:
        assert record["input_truncated"]
        written = json.dumps(record["gen_ai.input.messages"], ensure_ascii=False)
        assert not re.search(r"\d{5}", written), written
        assert not any(key[at : at + 6] in written for at in range(len(key) - 5)), written


def test_what_an_application_tests_can_be_redacted_as_in_production() -> None:
    with capture_records(redact_patterns=["email"]) as records:
        get_logger("shop").info("for a@example.com")
    assert [record["message"] for record in records.logs] == ["for [redacted:email]"]


def test_credentials_in_headers_as_asgi_has_them_are_redacted_by_their_names() -> None:
    names = (b"cookie", b"Set-Cookie", b"x-api-key", b"authorization", b"proxy-authorization")
    headers = [(name, b"opaque-value") for name in names]
    with capture_records(redact_patterns=["email", "phone", "card", "key", "bearer"]) as records:
        log = get_logger("shop")
        log.info("pairs", headers=headers)
        log.info("mixed", headers=tuple([name.decode(), value] for name, value in headers))
        log.info("a map", headers=dict(headers))
        log.info("nested", scope={"type": "http", "headers": [*headers, (b"large", 10**40)]})
        log.info("one", pair=(b"cookie", bytearray(b"opaque-value")))
        log.info("a body", body={"raw": b'{"password": "opaque-value"}'})
    assert len(records.logs) == 6
    for record in records.logs:
        assert "opaque-value" not in json.dumps(record["attributes"]), record


APP = HERE / "canary_app.py"
DEADLINE_S = 120.0
REDACTION = {
    "redact_patterns": "email, phone, card, key, bearer",
    "redact_fields": "password, $.attributes.session",
    "redact_custom": "canary=Canary[0-9]+Error",
}
CAPTURE = {"capture_input": "full", "capture_output": "full"}
_SECRET = re.compile(rb"(?i)canary\w*?(\d\d)|(4111.?1111.?1111.?1111)")
IN_HEADS = {1, 2, 4, 30}
IN_BODIES = {6, 8, 34}
IN_LOGS = {12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 24, 26, 33, 37, 39}
IN_MESSAGES = {7, 9, 35}
IN_EXCEPTIONS = {10, 11, 41}
CARD = {0}
IN_AUDIT = {25, 40}
IN_LABELS = {6, 11}


def secrets(text: bytes) -> set[int]:
    """Return the numbers of the secrets in a text; 0 is the card."""
    return {int(found[1] or 0) for found in _SECRET.finditer(text)}


class Reader(threading.Thread):
    """Keeps what arrives at a socket until it is asked to stop."""

    def __init__(self, receiving: socket.socket) -> None:
        super().__init__(daemon=True)
        self._socket, self.received = receiving, bytearray()
        self._must_stop = threading.Event()
        self.start()

    def run(self) -> None:
        """Read on; what arrived before the stop is read to its end."""
        stops = False
        self._socket.settimeout(0.05)
        while not stops:
            stops = self._must_stop.is_set()
            with contextlib.suppress(TimeoutError):
                while True:
                    self.received += self._socket.recv(1 << 16)

    def all(self) -> bytes:
        """Return what has arrived."""
        self._must_stop.set()
        self.join()
        return bytes(self.received)


@contextlib.contextmanager
def sockets(directory: Path) -> Iterator[tuple[str, str, list[Reader]]]:
    """Open a UDP and a Unix socket, and read from them."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unix,
    ):
        udp.bind(("127.0.0.1", 0))
        path = directory / "socket"
        unix.bind(str(path))
        yield f"udp://127.0.0.1:{udp.getsockname()[1]}", f"unix://{path}", [Reader(udp), Reader(unix)]


class Run:
    """One life of the application, in a directory of its own."""

    def __init__(self, directory: Path, *, redacted: bool) -> None:
        self.directory = directory / ("on" if redacted else "off")
        for name in ("pages", "queues"):
            (self.directory / name).mkdir(parents=True)
        self._parameters = {
            "directory": str(self.directory / "segments"),
            "queue_directory": str(self.directory / "queues"),
            "metrics_path": "/metrics",
            "fallback_delay_s": "0",
            "flush_interval_s": "0.05",
            "drain_deadline_s": "2",
            **{name: value for name, value in CAPTURE.items() if name in Config.model_fields},
            **(REDACTION if redacted else {}),
        }
        self.said = b""

    def live(self, end: str = "", *, writes: str = "all", **parameters: str) -> int:
        """Run the application to its end; return how it ended."""
        self._parameters |= parameters
        own = {"CANARY_PAGES": str(self.directory / "pages"), "CANARY_END": end, "CANARY_WRITES": writes}
        return self._run([sys.executable, str(APP)], **own)

    def recover(self) -> int:
        """Run the command that writes what was left."""
        command = [sys.executable, "-m", "inference_logging.cli.main", "recover", self._parameters["queue_directory"]]
        return self._run(command)

    def read(self) -> None:
        """Run the commands that show what was written; what they say and write is searched too."""
        segments = self._parameters["directory"]
        page = str(self.directory / "pages" / "report.html")
        for arguments in (("tail",), ("stats", segments, "--html", page), ("stats", segments), ("verify", segments)):
            said = len(self.said)
            assert self._run([sys.executable, "-m", "inference_logging.cli.main", *arguments]) == 0, self.said[said:]
            assert len(self.said) > said

    def _run(self, command: list[str], **environment: str) -> int:
        environment |= {ENV_PREFIX + name.upper(): value for name, value in self._parameters.items()}
        done = subprocess.run(
            command, check=False, env={**os.environ, **environment}, capture_output=True, timeout=DEADLINE_S
        )
        self.said += done.stdout + done.stderr
        return done.returncode

    def leaks(self, *, besides: str = "") -> set[int]:
        """Return the secrets in all files but those below ``besides``, and in what was said."""
        found = secrets(self.said)
        for path in self.directory.rglob("*"):
            if path.is_file() and not (besides and path.is_relative_to(self.directory / besides)):
                found |= secrets(path.read_bytes())
        return found


def check(leaks: set[int], *, redacted: bool) -> None:
    """All that is stored without redaction must be gone with it."""
    if redacted:
        assert leaks == set()
    else:
        assert expected() - leaks == set(), "the test does not look where secrets are"


def expected() -> set[int]:
    """Return what is stored without redaction."""
    messages = IN_MESSAGES if set(CAPTURE) <= set(Config.model_fields) else set()
    return IN_HEADS | IN_BODIES | IN_LOGS | IN_EXCEPTIONS | messages | CARD


@pytest.mark.servers
@pytest.mark.parametrize("audit", ["file", "sqlite"])
def test_no_secret_reaches_a_segment_an_additional_sink_the_audit_lane_a_page_or_a_stream(
    tmp_path: Path, audit: str
) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        with sockets(run.directory) as (udp, unix, readers):
            more = f"{udp}, {unix}, file://{run.directory / 'more'}"
            assert run.live(additional_sinks=more, audit="on", audit_sink=audit) == 0, run.said
            arrived = [secrets(reader.all()) for reader in readers]
        if audit == "file":
            run.read()
        assert len(read_records(run.directory / "more")) == len(read_records(run.directory / "segments")) > 0
        for leaks in (run.leaks() - IN_AUDIT, *arrived):
            check(leaks, redacted=redacted)
        assert run.leaks() & IN_AUDIT == (set() if redacted else IN_AUDIT)
        labels = secrets((run.directory / "pages" / "metrics").read_bytes())
        assert labels == (set() if redacted else IN_LABELS)


@pytest.mark.servers
def test_no_secret_reaches_the_fallback(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        fallback = run.directory / "fallback"
        assert run.live(sink=f"unix://{run.directory}/nobody", fallback=str(fallback)) == 0, run.said
        assert read_records(fallback, "billed")
        check(run.leaks(), redacted=redacted)


@pytest.mark.servers
def test_no_secret_reaches_additional_sinks_while_the_primary_takes_nothing(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        run.live(
            sink=f"unix://{run.directory}/nobody", additional_sinks=f"file://{run.directory / 'more'}", writes="some"
        )
        assert read_records(run.directory / "more", "billed")
        check(run.leaks(besides="queues"), redacted=redacted)


@pytest.mark.servers
def test_no_secret_reaches_standard_output_and_error(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        assert run.live(sink="stdout") == 0, run.said
        assert b'"billed"' in run.said
        check(run.leaks(), redacted=redacted)


@pytest.mark.servers
def test_no_secret_reaches_the_console(tmp_path: Path) -> None:
    # The client's own id and bodies are not shown.
    shown = IN_HEADS - {4} | IN_LOGS | IN_EXCEPTIONS | CARD
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        assert run.live(console="on") == 0, run.said
        assert b" billed " in run.said
        assert secrets(run.said) == (set() if redacted else shown)


@pytest.mark.servers
def test_no_secret_of_a_process_that_was_killed_is_recovered(tmp_path: Path) -> None:
    for redacted in (False, True):
        run = Run(tmp_path, redacted=redacted)
        assert run.live("kill", listener="external") < 0
        assert not (run.directory / "segments").exists()
        assert run.recover() == 0, run.said
        lines = read_lines(run.directory / "segments")
        (died,) = (line for line in lines if line.get("outcome") == "process_died")
        assert died["url.path"] == ("/hang/[redacted:email]" if redacted else "/hang/canary38@example.com")
        check(run.leaks(), redacted=redacted)


@pytest.mark.servers
def test_a_record_that_cannot_be_formatted_is_reported_without_what_it_was_to_say(tmp_path: Path) -> None:
    run = Run(tmp_path, redacted=False)
    assert run.live() == 0
    assert b"TypeError" in run.said
    assert 23 not in secrets(run.said)
