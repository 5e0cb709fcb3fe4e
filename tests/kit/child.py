"""Processes that a test forks: what they log, and requests that hang until their process is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import traceback
from collections import Counter
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from inference_logging import Config, InferenceLoggingMiddleware, Logger, get_logger
from tests.kit.signatures import Receive, Send
from tests.kit.support import Client, answer, body_messages, http_scope, read_records, wait_until


def thread_names() -> list[str]:
    """Return the names of the threads that this process has, native ones too."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # one that ends meanwhile
            names.append(task.joinpath("comm").read_text().strip())
    return names


def in_child(work: Callable[[], object]) -> int:
    """Fork, run ``work`` in the child, and return its pid. A child that raises exits with 1."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def join(*pids: int) -> None:
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0, "the child failed"


def numbers(config: Config) -> list[int]:
    """Return the numbers of all records that are written; of several processes they come in no particular order."""
    return sorted(record["attributes"]["n"] for record in read_records(config.directory, "log"))


def produce(config: Config, first: int, count: int) -> None:
    """Log from a process that is killed afterwards."""

    def child() -> None:
        Logger(config)
        assert all(get_logger("t").warning("n", n=first + n) for n in range(count))
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(in_child(child), 0)


def killed_while(config: Config, serve: Callable[[Callable[[], object]], object]) -> None:
    """Run ``serve`` in a child that is killed as soon as it says so."""
    reported, report = os.pipe()

    def child() -> None:
        with Logger(config):
            serve(lambda: os.write(report, b"x"))

    pid = in_child(child)
    assert os.read(reported, 1) == b"x"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reported)
    os.close(report)


def drain(logger: Logger) -> None:
    """Wait until no other process's queue is left, and everything of this one is written."""
    directory = logger.config.resolved_queue_directory

    def is_alone() -> bool:
        return logger.flush() and len(list(directory.glob("*.queue"))) == 1

    wait_until(is_alone, "the queues of other processes to be written")


RECORDS = 200


def log_many(records: int = RECORDS, **attributes: Any) -> None:
    log = get_logger("process")
    for number in range(records):
        assert log.warning("n", n=number, of=os.getpid(), **attributes)


def assert_unbroken(directory: Path) -> Counter[str]:
    """Check that each process's numbers begin at 0 without gap or repetition; return how many logs each has."""
    # A listener that repairs what a killed one left says so in a record of its own, which has a number too.
    records = [record for record in read_records(directory) if "seq" in record]
    for boot in {record["boot_id"] for record in records}:
        own = [record for record in records if record["boot_id"] == boot]
        assert len({record["pid"] for record in own}) == 1
        numbers = sorted(record["seq"] for record in own)
        assert numbers == list(range(len(numbers)))
    return Counter(record["boot_id"] for record in records if record["event_name"] == "log")


JSON = (b"content-type", b"application/json")

CHUNK = b"data: word\n\n"


def hang(parts: list[bytes], reached: Callable[[], object]) -> Any:
    """Return an application that reads the request, streams ``parts``, calls ``reached`` and never returns."""

    async def app(_scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        for position, message in enumerate(answer(*parts, b"", content_type=b"text/event-stream")):
            if position <= len(parts) and parts:
                await send(message)
        reached()
        await asyncio.Event().wait()

    return app


def serve_hanging(config: Config, reached: Callable[[], object], *requests: tuple[str, bytes, int]) -> None:
    """Serve requests (path, body, chunks) that all hang; call ``reached`` once all of them do."""
    waiting = []

    def one_more() -> None:
        waiting.append(1)
        if len(waiting) == len(requests):
            reached()

    async def all_of_them() -> None:
        calls = []
        for path, body, chunks in requests:
            app = InferenceLoggingMiddleware(hang([CHUNK] * chunks, one_more), config)
            client = Client(body_messages(body))
            calls.append(app(http_scope(path, "POST", [JSON]), client.receive, client.send))
        await asyncio.gather(*calls)

    asyncio.run(all_of_them())
