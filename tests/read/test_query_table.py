"""`query`: from the table as from the lines, and the ready-made questions over what a real server has written."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_logging.read.query import table as query_table
from inference_logging.read.query.questions import QUESTIONS
from inference_logging.read.table import catalog
from tests.kit.command_line import run
from tests.kit.identity import BODY, records_of
from tests.kit.segment_files import log, request, write_segment
from tests.kit.signatures import Configure
from tests.kit.support import read_records

SUFFICES = [
    "SELECT outcome, count(*) AS n, sum(duration_s) AS s FROM requests GROUP BY outcome ORDER BY n",
    'SELECT timestamp, pid, request_id, trace_id, "tenant.id" FROM requests WHERE "tenant.id" ~ \'t.\' ORDER BY seq',
    'SELECT r."K8S.pod.name", l.logger FROM requests r JOIN logs l USING (pid) ORDER BY ALL LIMIT 5',
    "WITH slow AS (SELECT duration_s AS d FROM requests WHERE duration_s > 1) SELECT count(*), max(d) FROM slow",
    "SELECT count(*) FROM records",
    "SELECT count(*) FROM logs WHERE severity_text = 'INFO'",
    "SELECT event_name, min(timestamp), max(timestamp) FROM records GROUP BY ALL ORDER BY 1",
    "SELECT duration_s FROM requests ORDER BY #1 LIMIT 3",
    'SELECT "error.type" IS NULL AS e, "http.route" AS r FROM requests ORDER BY ALL',
    "SELECT count(DISTINCT \"url.path\"), '*' AS star FROM requests -- the end",
    "SELECT outcome, duration_s FROM requests WHERE outcome = 'client_disconnect' AND duration_s > 0.6 ORDER BY ALL",
]
NEEDS_LINES = [
    "SELECT * FROM requests", "SELECT requests FROM requests", "FROM logs", "DESCRIBE requests",
    "SELECT message FROM logs", "SELECT COLUMNS('dur.*') FROM requests",
    "SELECT a.pid FROM requests a NATURAL JOIN logs b",
    "SELECT attributes->>'n' FROM logs", "SUMMARIZE requests", "SELECT n FROM records",
    "SELECT count(*) FROM information_schema.columns WHERE table_name = 'requests'", "SELECT 1 AS one",
    "SELECT nothing FROM requests",
    *(
        f"{statement} WHERE {condition}"
        for statement in (
            "SELECT * FROM requests", "FROM requests", "SELECT r.* FROM requests r", "SELECT requests FROM requests",
            "SELECT to_json(r) FROM requests r", "SELECT hash(r) FROM requests r",
            "SELECT * EXCLUDE (outcome) FROM requests", "SELECT * LIKE 'o%' FROM requests",
            "SELECT COLUMNS('o.*') FROM requests", "SELECT count(DISTINCT requests) FROM requests",
        )
        for condition in ("outcome = 'client_disconnect'", "outcome = 'ok' AND duration_s > 0.6")
    ),
    "SELECT * FROM requests WHERE outcome = 'ok' LIMIT 0", "SELECT * FROM requests WHERE 1 = 0",
]  # fmt: skip


@pytest.fixture(name="logs")
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(catalog, "LEAST_KEPT_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    directory = tmp_path / "logs"
    names = ["t0", "t,1", 't"2', "", "é'3"]
    many = [
        request(
            n / 7, "ok" if n % 9 else "client_disconnect", duration_s=n / 1000 + 0.5, chunks=n, url__path=f"/{n}",
            **{"tenant.id": names[n % 5], "gen_ai.usage.input_tokens": n * 3, "adjusted_count": 1.5},
            **({"error.type": "E"} if n % 4 else {}),
        )
        for n in range(300)
    ]  # fmt: skip
    write_segment(directory, many, resource={"service.name": "chat", "k8s.pod.name": "pod-1"})
    write_segment(directory, [*many[:9], *(log(60 + n, f"m{n}", n=n) for n in range(20))], number=2, second=60)
    write_segment(directory, [log(99, "packed")], number=3, second=99, compressed=True)
    return directory


def answer(logs: Path, *arguments: str) -> tuple[int, str, str]:
    done = run("query", *arguments, str(logs), "--format", "json")
    return done.code, done.out, done.err


def count_uses(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    uses: list[bool] = []
    connect = query_table.connect

    def counted(*arguments: Any) -> Any:
        connection = connect(*arguments)
        uses.append(connection is not None)
        return connection

    monkeypatch.setattr(query_table, "connect", counted)
    return uses


@pytest.mark.servers
@pytest.mark.parametrize("sql", SUFFICES)
def test_columns_answer_as_lines_do(logs: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = count_uses(monkeypatch)
    indexed = answer(logs, sql)
    assert (uses, indexed) == ([True], answer(logs, sql, "--no-index"))
    assert uses == [True], "--no-index asks no table"
    assert indexed[0] == 0
    assert indexed[1]


@pytest.mark.servers
@pytest.mark.parametrize("sql", NEEDS_LINES)
def test_what_columns_may_not_answer_is_left_to_the_lines(
    logs: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = count_uses(monkeypatch)
    (code, out, err), (other_code, other_out, other_err) = answer(logs, sql), answer(logs, sql, "--no-index")
    # Without ORDER BY the engine gives rows in any order.
    assert (code, sorted(out.splitlines()), err) == (other_code, sorted(other_out.splitlines()), other_err)
    assert uses == [False]


@pytest.mark.servers
@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_have_the_same_answers(logs: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = count_uses(monkeypatch)
    assert sorted(answer(logs, "--example", name)[1].splitlines()) == sorted(
        answer(logs, "--example", name, "--no-index")[1].splitlines()
    )
    assert uses == [True]


@pytest.mark.parametrize(
    "record", [request(1, duration_s="slow"), request(1, duration_s=2), {"event_name": "request", "outcome": "ok"}]
)
def test_records_of_an_unusual_form_are_read_from_their_lines(
    logs: Path, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(logs, [record], number=4, second=200)
    uses = count_uses(monkeypatch)
    sql = "SELECT count(*), sum(duration_s) FROM requests"
    assert answer(logs, sql) == answer(logs, sql, "--no-index")
    assert uses == [True]


def test_rows_of_few_bytes_stay_in_memory(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "LEAST_KEPT_BYTES", 1 << 30)
    uses = count_uses(monkeypatch)
    assert answer(logs, "SELECT count(*) FROM requests") == answer(logs, "SELECT count(*) FROM requests", "--no-index")
    assert uses == [True]
    assert not (logs.parent / "cache").exists()


@pytest.mark.parametrize(
    "member",
    [
        '"deep":' + "[" * 150 + "]" * 150,
        '"large":1' + "0" * 308 + "1",
        '"id":12345678901234567890',
        '"twice":1,"twice":2',
    ],
)
def test_one_odd_record_fails_no_query_of_its_directory(logs: Path, member: str) -> None:
    line = b'{"timestamp":"2026-11-21T06:00:00.000000000Z","event_name":"request","pid":1,"outcome":"ok",%b}\n'
    path = write_segment(logs, [], number=5, second=300)
    path.write_bytes(path.read_bytes() + line % member.encode())
    (before,) = json.loads(answer(logs, "SELECT count(*) AS n FROM requests WHERE outcome = 'ok'")[1]).values()
    path.unlink()
    (after,) = json.loads(answer(logs, "SELECT count(*) AS n FROM requests WHERE outcome = 'ok'")[1]).values()
    assert before == after + 1


HEADERS = ["x-tenant=tenant.id", "x-session=gen_ai.conversation.id"]
POD = "k8s.pod.name=pod-7,k8s.node.name=node-3"
KILLED = """
import asyncio, os, signal
from inference_logging import InferenceLoggingMiddleware

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(3):
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    scope = {"type": "http", "method": "GET", "path": "/p", "headers": [(b"x-tenant", b"acme")]}
    async def send(message):
        pass
    await InferenceLoggingMiddleware(app)(scope, None, send)

asyncio.run(main())
"""


async def answered(scope: Any, receive: Any, send: Any) -> None:
    """Answer as an engine with a prefix cache does; a client named so leaves, and a request named so fails."""
    await receive()
    headers = dict(scope["headers"])
    if headers.get(b"x-end") == b"fails":
        raise ZeroDivisionError("as it must")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    if headers.get(b"x-end") == b"leaves":
        assert (await receive())["type"] == "http.disconnect"
        return
    details = {"prompt_tokens_details": {"cached_tokens": 40}}
    usage = {"prompt_tokens": 100, "completion_tokens": 7, **details}
    await send({"type": "http.response.body", "body": json.dumps({"id": "1", "model": "m", "usage": usage}).encode()})


@pytest.fixture
def answers(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """Return the answer to each question over the records of three ended requests and of a killed process."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", POD)
    config = configure(record_headers=HEADERS)
    records_of(config, [{"x-tenant": "acme", "x-session": "s-1"}, {"x-tenant": "b", "x-end": "leaves"}], BODY, answered)
    with pytest.raises(ZeroDivisionError):
        records_of(config, [{"x-tenant": "acme", "x-end": "fails"}], BODY, answered)
    for name in ("directory", "queue_directory"):
        monkeypatch.setenv(f"INFERENCE_LOGGING_{name.upper()}", str(getattr(config, name)))
    monkeypatch.setenv("INFERENCE_LOGGING_RECORD_HEADERS", ",".join(HEADERS))
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", KILLED]) == -signal.SIGKILL
    assert run("recover", str(config.queue_directory)).code == 0
    assert len(read_records(config.directory, "request")) == 4
    found = {}
    for name in QUESTIONS:
        done = run("query", "--example", name, str(config.directory), "--format", "json")
        assert (done.code, done.err) == (0, "")
        found[name] = [json.loads(line) for line in done.out.splitlines()]
    return found


def test_each_question_has_an_answer(answers: dict[str, list[dict[str, Any]]]) -> None:
    assert not [name for name, rows in answers.items() if not rows]
    tenants = {row["tenant"]: row["requests"] for row in answers["slow-tenants"]}
    assert tenants == {"acme": 3, "b": 1}
    tokens = {row["tenant"]: row for row in answers["tokens-by-tenant"]}
    assert [tokens["acme"][name] for name in ("input_tokens", "output_tokens", "cached_tokens")] == [100, 7, 40]
    rates = {row["route"]: row["abort_rate"] for row in answers["abort-rate-by-route"]}
    assert rates == {"(none)": 1 / 4}
    errors = {row["outcome"]: row["error"] for row in answers["errors-by-model"]}
    assert errors["error"] == "ZeroDivisionError"
    assert errors["process_died"] == "process_died"
    assert {"client_disconnect"} < set(errors)
    assert {(row["pod"], row["tenant"]) for row in answers["slowest-requests"]} == {("pod-7", "acme"), ("pod-7", "b")}
    assert [(row["pod"], row["node"], row["requests"]) for row in answers["slowest-pods"]] == [("pod-7", "node-3", 4)]
    prefixes = {row["prefix"]: row["hit_rate"] for row in answers["cache-hit-by-prefix"]}
    assert prefixes == {"s-1": pytest.approx(0.4)}
    hours = answers["models-over-time"]
    assert sum(row["requests"] for row in hours) == 4
    assert sum(row["failed"] for row in hours) == 2, "not the client that left"
    assert [(row["pod"], row["chunks"], row["bytes_sent"]) for row in answers["killed-in-flight"]] == [("pod-7", 3, 12)]


def test_a_request_counts_for_as_many_as_it_stands_for(tmp_path: Path) -> None:
    # Nine sampled ones of 10 ms stand for 90, the ten of a second for themselves: their share is a tenth.
    fast = [request(number, duration_s=0.01 + number / 1e5, adjusted_count=10.0) for number in range(9)]
    slow = [request(10 + number, duration_s=1.0 + number) for number in range(10)]
    write_segment(tmp_path, [*fast, *slow])
    done = run("query", "--example", "slow-tenants", str(tmp_path), "--format", "json")
    found = json.loads(done.out)
    assert (found["requests"], found["p50_s"], found["p99_s"]) == (100, pytest.approx(0.01004), pytest.approx(9.0))
    assert found["queued_p99_s"] is None
