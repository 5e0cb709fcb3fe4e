"""`listen`: the listener as its own process, beside processes that only produce; with Python and without."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from inference_logging import Config, Logger, get_logger
from inference_logging.record.health import Watch
from tests.kit.child import in_child, numbers, produce
from tests.kit.command_line import run
from tests.kit.servers import Load, assert_each_answer_is_recorded, assert_footers_balance, uvicorn
from tests.kit.sidecars import Sidecar, environment, queue_files, served_port
from tests.kit.signatures import Configure
from tests.kit.support import read_lines, read_records, remove_directory, stopped, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("listener_command")]


@pytest.fixture
def config(configure: Configure) -> Config:
    """Return the configuration of processes that only produce."""
    return configure(listener="external", flush_interval_s=0.05)


def wait_for_numbers(config: Config, wanted: list[int]) -> None:
    wait_until(lambda: len(numbers(config)) >= len(wanted), f"{len(wanted)} records")
    assert numbers(config) == wanted


def test_it_writes_what_a_server_produces_and_ends_with_nothing_left(config: Config) -> None:
    with Sidecar(config) as sidecar:
        sidecar.wait_for("leader queues=0")
        with Logger(config) as logger:
            assert all(get_logger("t").warning("n", n=n) for n in range(500))
            assert logger.flush(60)
            assert logger.stats()["listener"]["leader"] == "elsewhere"
            assert numbers(config) == list(range(500))
            sidecar.wait_for("leader queues=1 in_queue=0 written=500 dropped=0")
        assert sidecar.stop() == 0
        assert sidecar.lines[-1].startswith("inference-logging listen: ended queues=0 in_queue=0 written=500 dropped=0")
    assert queue_files(config) == []
    footer = read_lines(config.directory)[-1]
    assert (footer["event_name"], footer["records"]) == ("segment.footer", 500 + 1), "and the end of the process"


def test_it_may_start_before_its_directory_exists_or_after_the_server(config: Config) -> None:
    assert not config.resolved_queue_directory.exists()
    with Sidecar(config) as sidecar:
        sidecar.wait_for("leader queues=0")
        produce(config, 0, 100)
        wait_for_numbers(config, list(range(100)))
        assert sidecar.stop() == 0
    produce(config, 100, 100)
    assert len(queue_files(config)) == 1
    with Sidecar(config) as sidecar:
        wait_for_numbers(config, list(range(200)))
        assert sidecar.stop() == 0


def test_a_server_that_is_killed_and_started_again_under_it_loses_nothing(config: Config) -> None:
    with Sidecar(config) as sidecar:
        for life in range(5):
            produce(config, life * 50, 50)
        wait_for_numbers(config, list(range(250)))
        wait_until(lambda: len(queue_files(config)) == 1, "the queues of the dead to be removed")
        assert sidecar.stop() == 0


def test_it_goes_on_in_a_new_directory_when_somebody_deletes_its_own(config: Config) -> None:
    with Sidecar(config) as sidecar:
        produce(config, 0, 100)
        wait_for_numbers(config, list(range(100)))
        remove_directory(config.resolved_queue_directory)
        produce(config, 100, 100)
        wait_for_numbers(config, list(range(200)))
        sidecar.wait_for("leader queues=0")
        assert sidecar.stop() == 0
    assert queue_files(config) == []


def test_a_server_that_goes_on_while_its_queue_directory_is_deleted_loses_nothing_and_its_health_says_so(
    config: Config,
) -> None:
    with Sidecar(config) as sidecar, Logger(config) as logger:
        watch, log, accepted = Watch(config, logger.service), get_logger("t"), 0
        for _ in range(3):
            renewals = logger.service.listener_stats()["queue_renewals"]
            remove_directory(config.resolved_queue_directory)
            while logger.service.listener_stats()["queue_renewals"] == renewals:
                accepted += log.warning("n", n=accepted)
                time.sleep(0.001)
            assert all(log.warning("n", n=accepted + n) for n in range(100))
            accepted += 100
            sidecar.wait_for("leader queues=1")
        assert ("queue_replaced", "pressured") in watch.look().reached
        assert logger.flush(60)
        wait_for_numbers(config, list(range(accepted)))
        assert logger.close()
        assert sidecar.stop() == 0
    report = run("verify", str(config.directory), "--json")
    assert report.code == 0, report.out


def test_a_server_whose_queue_directory_cannot_be_made_anew_is_not_ready(config: Config) -> None:
    with Logger(config) as logger:
        watch, queues = Watch(config, logger.service), config.resolved_queue_directory

        def is_in_the_way() -> bool:
            with contextlib.suppress(OSError):  # the server may be quicker, with either
                shutil.rmtree(queues)
                queues.touch(exist_ok=False)
            return queues.is_file()

        wait_until(is_in_the_way, "a file in the place of the directory")
        assert not watch.look().ready
        assert ("queue_missing", "degraded") in watch.look().reached
        queues.unlink()
        wait_until(lambda: watch.look().ready, "another queue")


def test_its_endpoint_serves_metrics_and_health_of_all_processes(config: Config) -> None:
    with Sidecar(config, "--metrics-port", "0", "--metrics-address", "127.0.0.1") as sidecar:
        port = wait_until(lambda: served_port(sidecar.lines), "the port")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            assert client.get("/health").json()["status"] == "ok"
            assert client.get("/live").status_code == client.head("/producers").status_code == 200
            assert client.get("/elsewhere").status_code == 404
            assert client.post("/metrics").status_code == 405
            produce(config, 0, 10)
            wait_for_numbers(config, list(range(10)))
            wait_until(lambda: "producer_deaths_total 1.0" in client.get("/metrics").text, "the death to be counted")
            assert "inference_logging_records_accepted_total 10.0" in client.get("/metrics").text
            assert client.get("/producers").json() == {"status": "ok", "dead_producers": []}, "it had no name"
            openmetrics = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
            assert openmetrics.text.endswith("# EOF\n")
        assert sidecar.stop() == 0


def test_connections_that_send_nothing_cost_its_endpoint_a_bounded_number_of_threads(config: Config) -> None:
    with Sidecar(config, "--metrics-port", "0", "--metrics-address", "127.0.0.1") as sidecar, ExitStack() as stack:
        port = wait_until(lambda: served_port(sidecar.lines), "the port")
        tasks = Path(f"/proc/{sidecar.process.pid}/task")
        before = len(list(tasks.iterdir()))
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=120))
        # Connections are taken in their order, so all of those before this one have been.
        assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=120).status_code == 200
        assert len(list(tasks.iterdir())) <= before + 33


@pytest.mark.parametrize("name", ["engine", "a/b c", "é" * 60])
def test_the_death_of_a_process_that_has_a_name_is_reported_until_one_of_that_name_is_back(
    config: Config, name: str
) -> None:
    kept = name.encode()[:64].decode(errors="ignore")

    def child() -> None:
        Logger(config).service.set_producer_name(name)
        os.kill(os.getpid(), signal.SIGKILL)

    with Sidecar(config, "--metrics-port", "0", "--metrics-address", "127.0.0.1") as sidecar:
        port = wait_until(lambda: served_port(sidecar.lines), "the port")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
            os.waitpid(in_child(child), 0)
            wait_until(lambda: client.get("/producers").status_code == 503, "the death to be reported")
            assert client.get("/producers").json()["dead_producers"] == [kept]
            dead = f'inference_logging_producer_dead{{producer="{kept}"}} 1.0'
            wait_until(lambda: dead in client.get("/metrics").text, "the metrics to say it")
            (ended,) = read_records(config.directory, "process.ended")
            assert (ended["how"], ended["accepted"], ended["producer_name"]) == ("died", 0, kept)
            with Logger(config) as logger:
                logger.service.set_producer_name(name)
                wait_until(lambda: client.get("/producers").status_code == 200, "the next look")
            assert client.get("/producers").status_code == 200, "it has ended in good order"
        assert sidecar.stop() == 0


def test_a_port_that_is_taken_is_reported_by_its_name(config: Config, listener_command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*listener_command, "listen", "--metrics-port", str(port), "--metrics-address", "127.0.0.1"]
        done = subprocess.run(command, env=environment(config), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"inference-logging: metrics_port={port}: Address already in use\n"


@pytest.mark.parametrize("arguments", [["--status-interval-s", "-1"], ["--config", "nowhere.yaml"]])
def test_a_wrong_command_line_or_configuration_is_exit_code_2(
    arguments: list[str], listener_command: tuple[str, ...]
) -> None:
    assert subprocess.run([*listener_command, "listen", *arguments], capture_output=True, check=False).returncode == 2


def test_signals_ask_for_a_status_line_and_do_not_end_it(config: Config) -> None:
    with Sidecar(config, "--status-interval-s", "0") as sidecar:
        wait_until(lambda: any(" leader " in line for line in sidecar.lines), "it to lead")
        for asking in (signal.SIGUSR1, signal.SIGHUP):
            sidecar.signal(asking)
            sidecar.wait_for("leader queues=0 in_queue=0 written=0 dropped=0")
        sidecar.signal(signal.SIGINT)
        assert sidecar.ended() == 0


def test_asked_to_end_it_goes_on_for_a_server_that_still_produces_and_ends_after_it(configure: Configure) -> None:
    config = configure(listener="external", drain_deadline_s=300)
    with Sidecar(config) as sidecar:
        with Logger(config.model_copy(update={"drain_deadline_s": 5})) as logger:
            sidecar.wait_for("leader queues=1")
            sidecar.signal(signal.SIGTERM)
            sidecar.wait_for("draining queues=1")
            assert all(get_logger("t").warning("n", n=n) for n in range(100))
            assert logger.flush(60)
            assert numbers(config) == list(range(100))
            assert sidecar.process.poll() is None
        assert sidecar.ended() == 0


def test_a_second_signal_ends_it_at_once(configure: Configure) -> None:
    config = configure(listener="external", drain_deadline_s=600)
    with Sidecar(config) as sidecar, Logger(config):
        sidecar.wait_for("leader queues=1")
        sidecar.signal(signal.SIGTERM)
        sidecar.wait_for("draining")
        assert sidecar.stop() == 0


def test_what_cannot_be_written_until_the_deadline_is_exit_code_1_and_left_for_the_next_one(
    configure: Configure,
) -> None:
    config = configure(listener="external", drain_deadline_s=0.5)
    with Sidecar(config) as sidecar:
        sidecar.wait_for("leader")
        config.directory.rmdir()
        config.directory.write_bytes(b"in the way")
        produce(config, 0, 100)
        sidecar.wait_for("in_queue=100 .* sink.file=failing")
        assert sidecar.stop() == 1
        assert sidecar.lines[-1].endswith("left=100\n")
    config.directory.unlink()
    with Sidecar(config) as sidecar:
        wait_for_numbers(config, list(range(100)))
        assert sidecar.stop() == 0


def test_of_two_the_waiting_one_ends_at_once_and_the_leading_one_is_followed_when_it_is_killed(
    configure: Configure,
) -> None:
    config = configure(listener="external", drain_deadline_s=600)
    with Logger(config), Sidecar(config) as first:
        first.wait_for("leader queues=1")
        with Sidecar(config) as second:
            second.wait_for("waiting queues=1")
            assert second.stop() == 0
        with Sidecar(config) as third:
            third.wait_for("waiting queues=1")
            first.kill()
            third.wait_for("leader queues=")


def test_where_no_server_produces_a_leader_that_is_asked_to_end_makes_room_for_the_next_at_once(
    configure: Configure,
) -> None:
    config = configure(listener="external", drain_deadline_s=600)
    with Sidecar(config) as first:
        first.wait_for("leader queues=0")
        with Sidecar(config) as second:
            second.wait_for("waiting queues=0")
            assert first.stop() == 0
            second.wait_for("leader queues=0")
            assert second.stop() == 0


def test_leaders_killed_one_after_another_lose_and_double_nothing(configure: Configure) -> None:
    # Each writes all the time, so some die between writing a batch and taking it out of the queue.
    config = configure(listener="external", flush_records=1, flush_interval_s=0.01)
    wanted, asked = os.pipe()
    done, report = os.pipe()

    def child() -> None:
        os.close(asked)
        log, number = get_logger("t"), 0
        with Logger(config):
            while os.read(wanted, 1):
                for _ in range(300):
                    while not log.warning("n", n=number):
                        time.sleep(0.001)  # until the listener has made room
                    number += 1
                os.write(report, b"x")

    pid = in_child(child)
    os.close(wanted)
    leaders = [Sidecar(config), Sidecar(config)]
    try:
        for _ in range(6):
            leader = next(iter(wait_until(lambda: [own for own in leaders if is_leading(own)], "a leader")))
            os.write(asked, b"x")
            leader.kill()
            leaders.remove(leader)
            leaders.append(Sidecar(config))
            assert os.read(done, 1) == b"x"
        os.close(asked)
        assert os.waitpid(pid, 0)[1] == 0
        wait_for_numbers(config, list(range(1800)))
    finally:
        for leader in leaders:
            leader.kill()
    records = read_records(config.directory, "log")
    assert sorted(record["seq"] for record in records) == list(range(1800))


def is_leading(sidecar: Sidecar) -> bool:
    return any(" leader " in line for line in sidecar.lines[-1:])


def test_health_says_that_nobody_listens_and_that_a_listener_hangs(configure: Configure) -> None:
    config = configure(listener="external", stuck_after_s=1, flush_interval_s=0.05)
    with Logger(config) as logger:
        watch = Watch(config, logger.service)
        health = watch.look()
        assert (health.state, health.ready) == ("pressured", True)
        assert [reason.kind for reason in health.reasons] == ["no_listener"]
        with Sidecar(config) as sidecar:
            wait_until(lambda: watch.look().state == "ok", "a listener")
            with stopped(sidecar.process.pid):
                assert get_logger("t").warning("n", n=0)
                health = wait_until(
                    lambda: found if (found := watch.look()).state == "stuck" else None, "a listener that hangs"
                )
                # To restart this process would not repair the other one.
                assert (health.ready, health.alive) == (False, True)
                assert health.reasons[0].text.startswith("the listener (elsewhere) makes no rounds for ")
            wait_until(lambda: watch.look().state == "ok", "the listener to go on")
            wait_for_numbers(config, [0])
            sidecar.kill()
            assert [reason.kind for reason in watch.look().reasons] == ["no_listener"]


def test_nobody_who_reads_its_status_lines_holds_it_up(config: Config, listener_command: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"full\n" * 1000)
    os.set_blocking(writing, True)
    command = [*listener_command, "listen", "--status-interval-s", "0.01"]
    with subprocess.Popen(command, env=environment(config), stderr=writing) as process:
        try:
            os.close(writing)
            produce(config, 0, 100)
            wait_for_numbers(config, list(range(100)))
            for _ in range(3):
                process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(reading)


def test_a_server_without_lifespan_loses_nothing_it_answered(config: Config) -> None:
    with Sidecar(config) as sidecar:
        with uvicorn(config, "--lifespan", "off", "--workers", "2") as server:
            with Load(server, "/") as load:
                load.wait_for(200)
            server.stop()
        assert sidecar.stop() == 0
    assert_each_answer_is_recorded(config.directory, load)
    assert_footers_balance(config.directory)
    assert queue_files(config) == []


@pytest.mark.skipif(
    subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode != 0,
    reason="needs the right to make a pid namespace",
)
def test_as_first_process_of_a_pid_namespace_it_serves_a_process_of_another_one(config: Config) -> None:
    with Sidecar(config, before=("unshare", "--pid", "--fork", "--kill-child")) as sidecar:
        produce(config, 0, 100)
        wait_for_numbers(config, list(range(100)))
        pid = first_child(sidecar.process.pid)
        os.kill(pid, signal.SIGUSR1)
        sidecar.wait_for("leader queues=0")
        os.kill(pid, signal.SIGTERM)
        assert sidecar.ended() == 0


def first_child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_it_serves_the_audit_lane_too(configure: Configure) -> None:
    config = configure(listener="external", audit="on", audit_block_s=60)

    async def charge(logger: Logger, count: int) -> list[bool]:
        return [await logger.audit("charged", n=n) for n in range(count)]

    with Sidecar(config) as first, Logger(config) as logger:
        first.wait_for("leader,leader queues=2")
        assert all(asyncio.run(charge(logger, 20)))
        with Sidecar(config) as second:
            second.wait_for("waiting,waiting queues=2")
            first.kill()
            assert all(asyncio.run(charge(logger, 20)))
            logger.close()
            assert second.stop() == 0
    records = read_records(config.resolved_audit_directory, "charged")
    assert [record["n"] for record in records] == [*range(20), *range(20)]
    assert [record["seq"] for record in records] == list(range(40))
