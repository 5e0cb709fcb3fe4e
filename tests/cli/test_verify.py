"""`verify` on what loggers really wrote: its answer, its words, its exit code; with Python and without."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from inference_logging import Config, Logger, get_logger
from inference_logging.cli.main import COMMANDS
from inference_logging.cli.verify import command
from tests.kit.child import in_child, produce
from tests.kit.command_line import Done, run
from tests.kit.signatures import Configure
from tests.kit.support import wait_until

pytestmark = pytest.mark.usefixtures("program")


def log(config: Config, count: int) -> None:
    """Write `count` records in many batches, as one process after the other would."""
    with Logger(config) as logger:
        for number in range(count):
            assert get_logger("t").info("n", n=number)
            if number % 10 == 9:
                assert logger.flush()


def verify(config: Config, *more: str) -> Done:
    return run("verify", str(config.directory), "--queue-directory", str(config.resolved_queue_directory), *more)


def found(config: Config, *more: str) -> dict[str, Any]:
    report = json.loads(verify(config, "--json", *more).out)
    assert isinstance(report, dict)
    return report


def segments(config: Config) -> list[Path]:
    return sorted(path for path in config.directory.glob("*.jsonl") if not path.is_symlink())


@pytest.fixture
def config(configure: Configure) -> Config:
    return configure(rotate_bytes=65536)


def test_what_a_logger_wrote_balances_and_the_exit_code_says_so(config: Config) -> None:
    log(config, 1000)
    log(config, 5)
    done = verify(config)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("BALANCED: every record of 2 processes is accounted for.\n")
    assert "accepted  1,005" in done.out
    assert found(config)["totals"]["written"] == 1005


def test_while_servers_run_their_queues_are_part_of_the_books(config: Config) -> None:
    with Logger(config) as logger:
        for number in range(100):
            assert get_logger("t").info("n", n=number)
        report = found(config)
        assert report["problems"] == []
        assert report["totals"]["accepted"] == 100
        assert logger.flush()
        report = found(config)
        assert (report["totals"]["written"], report["processes"][0]["state"]) == (100, "alive")


def test_a_killed_process_is_known_from_its_queue_and_balances_when_the_next_one_has_written_it(config: Config) -> None:
    produce(config.model_copy(update={"listener": "external"}), 0, 50)
    config.directory.mkdir(exist_ok=True)
    report = found(config)
    assert (report["problems"], report["totals"]["in_queue"]) == ([], 50)
    assert report["processes"][0]["state"] == "waiting_for_a_listener"
    log(config, 1)
    report = found(config)
    assert (report["problems"], report["totals"]["written"]) == ([], 51)
    assert [one["state"] for one in report["processes"]] == ["died", "closed"]


def test_what_went_with_a_queue_directory_and_its_process_is_unknown_and_at_most_what_a_queue_holds(
    config: Config,
) -> None:
    reading, writing = os.pipe()

    def write_and_wait() -> None:
        logger = Logger(config)
        assert get_logger("gone").warning("written")
        assert logger.flush()
        assert get_logger("gone").warning("lost")
        os.write(writing, b"x")
        signal.pause()

    child = in_child(write_and_wait)
    os.read(reading, 1)
    shutil.rmtree(config.resolved_queue_directory)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    done = run("verify", str(config.directory), "--json")
    [problem] = json.loads(done.out)["problems"]
    assert (done.code, problem["kind"]) == (1, "end_unknown")
    most = max(Config().queue_bytes, Config().audit_queue_bytes) // 24
    assert f"after sequence 0 is not known, at most {most} records" in problem["text"]


def test_before_any_listener_the_queues_alone_are_the_books(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(config.directory))
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(config.resolved_queue_directory))
    done = run("verify")
    assert (done.code, "no such directory" in done.err) == (2, True)
    produce(config.model_copy(update={"listener": "external"}), 0, 50)
    assert not config.directory.exists()
    done = run("verify")
    assert (done.code, done.err) == (0, "")
    assert "50 records and 0 requests in flight of processes that have ended wait for a listener" in done.out
    assert run("verify", str(config.directory)).code == 2, "what is named must be there"


def test_while_retention_removes_segments_the_books_balance_at_every_moment(config: Config) -> None:
    limited = config.model_copy(update={"quota_bytes": 1 << 18, "flush_interval_s": 0.05, "compress": "zstd"})
    removed: set[int] = set()
    with Logger(limited) as logger:
        log = get_logger("t")
        wait_until(logger.flush, "the first segment")

        def has_removed_often() -> bool:
            for number in range(500):
                log.info("n", n=number, text="x" * 100)
            report = found(limited)
            assert report["problems"] == []
            removed.add(report["totals"]["removed"])
            return len(removed) > 4

        wait_until(has_removed_often, "several removals")
    assert found(limited)["problems"] == []


def test_what_was_left_at_a_shutdown_is_in_the_queue_and_not_refused(config: Config) -> None:
    with Logger(config.model_copy(update={"listener": "external", "drain_deadline_s": 0.0})):
        assert all(get_logger("t").info("n", n=number) for number in range(30))
    config.directory.mkdir()
    done = verify(config)
    assert done.code == 0
    assert "+ in queue  30" in done.out
    assert "Refused, and so never accepted: none." in done.out
    assert "Left in queues at a shutdown (shutdown_deadline), if no listener has come since: 30." in done.out


def test_a_queue_that_cannot_be_read_is_a_problem_whatever_else_balances(config: Config) -> None:
    log(config, 10)
    foreign = config.resolved_queue_directory / "foreign.queue"
    foreign.write_bytes(b"noise" * 50_000)
    done = verify(config)
    assert done.code == 1
    assert "QUEUE UNREADABLE" in done.out
    assert f"where: {foreign}\n" in done.out


def test_where_there_is_nothing_nothing_is_proven(config: Config, tmp_path: Path) -> None:
    (tmp_path / "another").mkdir()
    done = run("verify", str(tmp_path / "another"))
    assert done.code == 2
    assert f"no segments in {tmp_path / 'another'}, and no queues" in done.err


def test_a_removed_line_and_a_removed_segment_are_named_with_process_time_and_place(config: Config) -> None:
    log(config, 2000)
    first, second, third, *_ = segments(config)
    lines = first.read_text().splitlines(keepends=True)
    gone = json.loads(lines.pop(4))
    first.write_text("".join(lines))
    inside = [json.loads(line) for line in second.read_text().splitlines() if '"seq":' in line]
    second.unlink()
    done = verify(config)
    assert done.code == 1
    assert done.out.startswith("NOT BALANCED: 3 problems.\n")
    assert f"MISSING: process {gone['boot_id']} (pid {os.getpid()}), seq {gone['seq']}\n" in done.out
    assert f"where: before line 5 of {first}\n" in done.out
    assert f"seq {inside[0]['seq']} to {inside[-1]['seq']} ({len(inside):,} records)" in done.out
    after = json.loads(third.read_text().splitlines()[1])["timestamp"]
    assert f"before {after}" in done.out
    assert "a whole segment is missing" in done.out
    assert "FOOTER DISAGREES" in done.out


def test_a_sealed_segment_that_has_lost_its_footer_is_a_problem(config: Config) -> None:
    log(config, 1000)
    first, *_ = segments(config)
    first.write_text("".join(first.read_text().splitlines(keepends=True)[:-1]))
    assert [(one["kind"], one["segment"]) for one in found(config)["problems"]] == [("footer_missing", str(first))]
    assert verify(config).code == 1


def test_an_altered_value_is_found_by_the_checksum(config: Config) -> None:
    log(config, 20)
    (segment,) = segments(config)
    segment.write_text(segment.read_text().replace('"n":7}', '"n":8}'))
    report = found(config)
    assert [problem["kind"] for problem in report["problems"]] == ["footer_disagrees"]
    assert "altered" in report["problems"][0]["text"]


def test_the_audit_lane_is_verified_with_its_chain_and_its_key(configure: Configure, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0f" * 32)
    config = configure(audit="on", audit_chain_key_file=key)
    with Logger(config) as logger:
        step = logger.event("step", ["n"], lane="audit")
        assert all(step(number) for number in range(20))
        assert logger.flush()
    report = found(config, "--chain-key-file", str(key))
    assert report["problems"] == []
    (segment,) = (config.directory / "audit").glob("*.jsonl")
    last = {"segment": str(segment), "value": json.loads(segment.read_text().splitlines()[-1])["chain"]}
    assert report["chain"] == {"segments": 1, "algorithm": "blake3", "keyed": True, "checked": True, "last": [last]}
    assert f"Last value, of {segment}: {last['value']}\n" in verify(config, "--chain-key-file", str(key)).out
    assert [problem["kind"] for problem in found(config)["problems"]] == ["chain_unchecked"]
    segment.write_text(segment.read_text().replace('"n":7,', '"n":8,'))
    problems = found(config, "--chain-key-file", str(key))["problems"]
    assert {problem["kind"] for problem in problems} == {"chain_broken", "footer_disagrees"}
    assert [problem["first"] for problem in problems if problem["kind"] == "chain_broken"] == [7]


def test_a_service_is_verified_with_its_audit_lane_wherever_that_is(
    configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    config = configure(audit="on", audit_directory=elsewhere)
    for name in ("directory", "queue_directory", "audit_directory"):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(getattr(config, name)))
    with Logger(config) as logger:
        assert logger.event("step", ["n"], lane="audit")(1)
        assert logger.flush()
        for arguments in ((), ("--prefix", config.service_name)):
            report = json.loads(run("verify", "--json", *arguments).out)
            assert (report["problems"], report["totals"]["written"], report["segments"]["files"]) == ([], 1, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "nowhere: no such directory"),
        ((".", "--queue-directory", "nowhere"), "nowhere: no such directory"),
        ((".", "--chain-key-file", "nowhere"), "chain_key_file=nowhere: No such file"),
        ((".", "--color"), "No such option"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    done = run("verify", *arguments)
    assert done.code == 2
    assert said in done.err


def test_a_key_that_is_none_is_exit_code_2_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not the key")
    done = run("verify", str(tmp_path), "--chain-key-file", str(tmp_path / "key"))
    assert (done.code, "64 lowercase hexadecimal digits" in done.err) == (2, True)
    assert "not the key" not in done.err


def test_the_examples_run_where_a_server_has_written(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    log(config, 3)
    _, _, lines = (command.epilog or "").partition("Examples:\n")
    examples = [*(line.strip() for line in lines.splitlines()), COMMANDS["verify"].example]
    # Those with a bucket are run by tests/ship.
    examples = [example for example in examples if "s3://" not in example]
    assert len(examples) == 4
    (config.directory.parent / "logs").symlink_to(config.directory)
    (config.directory.parent / "logs-fallback").mkdir()
    monkeypatch.chdir(config.directory.parent)
    monkeypatch.setenv("INFERENCE_LOGGING_DIRECTORY", str(config.directory))
    monkeypatch.setenv("INFERENCE_LOGGING_QUEUE_DIRECTORY", str(config.resolved_queue_directory))
    for example in examples:
        words = shlex.split(example.partition("|")[0].replace("/dev/shm/inference_logging-0-chat", "."))
        assert run(*words[1:]).code == 0, example
