"""`query` answers the same from the table and from the lines, and knows where the table does not suffice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inference_logging.cli import query_table
from inference_logging.cli.questions import QUESTIONS
from tests.command_line import run
from tests.segment_files import log, request, write_segment

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
    monkeypatch.setattr(query_table, "LEAST_BYTES", 0)
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


@pytest.mark.parametrize("sql", SUFFICES)
def test_columns_answer_as_lines_do(logs: Path, sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = count_uses(monkeypatch)
    indexed = answer(logs, sql)
    assert (uses, indexed) == ([True], answer(logs, sql, "--no-index"))
    assert uses == [True], "--no-index asks no table"
    assert indexed[0] == 0
    assert indexed[1]


@pytest.mark.parametrize("sql", NEEDS_LINES)
def test_what_columns_may_not_answer_is_left_to_the_lines(
    logs: Path, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses = count_uses(monkeypatch)
    (code, out, err), (other_code, other_out, other_err) = answer(logs, sql), answer(logs, sql, "--no-index")
    # Without ORDER BY the engine gives rows in any order.
    assert (code, sorted(out.splitlines()), err) == (other_code, sorted(other_out.splitlines()), other_err)
    assert uses == [False]


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
    monkeypatch.setattr(query_table, "LEAST_BYTES", 1 << 30)
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
