"""What all commands share: the root, the terminal, --where, signals."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import unicodedata
from types import FrameType, SimpleNamespace
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_logging import Config
from inference_logging._native import terminal_line
from inference_logging.cli import lines
from inference_logging.cli.main import COMMANDS, Entry, run
from inference_logging.cli.ship import Stop
from inference_logging.cli.signals import Signals
from inference_logging.read.terminal import as_json, safe, word
from inference_logging.read.where import Condition


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> click.Command:
    """Register a command whose option says how it ends."""

    @click.command()
    @click.option("--raises", default="")
    @click.option("--returns", type=int)
    @click.option("--prints", default=0)
    def command(raises: str, returns: int | None, prints: int) -> int | None:
        for _ in range(prints):
            click.echo("x" * 100)
        ends: dict[str, BaseException] = {
            "interrupt": KeyboardInterrupt(),
            "missing": FileNotFoundError(2, "No such file", "queues"),
            "finding": click.exceptions.Exit(1),
            "failure": click.ClickException("it does not work"),
        }
        if raises:
            raise ends[raises]
        return returns

    monkeypatch.setitem(COMMANDS, "probe", Entry("Look at nothing.", "inference-logging probe --prints 3"))
    monkeypatch.setitem(sys.modules, "inference_logging.cli.probe", SimpleNamespace(command=command))
    return command


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["probe"], 0),
        (["probe", "--returns", "1"], 1),
        (["probe", "--raises", "finding"], 1),
        (["probe", "--raises", "failure"], 1),
        (["probe", "--raises", "missing"], 1),
        (["probe", "--raises", "interrupt"], 130),
        (["probe", "--prints", "many"], 2),
        (["prob"], 2),
        (["--help"], 0),
        (["--version"], 0),
    ],
)
def test_each_ending_has_its_conventional_code(probe: click.Command, arguments: list[str], code: int) -> None:
    assert run(arguments) == code


def test_a_wrong_configuration_is_reported_and_counts_as_usage(
    probe: click.Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        Config(level="LOUD")

    monkeypatch.setitem(
        sys.modules, "inference_logging.cli.probe", SimpleNamespace(command=click.command("probe")(command))
    )
    assert run(["probe"]) == 2
    assert "level='LOUD' (keyword): must be one of" in capsys.readouterr().err


def test_help_lists_commands_examples_and_exit_codes_and_imports_none(
    probe: click.Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for expected in ("Look at nothing.", "inference-logging probe --prints 3", "130", "ended by Ctrl-C"):
        assert expected in shown


def test_an_error_of_the_operating_system_names_the_file_without_a_traceback(
    probe: click.Command, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["probe", "--raises", "missing"])
    assert capsys.readouterr().err == "inference-logging: queues: No such file\n"


_PRINTING = """
import sys
from types import SimpleNamespace
import click
from inference_logging import Config
from inference_logging.cli.main import COMMANDS, Entry, main

@click.command()
def command():
    for _ in range(100_000):
        click.echo("x" * 100)

COMMANDS["probe"] = Entry("", "")
sys.modules["inference_logging.cli.probe"] = SimpleNamespace(command=command)
sys.argv = ["inference-logging", "probe"]
main()
"""


def test_a_reader_that_goes_away_ends_it_without_a_word() -> None:
    read, write = os.pipe()
    with subprocess.Popen([sys.executable, "-c", _PRINTING], stdout=write, stderr=subprocess.PIPE) as process:
        os.close(write)
        os.read(read, 10)
        os.close(read)
        _, reported = process.communicate()
    assert (process.returncode, reported) == (141, b"")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def is_harmless(text: str) -> bool:
    # Cc: control characters, Cf: invisible and reordering ones, Zl and Zp: line breaks, Cs: not encodable.
    bad = [
        c for c in text if unicodedata.category(c) in ("Cc", "Zl", "Zp", "Cs") or unicodedata.bidirectional(c) in BIDI
    ]
    return not bad


BIDI = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")


@given(st.text() | st.text("\x00\x1b\x7f\x85\x9b\u202e\u2028\u2066ab \\"))
def test_safe_text_has_no_control_characters_and_stays_on_one_line(text: str) -> None:
    assert is_harmless(safe(text))
    assert is_harmless(word(text))


@given(JSON)
def test_json_for_a_terminal_is_harmless_and_means_the_same(value: Any) -> None:
    written = as_json(value)
    assert is_harmless(written)
    assert json.loads(written) == value


@given(st.dictionaries(st.text(), JSON, max_size=4), st.text(), st.text())
def test_no_record_can_reach_the_terminal_raw_in_columns(rest: dict[str, Any], event: str, message: str) -> None:
    record = {**rest, "timestamp": message, "event_name": event, "severity_text": message, "message": message}
    assert is_harmless(lines.plain(record))
    request = {**record, "event_name": "request", "url.path": message, "outcome": message}
    assert is_harmless(lines.plain(request))
    for one in (record, request):
        assert is_harmless(terminal_line(json.dumps(one).encode(), 1000, False))


def test_half_of_a_surrogate_pair_is_escaped() -> None:
    assert safe("a\ud800b\udfff") == r"a\ud800b\udfff"


def test_ordinary_text_of_any_language_stays_as_it_is() -> None:
    text = "Grüße, 世界, مرحبا, naïve café, 𝒳 ✓"
    assert safe(text) == text
    assert word("héllo/x") == "héllo/x"


def test_a_word_that_could_be_taken_for_several_is_quoted() -> None:
    assert word("a b") == '"a b"'
    assert word("") == '""'
    assert word('say "x"') == r'"say \"x\""'
    assert word("a=b") == '"a=b"'
    assert word(r"a\u001b") == r'"a\\u001b"'


def test_a_character_outside_of_the_basic_plane_is_escaped_as_json_has_it() -> None:
    assert json.loads(f'"{safe(chr(0xE0041))}"') == chr(0xE0041)


RECORD: dict[str, Any] = {
    "outcome": "error",
    "duration_s": 1.5,
    "http.response.status_code": 503,
    "client_request_id": "007",
    "gen_ai.request.stream": True,
    "error.type": None,
    "gen_ai.response.finish_reasons": ["stop", "length"],
    "timestamp": "2026-11-21T05:00:00.5Z",
    "gen_ai.request.model": "large",
    "attributes": {"n": 3, "deep": {"er": "x"}, "a.b": "dotted"},
}


@pytest.mark.parametrize(
    "text",
    [
        "outcome=error", "outcome = error", "outcome!=ok", "outcome~err",
        "duration_s>1", "duration_s>=1.5", "duration_s<=1.5e0", "duration_s<2", "duration_s=1.50", "duration_s!=2",
        "http.response.status_code>=500", "http.response.status_code=503.0", "http.response.status_code~50",
        "client_request_id=007", "client_request_id!=7", "client_request_id<01",
        "gen_ai.request.stream=true", "gen_ai.request.stream!=1", "error.type=null",
        "gen_ai.response.finish_reasons=length", "gen_ai.response.finish_reasons~top",
        "timestamp>2026-11-21T05:00:00", "timestamp<2026-11-21T05:00:01",
        "attributes.n=3", "attributes.deep.er=x", "attributes.a.b=dotted", "attributes.deep~er",
        "absent!=1", "absent.deep!=x",
        "status=503", "status>=500", "method!=GET", "model=large",
    ],
)  # fmt: skip
def test_a_condition_holds(text: str) -> None:
    assert Condition.parse(text).holds(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "outcome=ok", "outcome!=error", "outcome=Error", "outcome~OK", "outcome=",
        "duration_s>1.5", "duration_s<1.5", "duration_s=slow", "duration_s>slow", "duration_s!=1.5",
        "client_request_id=7", "gen_ai.request.stream=1", "gen_ai.request.stream>0",
        "gen_ai.response.finish_reasons!=stop", "gen_ai.response.finish_reasons=stop,length",
        "absent=", "absent<1", "absent~", "attributes.n.m=3", "outcome.x~", "attributes.=3",
    ],
)  # fmt: skip
def test_a_condition_does_not_hold(text: str) -> None:
    assert not Condition.parse(text).holds(RECORD)


def test_a_short_name_means_the_first_of_its_fields_unless_a_record_has_one_of_that_name() -> None:
    named = {
        "gen_ai.request.model": "asked",
        "triton.model_name": "t",
        "http.route": "/a",
        "http.request.method": "PUT",
    }
    for text in ("model=asked", "route=/a", "method=PUT"):
        assert Condition.parse(text).holds(named)
    assert Condition.parse("model=answered").holds({**named, "gen_ai.response.model": "answered"})
    assert Condition.parse("model=own").holds({**named, "model": "own"})


def test_what_stands_behind_the_first_operator_is_the_value() -> None:
    assert Condition.parse("url.path~?a=b").holds({"url.path": "/x?a=b"})


@pytest.mark.parametrize("text", ["", "outcome", "=x", " =x", "a b"])
def test_text_that_is_no_condition_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="must be FIELD") as caught:
        Condition.parse(text)
    assert repr(text) in str(caught.value)


SHORT_PAUSES = """
from inference_logging.cli.ship import Stop

with Stop() as stop:
    for number in range(20_000):
        assert not stop.wait(1e-7 if number % 2 else 1e-6)
"""
ASKED_TO_END_AT_ANY_INSTANT = """
import random, signal
from inference_logging.cli.signals import Signals

with Signals([signal.SIGALRM]) as signals:
    for _ in range(3000):
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
        while signals.wait(1e-5) is None:
            pass
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 3e-4))
        assert signals.wait(3600) == signal.SIGALRM
"""


@pytest.mark.servers
def test_a_pause_ends_however_short_it_is() -> None:
    subprocess.run([sys.executable, "-c", SHORT_PAUSES], check=True, timeout=120)


def test_a_signal_at_any_instant_of_a_wait_ends_it() -> None:
    subprocess.run([sys.executable, "-c", ASKED_TO_END_AT_ANY_INSTANT], check=True, timeout=120)


def test_a_signal_that_came_before_the_wait_ends_it() -> None:
    with Signals([signal.SIGUSR1, signal.SIGUSR2]) as signals:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert [signals.wait(3600), signals.wait(3600), signals.wait(0)] == [signal.SIGUSR1, signal.SIGUSR2, None]


def test_other_signals_end_no_wait() -> None:
    before = signal.signal(signal.SIGUSR2, lambda _number, _frame: None)
    try:
        with Signals([signal.SIGUSR1]) as signals:
            os.kill(os.getpid(), signal.SIGUSR2)
            assert signals.wait(0.01) is None
    finally:
        signal.signal(signal.SIGUSR2, before)


def test_an_error_of_the_handler_ends_the_wait() -> None:
    def refuse(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def asked(signals: Signals) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        signals.wait(3600)

    with Signals([signal.SIGUSR1], refuse) as signals, pytest.raises(KeyboardInterrupt):
        asked(signals)


def test_afterwards_handlers_and_descriptor_are_as_before() -> None:
    read, write = os.pipe2(os.O_NONBLOCK)
    other = signal.set_wakeup_fd(write)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with Signals():
            assert signal.getsignal(signal.SIGTERM) is not handler
        assert signal.getsignal(signal.SIGTERM) is handler
        assert signal.set_wakeup_fd(other) == write
    finally:
        os.close(read)
        os.close(write)


def test_a_stop_stays_asked_for() -> None:
    with Stop() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert [stop.wait(3600), stop.is_set(), stop.wait(3600)] == [True, True, True]
