"""The live list of `inference-logging view` under load: how long a frame of the browser takes at most.

    make bench-view-live    or: python loadtests/bench_view_live.py --rate 2000 --seconds 20

One process writes request records to a live segment, another one serves them, and Chromium shows the list. The page
notes the time of each frame (requestAnimationFrame). A frame is dropped if the one before it is more than 200 ms ago.
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import shutil
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import orjson
from playwright.sync_api import Page, sync_playwright

from screenshots import WIDE, served, settle
from view_records import stamp

DROPPED_MS: Final = 200
BATCHES_PER_S: Final = 50
BOOT_ID: Final = "00000000c0ffee02"

FRAMES: Final = """seconds => new Promise(done => {
  const gaps = [], end = performance.now() + seconds * 1000;
  let before = null;
  const frame = now => {
    if (before !== null) gaps.push(now - before);
    before = now;
    if (now < end) requestAnimationFrame(frame); else done(gaps);
  };
  requestAnimationFrame(frame);
})"""


def write(path: Path, rate: int, stop: Any) -> None:
    """Append ``rate`` records a second until ``stop`` is set."""
    number, begun = 0, time.monotonic()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as the listener: without it, nobody writes the segment any more
    while not stop.wait(1 / BATCHES_PER_S):
        due = int((time.monotonic() - begun) * rate)
        os.write(descriptor, b"".join(orjson.dumps(record(one)) + b"\n" for one in range(number, due)))
        number = due
    os.close(descriptor)


def record(number: int) -> dict[str, Any]:
    """Return a record of now."""
    return {
        "timestamp": stamp(datetime.now(timezone.utc)), "severity_text": "INFO", "event_name": "request",
        "boot_id": BOOT_ID, "pid": 7, "seq": number, "request_id": f"{number:016x}",
        "outcome": "ok" if number % 50 else "error", "http.route": "/v1/chat/completions",
        "http.response.status_code": 200, "duration_s": 0.2 + number % 97 / 50,
        "gen_ai.response.time_to_first_chunk": 0.05 + number % 31 / 500, "gen_ai.request.model": "llama-3.1-8b",
        "gen_ai.usage.input_tokens": 200 + number % 500, "gen_ai.usage.output_tokens": 80, "tenant.id": "acme",
    }  # fmt: skip


def measure(page: Page, seconds: float) -> tuple[list[float], float, dict[str, float]]:
    """Return the times between frames in ms, the rows that came a second, and the main thread's CPU time."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu() -> dict[str, float]:
        found = session.send("Performance.getMetrics")["metrics"]
        return {
            one["name"]: one["value"]
            for one in found
            if one["name"] in ("TaskDuration", "ScriptDuration", "LayoutDuration")
        }

    def rows() -> int:
        return int("".join(filter(str.isdigit, page.locator(".list-count b").inner_text())))

    before_rows, before, begun = rows(), cpu(), time.monotonic()
    gaps = page.evaluate(FRAMES, seconds)
    took = time.monotonic() - begun
    spent = {name: (value - before[name]) / took for name, value in cpu().items()}
    return gaps, (rows() - before_rows) / took, spent


def main() -> None:
    """Write, serve, look, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2000, help="records a second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "logs"
        folder.mkdir()
        now = datetime.now(timezone.utc)
        path = folder / f"chat-{now.strftime('%Y%m%dT%H%M%S')}.000Z-{BOOT_ID}-000001.jsonl"
        header = {"timestamp": stamp(now), "event_name": "segment.header", "schema_version": 1, "segment": 1}
        path.write_bytes(orjson.dumps({**header, "resource": {"k8s.pod.name": "chat-0"}}) + b"\n")
        stop = multiprocessing.Event()
        writer = multiprocessing.Process(target=write, args=(path, given.rate, stop))
        writer.start()
        try:
            with served(folder, Path(temporary) / "cache") as (url, _), sync_playwright() as playwright:
                arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
                page = browser.new_page(viewport=WIDE)  # type: ignore[arg-type]
                page.goto(f"{url}#/requests")
                settle(page)
                gaps, rate, cpu = measure(page, given.seconds)
                browser.start_tracing(page=page, categories=["toplevel", "disabled-by-default-devtools.timeline"])
                page.wait_for_timeout(given.seconds * 250)
                longest_ms = longest_task_ms(browser.stop_tracing())
                browser.close()
        finally:
            stop.set()
            writer.join()
    report(given.rate, gaps, rate, cpu, longest_ms)


def longest_task_ms(trace: bytes) -> float:
    """Return the most CPU time that one task of the page's main thread took: what a busy machine does not change."""
    events = orjson.loads(trace)["traceEvents"]
    main = {(one["pid"], one["tid"]) for one in events if one.get("args", {}).get("name") == "CrRendererMain"}
    tasks = [one["tdur"] for one in events if (one.get("pid"), one.get("tid")) in main and "tdur" in one]
    return max(tasks, default=0) / 1000


def report(written: int, gaps: list[float], rate: float, cpu: dict[str, float], longest_ms: float) -> None:
    """Print what was seen."""
    ordered = sorted(gaps)
    dropped = sum(gap > DROPPED_MS for gap in gaps)
    print(
        f"{written} records/s written, {rate:.0f}/s counted by the list; load of the machine {os.getloadavg()[0]:.1f}"
    )
    print(f"{len(gaps)} frames: median {ordered[len(gaps) // 2]:.1f} ms, p99 {ordered[int(len(gaps) * 0.99)]:.1f} ms")
    print(f"longest {ordered[-1]:.1f} ms; {dropped} longer than {DROPPED_MS} ms")
    words = ", ".join(f"{name.removesuffix('Duration').lower()} {share:.1%}" for name, share in cpu.items())
    print(f"CPU of the page's main thread, of one core: {words}; longest task {longest_ms:.1f} ms of CPU time")


if __name__ == "__main__":
    main()
