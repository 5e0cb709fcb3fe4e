"""The benchmark of vLLM reads answers to their end, and runs against a real vLLM; no figure is judged here."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtests.engine.vllm_client import Shape, load
from tests.integrations.vllm_server import require_vllm

STREAMED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
    b"9\r\ndata: 1\n\n\r\n",
    b'24\r\ndata: {"finish_reason":"length"}\n\n\r\n0\r\n',
    b"\r\n",
)
WHOLE = (b"HTTP/1.1 200 OK\r\ncontent-length: 26\r\n\r\n", b'{"finish_reason"', b':"length"}')


def loaded(*parts: bytes) -> None:
    """Send three requests to a server that answers each with these parts, one write after another."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.rpartition(b": ")[2]))
                for part in parts:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0.01)

    async def served() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            seen = await asyncio.to_thread(load, port, Shape("one", 16, False, 3), 3)
            assert 0 < seen.first_ms / 1e3 < seen.wall_s

    asyncio.run(served())


@pytest.mark.parametrize("parts", [STREAMED, WHOLE])
def test_an_answer_is_read_to_its_end_however_the_reads_cut_it(parts: tuple[bytes, ...]) -> None:
    loaded(*parts)


def test_an_answer_with_fewer_tokens_than_asked_for_ends_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="not what was asked for"):
        loaded(*(part.replace(b'"length"', b'"stop"  ') for part in WHOLE))


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
    assert len(judged) == 6
