"""The benchmark of vLLM counts what its client reads, and runs against a real vLLM; no figure is judged here."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtests.engine.bench_vllm_load import Connection, Seen, Shape, load
from tests.integrations.vllm_server import require_vllm

ROOT = Path(__file__).resolve().parent.parent
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'10\r\ndata: {"delta":1}\n\n\r\n'


class Transport(asyncio.Transport):
    def write(self, data: bytes | bytearray | memoryview) -> None: ...


async def read(*reads: bytes) -> tuple[Seen, asyncio.Future[bytes]]:
    seen = Seen()
    connection = Connection(asyncio.get_running_loop(), seen)
    connection.connection_made(Transport())
    answer = connection.ask(b"")
    for data in reads:
        assert not answer.done()
        connection.data_received(data)
    return seen, answer


def test_every_event_of_a_stream_is_counted_however_the_reads_cut_it() -> None:
    seen, answer = asyncio.run(read(HEAD, EVENT, EVENT + EVENT, EVENT + b"\r\n0\r", b"\n\r\n"))
    assert answer.result().count(EVENT) == 4
    assert len(seen.first_s) == 1
    assert len(seen.gaps_s) == 3
    assert seen.gaps_s[1] == 0.0


def test_an_answer_with_a_length_ends_with_its_last_byte() -> None:
    seen, answer = asyncio.run(read(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab", b"cd"))
    assert answer.result().endswith(b"abcd")
    assert len(seen.first_s) == 1
    assert seen.gaps_s == []


def test_an_answer_with_fewer_tokens_than_asked_for_ends_the_benchmark() -> None:
    async def stop_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n{"finish_reason":"stop"}')
        await writer.drain()
        writer.close()

    async def served() -> None:
        server = await asyncio.start_server(stop_early, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(RuntimeError, match="not what was asked for"):
                await asyncio.to_thread(load, port, Shape("one", 16, False, 1), 1)

    asyncio.run(served())


@pytest.mark.vllm
@pytest.mark.lengthy
def test_each_section_loads_a_real_vllm_and_finds_a_record_for_each_request(tmp_path: Path) -> None:
    require_vllm()
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "loadtests.engine.bench_vllm", "--modes", "ours", "stdlib-queue"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([*command, "--quick", "--json", str(result)], check=True, env=environment)
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    judged = [figure["name"] for report in found["sections"] for figure in report["figures"] if figure["goal"]]
    assert len(judged) == 8
