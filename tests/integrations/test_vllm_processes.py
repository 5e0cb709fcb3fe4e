"""A real vLLM with two API servers: a queue for each, one set of segments, nothing in processes that don't serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.books import assert_books_balance
from tests.integrations.vllm_server import VllmServer, serving
from tests.sidecars import queue_files
from tests.support import read_lines, wait_until

pytestmark = pytest.mark.vllm


def queues_of(pid: int) -> set[str]:
    """Return the queues that a process has mapped."""
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines()
    return {line.split()[-1] for line in maps if line.endswith(".queue")}


def test_each_api_server_has_a_queue_of_its_own_and_no_other_process_has_one(tmp_path: Path) -> None:
    with serving(tmp_path, "--api-server-count", "2", "--disable-log-stats") as server:
        serving_pids = set(server.processes("VLLM::APIServer"))
        assert len(serving_pids) == 2
        names = post_until_both_answer(server, serving_pids)
        queues = {str(path) for path in queue_files(server.config)}
        others = {server.process.pid, *server.processes("VLLM::EngineCore")}
        assert len(others) == 2
        # The leader of the listeners has the other's mapped, too.
        assert set.union(*(queues_of(pid) for pid in serving_pids)) == queues
        assert len(queues) == 2
        assert [queues_of(pid) for pid in others] == [set(), set()]
        server.stop()
    assert_books_balance(server.config)
    assert {record["client_request_id"] for record in server.records()} == set(names)
    headers = [line for line in read_lines(server.config.directory) if line["event_name"] == "segment.header"]
    assert len({header["boot_id"] for header in headers}) <= 2


def post_until_both_answer(server: VllmServer, pids: set[int]) -> list[str]:
    """Send requests over connections of their own until each process has served one; return their names."""
    names: list[str] = []

    def both_answered() -> bool:
        names.append(f"two-{len(names)}")
        server.client.headers["connection"] = "close"
        assert server.post("/v1/completions", names[-1], prompt="hello", max_tokens=2).status_code == 200
        return {record["pid"] for record in server.records()} == pids

    wait_until(both_answered, "both to have answered")
    return names
