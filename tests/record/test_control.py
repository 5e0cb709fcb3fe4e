"""Run-time control: what a change does to the next record, in which processes, for how long, and what reports it."""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from inference_logging import Config, Logger, get_logger
from inference_logging._native import queue_directories
from tests.kit.command_line import control, ctl, run
from tests.kit.servers import uvicorn
from tests.kit.signatures import App, Configure, Receive, Recording, Send
from tests.kit.support import TRACE_ID, TRACEPARENT, Recorded, answer, http_scope, read_records, replying, wait_until

pytestmark = pytest.mark.usefixtures("program")


def in_force(config: Config) -> dict[str, Any]:
    """Return the overrides by name."""
    shown = json.loads(control(config, "show", "--json"))
    assert shown["queue_directory"] == str(config.resolved_queue_directory)
    return {override["what"]: override["value"] for override in shown["overrides"]}


def changes(config: Config) -> list[tuple[Any, ...]]:
    """Return the changes on record, in the order of their time."""
    records = sorted(read_records(config.directory, "control.changed"), key=lambda record: record["timestamp"])
    return [(record["what"], record["from"], record["to"]) for record in records]


def test_a_level_holds_for_the_next_record_and_until_it_is_reset(recorded: Recorded) -> None:
    log, config = get_logger("app"), recorded.config
    assert not log.debug("before")
    control(config, "level", "DEBUG")
    assert log.debug("while")
    control(config, "level", "error")
    assert not log.warning("louder")
    assert control(config, "reset") == "ended: 1\n"
    assert (log.info("after"), log.debug("after")) == (True, False)
    assert [record["message"] for record in recorded.records("log")] == ["while", "after"]


def test_a_level_ends_by_itself_and_the_listener_puts_its_end_on_record(recorded: Recorded) -> None:
    log, config = get_logger("app"), recorded.config
    control(config, "level", "DEBUG", "--for", "0.5s")
    assert log.debug("while")
    wait_until(lambda: not log.debug("still"), "the level to end")
    assert in_force(config) == {}
    wait_until(lambda: recorded.records() and len(changes(config)) == 2, "the listener to report")
    assert changes(config) == [("level", None, "DEBUG"), ("level", "DEBUG", None)]
    reported = read_records(config.directory, "control.changed")[-1]
    assert reported["who"] == f"the listener, pid {os.getpid()}: its time is over"


def test_a_sampling_ratio_holds_for_the_next_request_those_of_routes_included(recording: Recording) -> None:
    recorded = recording(sample_ratio=0, sample_routes={"/kept": 0})
    for path in ("/", "/kept"):
        recorded.serve(replying(*answer(b"x")), http_scope(path))
    control(recorded.config, "sample-ratio", "1")
    for path in ("/", "/kept"):
        recorded.serve(replying(*answer(b"x")), http_scope(path))
    control(recorded.config, "sample-ratio", "0")
    recorded.serve(replying(*answer(b"x")), http_scope("/"))
    records = recorded.records("request")
    assert [(record["url.path"], record["sampled_by"]) for record in records] == [("/", "head"), ("/kept", "head")]


def test_a_chunks_mode_holds_for_the_next_request(recording: Recording) -> None:
    recorded = recording(chunks="off")
    stream = replying(*answer(b"a", b"b", b"c"))
    recorded.serve(stream)
    control(recorded.config, "chunks", "timeline")
    recorded.serve(stream)
    control(recorded.config, "chunks", "events")
    recorded.serve(stream)
    off, timeline, events = recorded.records("request")
    assert "chunks" not in off
    assert len(timeline["chunk_gaps_us"]) == 2
    assert (events["chunks"], "chunk_gaps_us" in events) == (3, False)
    assert {record["trace_id"] for record in recorded.records("request.chunk")} == {events["trace_id"]}


def test_a_captured_route_is_recorded_whole_whatever_the_sampler_says(recording: Recording) -> None:
    recorded = recording(sample_ratio=0, chunks="off")
    control(recorded.config, "capture", "--route", "/items/{id}")
    for path in ("/items/1", "/items/1/more", "/other", "/items/"):
        recorded.serve(replying(*answer(b"a", b"b")), http_scope(path))
    (record,) = recorded.records("request")
    assert (record["url.path"], record["sampled_by"], record["adjusted_count"]) == ("/items/1", "forced", 1.0)
    assert [chunk["chunk"] for chunk in recorded.records("request.chunk")] == [1, 2]


def test_a_captured_trace_is_recorded_whole_whatever_the_sampler_says(recording: Recording) -> None:
    recorded = recording(sample_ratio=0)
    control(recorded.config, "capture", "--trace", TRACE_ID.upper())
    stream = replying(*answer(b"a", b"b"))
    recorded.serve(stream, http_scope("/", headers=[(b"traceparent", TRACEPARENT)]))
    recorded.serve(stream, http_scope("/"))
    (record,) = recorded.records("request")
    assert (record["trace_id"], record["sampled_by"]) == (TRACE_ID, "forced")
    assert len(recorded.records("request.chunk")) == 2


def failing(*parts: bytes) -> App:
    """Return an application that breaks off after ``parts``."""
    messages = answer(*parts, b"")[:-1]

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)
        raise RuntimeError

    return app


def test_the_next_errors_have_their_timeline_and_only_as_many_as_are_wanted(recording: Recording) -> None:
    recorded = recording(chunks="summary")
    control(recorded.config, "capture", "--errors", "2")

    def fail() -> None:
        with pytest.raises(RuntimeError):
            recorded.serve(failing(b"a", b"b", b"c"))

    fail()
    recorded.serve(replying(*answer(b"a", b"b", b"c")))
    assert in_force(recorded.config) == {"capture.errors": 1}
    fail()
    fail()
    records = recorded.records("request")
    assert [(record["outcome"], "chunk_gaps_us" in record) for record in records] == [
        ("error", True),
        ("ok", False),
        ("error", True),
        ("error", False),
    ]
    wait_until(lambda: in_force(recorded.config) == {}, "the listener to end what is exhausted")


def test_a_change_holds_in_a_forked_child_too(recorded: Recorded) -> None:
    log = get_logger("app")
    read, write = os.pipe()
    go, reported = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            before = log.debug("before")
            os.write(reported, b"x")
            os.read(read, 1)
            os._exit(0 if (before, log.debug("after")) == (False, True) else 1)
        finally:
            os._exit(2)
    assert os.read(go, 1) == b"x"
    control(recorded.config, "level", "DEBUG")
    os.write(write, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    for end in (read, write, go, reported):
        os.close(end)


def test_a_change_while_no_server_runs_is_on_record_and_in_force_when_one_starts(configure: Configure) -> None:
    config = configure()
    Logger(config).close()
    control(config, "level", "DEBUG")
    assert read_records(config.directory) == []
    with Logger(config) as logger:
        assert get_logger("app").debug("while")
        assert logger.flush()
        wait_until(lambda: changes(config), "the next listener to write it")
    (record,) = read_records(config.directory, "control.changed")
    assert (record["what"], record["from"], record["to"]) == ("level", None, "DEBUG")
    assert re.fullmatch(rf".+ \(uid {os.getuid()}\), inference-logging ctl, pid [0-9]+", record["who"])
    assert record["until"] > record["timestamp"]
    assert not list(config.resolved_queue_directory.glob("*.queue"))


@pytest.mark.servers
def test_every_worker_of_a_running_server_does_at_once_what_is_wanted(configure: Configure) -> None:
    config = configure(sample_ratio=0)
    with uvicorn(config, "--workers", "2") as server:

        def ask(path: str) -> dict[int, set[Any]]:
            """Ask until both workers have answered; return what each said."""
            said: dict[int, set[Any]] = {}
            with ThreadPoolExecutor(8) as clients:
                while len(said) < 2:
                    for body in clients.map(server.get, [path] * 16):
                        said.setdefault(body["pid"], set()).add(body.get("accepted"))
            return said

        assert set(map(tuple, ask("/debug").values())) == {(False,)}
        control(config, "level", "DEBUG")
        assert set(map(tuple, ask("/debug").values())) == {(True,)}
        control(config, "capture", "--route", "/")
        pids = set(ask("/"))
        control(config, "capture", "--errors", "5")
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(lambda _: httpx.get(f"{server.url}/failing", timeout=120), range(12)))
        wait_until(lambda: set(in_force(config)) == {"level", "capture.route"}, "the errors to be counted down")
        control(config, "reset")
        assert set(map(tuple, ask("/debug").values())) == {(False,)}
        server.stop()
    requests = read_records(config.directory, "request")
    assert Counter(record["sampled_by"] for record in requests if record["url.path"] == "/failing") == {"error": 12}
    captured = [record for record in requests if record["url.path"] == "/"]
    assert {record["sampled_by"] for record in captured} == {"forced"}
    assert {record["pid"] for record in captured} == pids
    assert [change[0] for change in changes(config)][:3] == ["level", "capture.route", "capture.errors"]


def test_what_is_in_force_is_shown_with_its_end(recorded: Recorded) -> None:
    config = recorded.config
    nothing = control(config, "show").splitlines()
    assert nothing == [
        f"queue directory  {config.resolved_queue_directory}",
        "nothing is changed: all is as configured",
    ]
    control(config, "level", "DEBUG", "--for", "5m")
    control(config, "capture", "--errors", "50")
    _, level, errors = control(config, "show").splitlines()
    assert level.startswith("level            DEBUG  until 20")
    assert level.endswith(" s left")
    assert errors.startswith("capture.errors   50 more  until 20")
    (override, _) = json.loads(control(config, "show", "--json"))["overrides"]
    assert set(override) == {"what", "value", "until_unix_nano", "remaining_s"}
    assert 0 < override["remaining_s"] <= 300


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["level", "LOUD"], "'LOUD' is not one of"),
        (["level", "DEBUG", "--for", "16m"], "'16m': must be above 0 and at most control_limit_s=900"),
        (["level", "DEBUG", "--for", "0s"], "'0s': must be above 0"),
        (["level", "DEBUG", "--for", "soon"], "'soon': must be a time such as 90s"),
        (["sample-ratio", "1.5"], "sample_ratio=1.5: must be 0, or from 2**-56 to 1"),
        (["sample-ratio", "nan"], "sample_ratio=nan: must be 0, or from 2**-56 to 1"),
        (["capture"], "name one of --trace, --route and --errors"),
        (["capture", "--errors", "1", "--route", "/"], "name one of --trace, --route and --errors"),
        (["capture", "--errors", "0"], "0 is not in the range"),
        (["capture", "--trace", "00"], "capture.trace=00: must be 32 hex digits, not all 0"),
        (["capture", "--trace", "+" + TRACE_ID[1:]], "must be 32 hex digits"),
        (["capture", "--trace", "0" * 32], "must be 32 hex digits, not all 0"),
        (["capture", "--route", "v1"], "a path pattern begins with /"),
        (["capture", "--route", "/" + "x" * 128], "a route of a capture has at most 128 bytes"),
    ],
)
def test_a_wrong_value_is_wrong_usage_names_what_is_allowed_and_changes_nothing(
    recorded: Recorded, arguments: list[str], reported: str
) -> None:
    done = ctl(recorded.config, *arguments)
    assert done.code == 2
    assert reported in " ".join(done.err.split())
    assert in_force(recorded.config) == {}
    assert read_records(recorded.config.directory, "control.changed") == []


def test_more_captures_than_there_is_room_for_are_refused(recorded: Recorded) -> None:
    for number in range(8):
        control(recorded.config, "capture", "--route", f"/{number}")
    done = ctl(recorded.config, "capture", "--route", "/8")
    assert (done.code, done.err) == (1, "Error: 8 captures are in force, which is the most; reset some\n")


def test_a_directory_without_servers_is_reported_with_what_names_another_one(tmp_path: Path) -> None:
    done = run("ctl", "--queue-directory", str(tmp_path / "none"), "show")
    assert done.code == 2
    assert f"queue_directory={tmp_path / 'none'}: does not exist" in done.err
    assert "--service-name" in done.err
    assert not (tmp_path / "none").exists()


def test_a_directory_that_others_may_write_to_is_refused(recorded: Recorded) -> None:
    directory = recorded.config.resolved_queue_directory
    directory.chmod(0o777)
    done = ctl(recorded.config, "level", "DEBUG")
    directory.chmod(0o700)
    assert done.code == 1
    assert f"queue directory {directory}: writable by group or others; use mode 0700" in done.err
    assert in_force(recorded.config) == {}


def test_the_directory_is_found_by_the_service_name_of_the_file(tmp_path: Path, configure: Configure) -> None:
    config = configure()
    file = tmp_path / "config.yaml"
    values = {"version": 1, "queue_directory": str(config.resolved_queue_directory), "control_limit_s": 60}
    file.write_text(json.dumps(values))
    with Logger(config):
        assert run("ctl", "--config", str(file), "level", "DEBUG", "--for", "1m").code == 0
        assert in_force(config) == {"level": "DEBUG"}
        assert run("ctl", "--config", str(file), "level", "DEBUG", "--for", "2m").code == 2


def forced(config: Config) -> dict[str, Any]:
    """Return the overrides of a queue directory by name."""
    shown = json.loads(run("ctl", "--queue-directory", str(config.resolved_queue_directory), "show", "--json").out)
    return {override["what"]: override["value"] for override in shown["overrides"]}


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Give names of services of this test alone, and remove their default queue directories afterwards."""
    made = [f"t{uuid.uuid4().hex[:12]}" for _ in range(2)]
    yield made
    for directory in (path for name in made for path in queue_directories(name)):
        shutil.rmtree(directory)


def in_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("command", [["ctl", "disable"], ["ctl", "clean"], ["recover"]])
def test_a_command_in_another_folder_leaves_a_server_of_the_same_name_alone_unless_the_command_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], command: list[str]
) -> None:
    config = Config(service_name=names[0], directory=tmp_path / "a" / "logs")
    place = str(config.resolved_queue_directory)
    in_folder(monkeypatch, tmp_path / "b")
    monkeypatch.setenv("INFERENCE_LOGGING_SERVICE_NAME", names[0])
    with Logger(config) as logger:
        done = run(*command)
        assert place not in done.out + done.err
        assert get_logger("app").info("recorded")
        assert logger.flush()
        assert read_records(config.directory, "control.changed") == []
        named = run(*command, "--service-name", names[0])
        assert place in named.out + named.err.replace("\n", "")


def test_a_command_in_the_folder_of_an_application_finds_its_servers_whatever_they_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    in_folder(monkeypatch, tmp_path / "a")
    by_folder = Config(service_name=names[0], redact_patterns=["email"])
    with Logger(by_folder):
        assert run("ctl", "level", "DEBUG").code == 0
        assert forced(by_folder) == {"level": "DEBUG"}
    in_folder(monkeypatch, tmp_path / "c")
    by_segments = Config(service_name=names[1], queue_directory=tmp_path / "queues")
    with Logger(by_segments) as logger:
        assert get_logger("app").warning("a segment")
        assert logger.flush()
        assert run("ctl", "level", "DEBUG").code == 0
        assert forced(by_segments) == {"level": "DEBUG"}


def test_of_several_applications_in_a_folder_all_are_listed_and_none_is_touched_without_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    in_folder(monkeypatch, tmp_path / "a")
    configs = [Config(service_name=name) for name in names]
    with Logger(configs[0]), Logger(configs[1]):
        for command in (["ctl", "disable"], ["recover"]):
            done = run(*command)
            assert done.code == 2
            assert all(str(config.resolved_queue_directory) in done.err.replace("\n", "") for config in configs), done
        assert [forced(config) for config in configs] == [{}, {}]
        assert run("ctl", "--service-name", names[0], "level", "WARN").code == 0
        assert [forced(config) for config in configs] == [{"level": "WARN"}, {}]
        assert run("ctl", "level", "DEBUG", "--all").code == 0
        assert [forced(config) for config in configs] == [{"level": "DEBUG"}, {"level": "DEBUG"}]
        assert run("ctl", "--all", "reset").out == "ended: 2\n"


def test_options_mean_the_same_before_and_behind_a_command_and_for_recover(recorded: Recorded) -> None:
    directory = str(recorded.config.resolved_queue_directory)
    place = ["--queue-directory", directory]
    assert run("ctl", *place, "show").out == run("ctl", "show", *place).out != ""
    assert run("ctl", "--queue-directory", "/nowhere", "show", *place).code == 0
    segments = ["--directory", str(recorded.config.directory)]
    assert run("recover", *place, *segments).out == run("recover", *segments, directory).out != ""
    assert run("recover", *place, *segments, directory).code == 2


def test_a_run_of_the_command_is_no_process_in_counts(recorded: Recorded) -> None:
    for command in (["level", "DEBUG"], ["reset"]):
        assert run("ctl", "--queue-directory", str(recorded.config.queue_directory), *command).code == 0
    assert get_logger("app").warning("served")
    assert recorded.logger.flush()
    recorded.close()
    segments = ["--queue-directory", str(recorded.config.queue_directory), str(recorded.config.directory)]
    done = run("verify", *segments)
    assert done.out.startswith("BALANCED: every record of 1 process and 2 commands is accounted for.")
    totals = json.loads(run("verify", "--json", *segments).out)["totals"]
    assert (totals["processes"], totals["commands"], totals["written"]) == (1, 2, 3)
