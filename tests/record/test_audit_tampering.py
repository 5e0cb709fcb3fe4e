"""The audit lane over processes: what is done to its records shows, and what is killed or forked loses none."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from inference_logging import Config, Logger
from inference_logging._native import LineChain
from tests.kit.support import wait_until
from tests.record.audited import Acknowledged, Open, check, killed, problems, producer, read, verify

KEY: Final = "0f" * 32
CHAIN: Final = re.compile(rb',"chain":"[0-9a-f]{64}"}\n')
Change = Callable[[list[bytes]], object]


def write(logger: Logger, count: int = 60) -> None:
    """Make audit records of one process."""
    step = logger.event("step", ["n", "text"], lane="audit")
    for number in range(count):
        assert step(number, "x" * 100)
        if number % 10 == 9:
            assert logger.flush()
    logger.close()


@pytest.fixture(name="keyed", scope="module", params=[False, True], ids=["no key", "key"])
def _keyed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def written(at: Path, count: int, lives: int, **parameters: Any) -> Path:
    """Write the audit records of processes that live one after the other."""
    (at / "key").write_text(KEY)
    own = {"service_name": "t", "audit": "on", "directory": at / "logs", "queue_directory": at / "queues"}
    for _ in range(lives):
        write(Logger(Config(**own, **parameters)), count)
    return at


@pytest.fixture(name="original", scope="module")
def _original(keyed: bool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("original")
    return written(at, 60, 3, rotate_bytes=8192, **({"audit_chain_key_file": at / "key"} if keyed else {}))


@pytest.fixture(name="arguments")
def _arguments(keyed: bool, original: Path, tmp_path: Path) -> tuple[str, ...]:
    """Copy segments of three processes, one after the other; return what verify needs to prove them."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    arguments = ("--chain-key-file", str(tmp_path / "key")) if keyed else ()
    assert problems(tmp_path, *arguments) == []
    return arguments


def segments(directory: Path) -> list[Path]:
    """Return the segments in their order."""
    return sorted(directory.glob("logs/audit/t-audit-*.jsonl"))


def edit(path: Path, change: Change) -> None:
    """Change the lines of a segment."""
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))


def of_process(paths: list[Path], like: Path) -> list[Path]:
    """Return the segments that the same listener wrote."""
    return [path for path in paths if path.name.split("-")[-2] == like.name.split("-")[-2]]


def _alter(lines: list[bytes]) -> None:
    lines[5] = lines[5].replace(b'"n":', b'"n":1')


def _swap(lines: list[bytes]) -> None:
    lines[5], lines[6] = lines[6], lines[5]


@pytest.mark.parametrize(
    ("change", "broken_at", "kinds"),
    [
        (_alter, 6, {"footer_disagrees"}),
        (lambda lines: lines.pop(5), 6, {"footer_disagrees", "missing"}),
        (lambda lines: lines.insert(5, lines[3]), 6, {"footer_disagrees", "doubled"}),
        (_swap, 6, {"footer_disagrees"}),
        (lambda lines: lines.pop(0), None, {"header_missing", "chain_missing"}),
    ],
    ids=["altered", "removed", "doubled", "swapped", "no header"],
)
def test_what_was_done_to_a_line_is_named_with_its_place(
    arguments: tuple[str, ...], tmp_path: Path, change: Change, broken_at: int | None, kinds: set[str]
) -> None:
    path = segments(tmp_path)[1]
    edit(path, change)
    found = problems(tmp_path, *arguments)
    assert {problem["kind"] for problem in found} == kinds | {"chain_broken"}
    in_it = [problem for problem in found if problem["kind"] == "chain_broken" and problem.get("line") == broken_at]
    assert [Path(problem["segment"]).name for problem in in_it] == [(path if broken_at else segments(tmp_path)[2]).name]


def test_the_cut_end_of_a_segment_and_of_all_of_them_shows(arguments: tuple[str, ...], tmp_path: Path) -> None:
    paths = segments(tmp_path)
    content = paths[1].read_bytes()
    edit(paths[1], lambda lines: lines.pop())
    found = [problem["kind"] for problem in problems(tmp_path, *arguments)]
    assert found == ["footer_missing", "chain_broken"], "only its footer"
    paths[1].write_bytes(content)
    edit(paths[-1], lambda lines: lines.__delitem__(slice(-3, None)))
    assert [problem["kind"] for problem in problems(tmp_path, *arguments)] == ["end_unknown"]


@pytest.mark.parametrize("which", ["first", "second", "first process", "second process"])
def test_a_removed_segment_shows_at_the_beginning_too(arguments: tuple[str, ...], tmp_path: Path, which: str) -> None:
    paths = segments(tmp_path)
    second = next(path for path in paths if path not in of_process(paths, paths[0]))
    gone = {"first": paths[:1], "second": paths[1:2], "first process": of_process(paths, paths[0])}
    for path in (gone | {"second process": of_process(paths, second)})[which]:
        path.unlink()
    kinds = {problem["kind"] for problem in problems(tmp_path, *arguments)}
    assert kinds == ({"chain_broken"} if which.endswith("process") else {"chain_broken", "missing"})


def forge(paths: list[Path], last: bytes | None, *, chained: bool) -> None:
    """Alter a record as one would who knows the format, and has no key: chain and footers computed anew."""
    chain = LineChain("blake3", None, last)
    previous = last[-66:-2] if last is not None else b"0" * 64
    for path in paths:
        checksum, size, lines = 0, 0, []
        for line in path.read_bytes().splitlines(keepends=True):
            body = CHAIN.sub(b"}", line)
            if b'"segment.header"' in body:
                how = b',"chain_algorithm":"blake3","chain_keyed":false,"chain_previous":"%s"}' % previous
                body = re.sub(rb',"chain_algorithm".*}', how if chained else b"}", body)
            body = body.replace(b'"n":1,', b'"n":7,')
            body = re.sub(rb'"bytes":\d+,"crc32":"\w+"', b'"bytes":%d,"crc32":"%08x"' % (size, checksum), body)
            new = body + b"\n"
            if chained:
                new = bytes(chain.next(body)) + b"\n"
                chain.keep()
            if b'"segment.header"' not in body:
                checksum, size = zlib.crc32(new, checksum), size + len(new)
            lines.append(new)
        path.write_bytes(b"".join(lines))
        previous = lines[-1][-67:-3]


@pytest.mark.parametrize("chained", [True, False], ids=["chained", "no chain"])
@pytest.mark.parametrize("part", ["all", "last process"])
def test_with_the_key_nothing_can_be_forged_without_it(
    arguments: tuple[str, ...], keyed: bool, tmp_path: Path, chained: bool, part: str
) -> None:
    paths = segments(tmp_path)
    forged = paths if part == "all" else of_process(paths, paths[-1])
    before = paths[: -len(forged)]
    forge(forged, before[-1].read_bytes().splitlines()[-1] if before else None, chained=chained)
    kinds = {problem["kind"] for problem in problems(tmp_path, *arguments)}
    if keyed:
        assert "chain_without_key" in kinds
    else:
        # Without a key anybody can compute a chain; it shows only where one that was there is not any more.
        assert kinds == (set() if chained or not before else {"chain_missing"})


@pytest.mark.parametrize("keyed", [True], indirect=True)
def test_a_segment_slipped_in_behind_the_last_line_but_before_the_last_name_shows(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    paths = segments(tmp_path)
    first, last = paths[-2], paths[-1]
    slipped = first.with_name(first.name.replace("-000", "-100"))
    slipped.write_bytes(first.read_bytes())
    forge([slipped], last.read_bytes().splitlines()[-1], chained=True)
    assert first < slipped < last
    assert "chain_broken" in {problem["kind"] for problem in problems(tmp_path, *arguments)}


def test_a_chain_goes_on_in_the_directory_that_was_configured_next(open_: Open, tmp_path: Path) -> None:
    write(open_(rotate_bytes=8192))
    old = tmp_path / "logs" / "old"
    old.mkdir()
    for path in segments(tmp_path)[:2]:
        path.rename(old / path.name)
    assert "chain_broken" in {problem["kind"] for problem in problems(tmp_path)}
    assert problems(tmp_path, str(old)) == []


def _in_database(directory: Path, statement: str) -> None:
    with closing(sqlite3.connect(directory / "logs/audit/t-audit.sqlite")) as connection, connection:
        connection.execute(statement)


@pytest.fixture(name="database")
def _database(tmp_path: Path) -> tuple[str, str]:
    written(tmp_path, 20, 2, audit_sink="sqlite", audit_chain_key_file=tmp_path / "key")
    arguments = ("--chain-key-file", str(tmp_path / "key"))
    assert problems(tmp_path, *arguments) == []
    return arguments


@pytest.mark.parametrize(
    ("statement", "kinds"),
    [
        ("""UPDATE records SET line = replace(line, '"n":9,', '"n":8,') WHERE rowid = 10""", {"chain_broken"}),
        ("UPDATE records SET event_name = 'other' WHERE rowid = 10", {"segment_damaged"}),
        ("DELETE FROM records WHERE rowid = 10", {"chain_broken", "missing"}),
        ("DELETE FROM records WHERE rowid <= 21", {"chain_broken"}),
        ("DELETE FROM records WHERE rowid > 35", {"end_unknown"}),
        ("UPDATE records SET rowid = 100 - rowid", {"chain_broken"}),
        ("UPDATE records SET line = substr(line, 1, length(line) - 76) || '}'", {"chain_without_key"}),
    ],
    ids=["altered", "column", "removed", "beginning", "end", "turned round", "no chain"],
)
def test_what_was_done_to_a_database_shows(
    database: tuple[str, str], tmp_path: Path, statement: str, kinds: set[str]
) -> None:
    _in_database(tmp_path, statement)
    assert kinds <= {problem["kind"] for problem in problems(tmp_path, *database)}


def test_a_database_with_a_key_is_not_proven_without_it(database: tuple[str, str], tmp_path: Path) -> None:
    assert "chain_broken" in {problem["kind"] for problem in problems(tmp_path)}
    assert problems(tmp_path, *database) == []


def test_a_database_in_use_is_part_of_the_books(open_: Open, tmp_path: Path) -> None:
    logger = open_(audit_sink="sqlite", audit_commit_interval_s=60, audit_commit_records=1_000_000)
    step = logger.event("step", ["n"], lane="audit")
    assert all(step(number) for number in range(10))
    assert logger.flush()
    assert all(step(number) for number in range(5))
    assert problems(tmp_path) == []


@pytest.fixture(name="parameters")
def _parameters(tmp_path: Path) -> dict[str, Any]:
    directories = {"directory": str(tmp_path / "logs"), "queue_directory": str(tmp_path / "queues")}
    # Segments end every few commits, so that kills meet footers, headers and new names too.
    return {"service_name": "t", **directories, "audit": "on", "audit_block_s": 120, "rotate_bytes": 20_000}


def environment(parameters: dict[str, Any]) -> dict[str, str]:
    """Return the environment that gives another process these parameters."""
    return {**os.environ, **{f"INFERENCE_LOGGING_{name.upper()}": str(value) for name, value in parameters.items()}}


@contextmanager
def sidecar(parameters: dict[str, Any]) -> Iterator[subprocess.Popen[bytes]]:
    """Run `inference-logging listen` with the same configuration."""
    command = [sys.executable, "-m", "inference_logging.cli.main", "listen", "--status-interval-s", "0"]
    with subprocess.Popen(command, env=environment(parameters), stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def recover(parameters: dict[str, Any]) -> None:
    """Let another process's listener write what is left."""
    with Logger(Config(**{**parameters, "listener": "thread"})) as logger:
        queues = Path(parameters["queue_directory"]) / "audit"
        wait_until(lambda: len(list(queues.glob("*.queue"))) == 1, "only the recoverer's own queue is left")
        assert logger.flush(60.0)


@pytest.mark.servers
def test_what_a_killed_process_had_awaited_is_there_once_and_the_chain_goes_on(parameters: dict[str, Any]) -> None:
    acknowledged: Acknowledged = set()
    for count in (1, *random.Random(0).sample(range(2, 400), 4)):
        with producer(parameters) as process:
            acknowledged |= killed(process, count)
    recover(parameters)
    check(parameters, acknowledged)


@pytest.mark.servers
def test_sqlite_has_what_a_killed_process_had_awaited_once(parameters: dict[str, Any]) -> None:
    parameters["audit_sink"] = "sqlite"
    acknowledged: Acknowledged = set()
    for count in (10, 70, 200):
        with producer(parameters) as process:
            acknowledged |= killed(process, count)
    recover(parameters)
    check_database(parameters, acknowledged)


@pytest.mark.servers
def test_sqlite_has_what_a_killed_sidecar_committed_and_what_recover_finds(parameters: dict[str, Any]) -> None:
    parameters |= {"audit_sink": "sqlite", "listener": "external"}
    with sidecar(parameters) as listener, producer(parameters) as process:
        acknowledged = read(process, 200)
        listener.kill()
        listener.wait(60)
        process.kill()
        acknowledged |= read(process)
    assert list(Path(parameters["queue_directory"]).glob("audit/*.queue"))
    command = [sys.executable, "-m", "inference_logging.cli.main", "recover"]
    done = subprocess.run(command, env=environment(parameters), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    check_database(parameters, acknowledged)


def check_database(parameters: dict[str, Any], acknowledged: Acknowledged) -> None:
    """Every acknowledged record stands in the database once, and `verify` reads it."""
    path = Path(parameters["directory"]) / "audit" / "t-audit.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        rows = [json.loads(line) for (line,) in connection.execute("SELECT line FROM records")]
    found = [(line["pid"], line["task"], line["number"]) for line in rows if line["event_name"] == "decision"]
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    verified = verify(parameters)
    assert verified.returncode == 0, verified.stdout


@pytest.mark.servers
def test_when_the_leading_process_is_killed_the_others_awaits_go_on(parameters: dict[str, Any]) -> None:
    with producer(parameters) as first, producer(parameters) as second, producer(parameters) as third:
        acknowledged = read(first, 50) | read(second, 50) | read(third, 50)
        for process, others in ((first, (second, third)), (second, (third,))):
            process.kill()
            acknowledged |= read(process)
            for other in others:
                acknowledged |= read(other, 300)
        third.kill()
        acknowledged |= read(third)
    recover(parameters)
    check(parameters, acknowledged)


@pytest.mark.servers
def test_a_sidecar_commits_for_others_and_the_next_one_takes_over_when_it_is_killed(parameters: dict[str, Any]) -> None:
    parameters["listener"] = "external"
    with producer(parameters) as one, producer(parameters) as other, sidecar(parameters) as first:
        acknowledged = read(one, 100) | read(other, 100)
        with sidecar(parameters):
            first.kill()
            acknowledged |= read(one, 1000) | read(other, 1000)
            one.kill()
            other.kill()
            acknowledged |= read(one) | read(other)
    recover(parameters)
    check(parameters, acknowledged)
