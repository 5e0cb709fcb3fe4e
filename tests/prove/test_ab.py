"""`inference-logging ab`: what it records, counts and refuses; its estimates and their intervals."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from inference_logging import Config, Logger, get_logger
from inference_logging._native import Comparison
from inference_logging.cli.ab import command
from inference_logging.prove.ab.slices import Processes
from inference_logging.read.stats.interval import Interval, bootstrap, of_groups, ratio, trimmed_mean
from tests.kit.command_line import Done, run
from tests.kit.servers import Load, uvicorn
from tests.kit.sidecars import PYTHON, Sidecar
from tests.kit.signatures import Configure, Message, Send
from tests.kit.support import Client, Recorded, answer, http_scope, read_records, replying, serve_one, wait_until

SHORT = ("--for", "2.4s", "--slice", "0.2s")
"""The fewest and shortest slices that there may be."""
OFF_FIRST = ("--seed", "0")
"""With this one, the first slice is one without recording."""


def ab(config: Config, *arguments: str) -> Done:
    """Run the command for the queue directory of ``config``."""
    return run("ab", "--queue-directory", str(config.resolved_queue_directory), *arguments)


def ctl(config: Config, *arguments: str) -> str:
    done = run("ctl", "--queue-directory", str(config.resolved_queue_directory), *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


def in_force(config: Config) -> set[str]:
    return {override["what"] for override in json.loads(ctl(config, "show", "--json"))["overrides"]}


def changes(config: Config) -> list[tuple[Any, Any]]:
    """Return the changes on record, in the order of their time."""
    records = sorted(read_records(config.directory, "control.changed"), key=lambda record: record["timestamp"])
    assert {record["what"] for record in records} <= {"comparison", "enabled"}
    return [(record["from"], record["to"]) for record in records if record["what"] == "comparison"]


@contextmanager
def comparing(config: Config, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command as a process of its own, which is killed at the end if it still runs."""
    line = [*PYTHON, "ab", "--queue-directory", str(config.resolved_queue_directory), *arguments]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def comparison(recorded: Recorded) -> Iterator[Comparison]:
    """Compare in the queue directory of ``recorded``, as the command does."""
    begun = Comparison(recorded.config.resolved_queue_directory, 600.0)
    yield begun
    begun.end()


def test_a_request_is_counted_once_in_its_arm_and_recorded_only_in_slices_with_recording(
    recorded: Recorded, comparison: Comparison
) -> None:
    app, paths = recorded.wrap(replying(*answer(b"a", b"b", b"c"))), iter(range(100))
    for is_off, requests in ((True, 3), (False, 2), (True, 1)):
        for _ in range(requests):
            comparison.hold(is_off)
            serve_one(app, http_scope(f"/{is_off}/{next(paths)}"), Client())
    off, on = comparison.counts()
    assert [(arm["requests"], arm["first_chunks"], arm["later_chunks"]) for arm in (off, on)] == [(4, 4, 8), (2, 2, 4)]
    assert all(arm[name] > 0 for arm in (off, on) for name in ("first_chunks_nano", "later_chunks_nano"))
    records = recorded.records("request")
    assert [record["url.path"] for record in records] == ["/False/3", "/False/4"]
    assert {record["chunks"] for record in records} == {3}
    comparison.end()
    serve_one(app, http_scope(), Client())
    assert len(recorded.records("request")) == 3
    assert comparison.counts() == (off, on)
    wait_until(lambda: len(changes(recorded.config)) == 2, "its end to be on record")
    assert changes(recorded.config)[1:] == [({"requests_on": 2, "requests_off": 4}, None)]


def test_a_request_belongs_to_the_arm_in_which_it_began(recorded: Recorded, comparison: Comparison) -> None:
    async def switching(scope: Any, receive: Any, send: Send) -> None:
        first, *rest = answer(b"a", b"b")
        await send(first)
        comparison.hold(scope["path"] == "/on")
        for message in rest:
            await send(message)

    comparison.hold(False)
    recorded.serve(switching, http_scope("/on"))
    recorded.serve(switching, http_scope("/off"))
    assert [record["url.path"] for record in recorded.records("request")] == ["/on"]
    assert [arm["later_chunks"] for arm in comparison.counts()] == [1, 1]


def test_an_error_of_the_server_passes_and_is_recorded_as_without_a_comparison(
    recorded: Recorded, comparison: Comparison
) -> None:
    class GoneError(OSError):
        pass

    class Leaving(Client):
        async def send(self, message: Message) -> None:
            await super().send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                raise GoneError

    def serve() -> list[Message]:
        client = Leaving()
        with pytest.raises(GoneError):
            serve_one(recorded.wrap(replying(*answer(b"a", b"b"))), http_scope(), client)
        return client.sent

    sent = [serve()]  # before the first slice
    for is_off in (False, True):
        comparison.hold(is_off)
        sent.append(serve())
    assert sent[0] == sent[1] == sent[2]
    before, compared = recorded.records("request")
    assert before["outcome"] == compared["outcome"] == "error", "the last part was not taken"
    assert {name for name in before if name not in compared} == set()


def test_logs_and_events_are_not_recorded_in_slices_without_recording(
    recorded: Recorded, comparison: Comparison
) -> None:
    log = get_logger("app")
    comparison.hold(True)
    assert not log.warning("off")
    comparison.hold(False)
    assert log.warning("on")
    assert [record["message"] for record in recorded.records("log")] == ["on"]


PAIRS = 7
"""One more than an interval needs."""
MEASURES = ("requests/s", "time to first chunk", "CPU per request", "CPU in all")


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {measure["name"]: measure for measure in found["measures"]}


def until_all_is_measured(config: Config) -> list[dict[str, Any]]:
    """Compare with longer slices until none is late on a busy machine, and each has requests enough."""
    found: list[dict[str, Any]] = []
    for slice_s in (1, 3, 9):
        done = ab(config, "--for", f"{2 * PAIRS * slice_s}s", "--slice", f"{slice_s}s", "--json")
        found.append(json.loads(done.out))
        assert done.err == ""
        if all(by_name(found[-1])[name]["difference"] for name in MEASURES):
            assert done.code == 0
            break
    return found


@pytest.mark.servers
def test_the_workers_of_a_server_take_part_and_the_books_balance(configure: Configure) -> None:
    config = configure(listener="external")
    with Sidecar(config) as sidecar, uvicorn(config, "--workers", "2") as server:
        directory, listener = config.resolved_queue_directory, sidecar.process.pid
        wait_until(lambda: listener in Processes(directory).listeners, "the listener to be seen")
        with Load(server, "/") as load:
            load.wait_for(50)
            tries = until_all_is_measured(config)
            assert in_force(config) == set()
            load.wait_for(50)
        server.stop()
        sidecar.stop()
    for found in tries:
        assert (found["server_processes"], found["listener_processes"], found["unseen_processes"]) == (2, 1, 0)
        assert (found["pairs"] + found["late_pairs"], found["ended"]) == (PAIRS, None)
        assert min(found["requests_off"], found["requests_on"]) > 50
    assert not load.failed
    requests = read_records(config.directory, "request")
    assert len({record["pid"] for record in requests}) == 2
    assert len(requests) == len(load.answered) - sum(found["requests_off"] for found in tries)
    books = [{name: found[name] for name in ("requests_on", "requests_off")} for found in tries]
    assert changes(config) == [change for book in books for change in ((None, "under way"), (book, None))]
    measures = by_name(tries[-1])
    chunks = measures["time per chunk"]
    assert (chunks["off"], chunks["verdict"]) == (None, "too little traffic"), "there are no streams"
    for name in MEASURES:
        assert measures[name]["off"] > 0
        assert measures[name]["difference"]["low"] <= measures[name]["difference"]["high"]
        assert measures[name]["verdict"] in {"higher", "lower", "not found", "follows the time of requests"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_with_recording_on(recorded: Recorded, number: signal.Signals) -> None:
    log, config = get_logger("app"), recorded.config
    with comparing(config, "--slice", "60s", "--for", "15m", *OFF_FIRST) as process:
        wait_until(lambda: not log.warning("w"), "a slice without recording")
        process.send_signal(number)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "The comparison is incomplete: a signal has ended it early." in out
    assert log.warning("w")
    assert in_force(config) == set()
    wait_until(lambda: len(changes(config)) == 2, "its end to be on record")


@pytest.mark.servers
def test_a_command_that_is_killed_leaves_nothing_off_and_another_one_can_begin(recorded: Recorded) -> None:
    log, config = get_logger("app"), recorded.config
    with comparing(config, "--slice", "60s", "--for", "15m", *OFF_FIRST) as process:
        wait_until(lambda: not log.warning("w"), "a slice without recording")
        process.kill()
        process.wait()
    wait_until(lambda: log.warning("w"), "recording to be on again by itself", 50)
    assert in_force(config) == {"comparison"}, "its time is not over"
    with comparing(config, *SHORT) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "There was too little traffic" in out
    assert in_force(config) == set()
    nothing = {"requests_on": 0, "requests_off": 0}
    wait_until(lambda: len(changes(config)) == 4, "all of it to be on record")
    assert changes(config) == [(None, "under way"), (nothing, None)] * 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reset"], "`inference-logging ctl reset`, or its time, has ended the comparison"),
        (["disable"], "`inference-logging ctl disable` has switched recording off"),
    ],
)
def test_another_command_that_comes_in_between_ends_it(recorded: Recorded, arguments: list[str], sentence: str) -> None:
    with comparing(recorded.config, "--slice", "2s", "--json") as process:
        wait_until(lambda: "comparison" in in_force(recorded.config), "the comparison")
        ctl(recorded.config, *arguments)
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert json.loads(out)["ended"] == sentence
    assert "comparison" not in in_force(recorded.config)


@pytest.mark.servers
def test_it_is_refused_while_nothing_is_recorded_and_while_another_one_is_under_way(recorded: Recorded) -> None:
    config = recorded.config
    place = f"inference-logging: queue_directory={config.resolved_queue_directory}"
    with comparing(config, "--slice", "2s") as process:
        wait_until(lambda: "comparison" in in_force(config), "the comparison")
        with pytest.raises(OSError, match="another comparison is under way there"):
            Comparison(config.resolved_queue_directory, 10.0)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    ctl(config, "disable")
    with comparing(config) as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert out.startswith(f"{place}: nothing is recorded until 20")
    assert out.endswith("`inference-logging ctl enable` ends that\n")
    ctl(config, "enable")
    assert get_logger("app").warning("w")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--for", "soon"], "Invalid value for '--for': 'soon': must be a time such as 90s"),
        (["--for", "11s"], "'--for': '11s': must be from 12s, for 12 slices, to control_limit_s=900"),
        (["--for", "16m"], "'--for': '16m': must be from 12s, for 12 slices, to control_limit_s=900"),
        (["--slice", "0.1s"], "'--slice': '0.1s': must be from 0.2s to 300s"),
        (["--slice", "1"], "'--slice': '1': must be a time such as 90s"),
        (["--seed", "x"], "'--seed': 'x' is not a valid integer"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(recorded: Recorded, arguments: list[str], sentence: str) -> None:
    done = ab(recorded.config, *arguments)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert in_force(recorded.config) == set()


def test_a_directory_without_a_server_is_refused(tmp_path: Path, configure: Configure) -> None:
    done = run("ab", "--queue-directory", str(tmp_path / "none"))
    assert done.code == 2
    assert f"queue_directory={tmp_path / 'none'}: does not exist" in done.err
    assert not (tmp_path / "none").exists()
    config = configure()
    Logger(config).close()
    done = ab(config)
    assert (done.code, done.out) == (2, "")
    assert f"queue_directory={config.resolved_queue_directory}: no server uses it" in done.err
    assert in_force(config) == set()


def test_in_another_folder_it_leaves_a_server_with_the_same_default_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(directory=tmp_path / "a" / "logs")
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "b")
    with Logger(config):
        done = run("ab")
    shutil.rmtree(config.resolved_queue_directory)
    assert (done.code, "does not exist" in done.err) == (2, True), done
    assert str(config.resolved_queue_directory) not in done.err


def test_the_examples_are_right_command_lines() -> None:
    _, _, lines = (command.epilog or "").partition("Examples:\n")
    for line in lines.splitlines():
        program, name, *arguments = shlex.split(line)
        assert (program, name) == ("inference-logging", "ab")
        assert isinstance(command.make_context(name, arguments), click.Context)


def test_an_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    source = random.Random(7)
    held = [bootstrap([source.gauss(10, 1) for _ in range(40)]).holds(10) for _ in range(60)]
    assert held.count(True) >= 50


def test_a_ratio_by_turns_finds_a_factor_below_a_drift_that_is_larger() -> None:
    source = random.Random(7)
    drift = [1 + turn / 20 for turn in range(60)]
    off = [100 * one * source.gauss(1, 0.01) for one in drift]
    on = [105 * one * source.gauss(1, 0.01) for one in drift]
    found = ratio(on, off)
    assert found.holds(1.05)
    assert found.half < 0.01
    assert not found.holds(1.0)


def test_what_got_in_between_at_either_end_is_left_out() -> None:
    assert trimmed_mean([1.0] * 18 + [1000.0, -1000.0]) == 1.0


def test_groups_that_differ_widen_the_interval() -> None:
    alike, apart = ([[mean + turn / 100 for turn in range(20)] for mean in means] for means in ((5, 5, 5), (4, 5, 6)))
    assert of_groups(alike).value == of_groups(apart).value == pytest.approx(5.095)
    assert of_groups(apart).half > 5 * of_groups(alike).half


@pytest.mark.parametrize(("numerators", "denominators"), [([1.0], [0.0]), ([1.0, 2.0], [1.0])])
def test_values_without_a_ratio_are_refused(numerators: list[float], denominators: list[float]) -> None:
    with pytest.raises(ValueError, match=r"above 0|shorter"):
        ratio(numerators, denominators)


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        bootstrap([])


def test_the_same_values_have_the_same_interval() -> None:
    values = [1.0, 2.0, 5.0, 3.0]
    assert bootstrap(values) == bootstrap(values)
    assert Interval(1.0, 0.5, 2.0).as_json() == {"value": 1.0, "low": 0.5, "high": 2.0}
