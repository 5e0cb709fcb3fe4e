"""What the proxy costs, beside nginx: ``make bench-native``, or ``python loadtests/bench_proxy.py [latency] [streams]``.

A server answers on uvicorn; clients reach it directly, through our proxy, through our proxy that records nothing, and
through nginx. ``direct again`` is the control: a second client that goes directly.

``latency``: one client sends a short request by each way in turn, in random order; the difference to the direct one.
``streams``: 64 connections of wrk take streams of 64 chunks, by each way in slices, in random order; the ratio of
requests per second to the direct slice of the same round.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench_loggers import memory_directory, scratch_directory
from bench_report import Report, at_least, at_most, machine, pairwise

ROOT: Final = Path(__file__).parent.parent
BINARY: Final = ROOT / "dist" / "inference-logging-listener"
SECTIONS: Final = ("latency", "streams")
DIRECT: Final = "direct"
CONTROL: Final = "direct again"
OURS: Final = "our proxy"
UNRECORDED: Final = "our proxy, nothing recorded"
NGINX: Final = "nginx"
MOST_ADDED_US: Final = 30
LEAST_RATIO: Final = 0.97
CHUNKS: Final = 64
CONNECTIONS: Final = 64
REQUEST: Final = b"GET / HTTP/1.1\r\nHost: engine\r\n\r\n"
NGINX_CONFIGURATION: Final = """
worker_processes 2; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; proxy_buffering off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engine {{ server 127.0.0.1:{to}; keepalive 256; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024; keepalive_requests 100000000;
    location / {{ proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
Ways = dict[str, int]
"""The port of each way to the server."""


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer ``/`` with a short text, and any other path with a stream."""
    if scope["type"] != "http":
        return
    is_short = scope["path"] == "/"
    kind = b"text/plain" if is_short else b"text/event-stream"
    headers = [(b"content-type", kind), *([(b"content-length", b"5")] if is_short else [])]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if is_short:
        await send({"type": "http.response.body", "body": b"hello"})
        return
    for number in range(CHUNKS):
        more = number < CHUNKS - 1
        await send({"type": "http.response.body", "body": b'data: {"token": "%d"}\n\n' % number, "more_body": more})


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def running(port: int, *command: str, **environment: str) -> Iterator[None]:
    """Run a server until the port answers, and end it at the end."""
    with subprocess.Popen(
        command, env=environment or None, stderr=subprocess.DEVNULL, cwd=Path(__file__).parent
    ) as server:
        try:
            for _ in range(300):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                if server.poll() is not None:
                    raise RuntimeError(f"{command[0]} ended by itself")
                time.sleep(0.05)
            yield
        finally:
            server.terminate()


@contextmanager
def ways(binary: Path) -> Iterator[Ways]:
    """Start the server and every way to it."""
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_directory())
        queue = stack.enter_context(scratch_directory(memory_directory()))
        server = free_port()
        options = ["--port", str(server), "--no-access-log", "--log-level", "warning"]
        stack.enter_context(running(server, sys.executable, "-m", "uvicorn", "bench_proxy:application", *options))
        found: Ways = {DIRECT: server, CONTROL: server}
        for way, recorded in ((OURS, True), (UNRECORDED, False)):
            found[way] = free_port()
            command = [str(binary), "proxy", "--listen", f"127.0.0.1:{found[way]}", "--to", f"127.0.0.1:{server}"]
            places = ["--directory", str(folder / "records"), "--queue-directory", str(queue / "queue")]
            enabled = "on" if recorded else "off"
            stack.enter_context(running(found[way], *command, *places, INFERENCE_LOGGING_ENABLED=enabled))
        if nginx is not None:
            found[NGINX] = free_port()
            configuration = folder / "nginx.conf"
            configuration.write_text(NGINX_CONFIGURATION.format(folder=folder, to=server, port=found[NGINX]))
            stack.enter_context(running(found[NGINX], nginx, "-c", str(configuration), "-p", str(folder)))
        else:
            print("nginx: not found; apt-get install nginx-light", flush=True)
        yield found


def latency(ports: Ways, quick: bool) -> Iterator[Report]:
    """Report what each way adds to the time of a short request."""
    rounds, requests = (2, 50) if quick else (30, 1_000)
    clients = {way: socket.create_connection(("127.0.0.1", port)) for way, port in ports.items()}
    for client in clients.values():
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    medians: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        times: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(requests):
            for way in random.sample(list(clients), len(clients)):
                times[way].append(_asked(clients[way]))
        for way, found in times.items():
            medians[way].append(1e6 * statistics.median(found))
    report = Report("a short request, one client: what a way adds to the median")
    report.add(f"{DIRECT}, median", "µs", medians[DIRECT])
    for way in (way for way in ports if way != DIRECT):
        added = pairwise(lambda way, direct: way - direct, medians[way], medians[DIRECT])
        report.add(f"{way}, added", "µs", added, at_most(MOST_ADDED_US) if way == OURS else None)
    yield report


def _asked(client: socket.socket) -> float:
    begin = time.perf_counter()
    client.sendall(REQUEST)
    answer = client.recv(65_536)
    while not answer.endswith(b"hello"):
        answer += client.recv(65_536)
    return time.perf_counter() - begin


def streams(ports: Ways, quick: bool) -> Iterator[Report]:
    """Report the streams per second of each way, as ratios to the direct one."""
    wrk = shutil.which("wrk")
    if wrk is None:
        print("streams: not measured, since wrk was not found; apt-get install wrk", flush=True)
        return
    rounds, seconds = (1, 1) if quick else (12, 2)
    found: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for way in random.sample(list(ports), len(ports)):
            command = [wrk, "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", f"http://127.0.0.1:{ports[way]}/stream"]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rate = re.search(r"Requests/sec:\s*([\d.]+)", said)
            if rate is None or "Socket errors" in said or "Non-2xx" in said:
                raise RuntimeError(f"{way}: {said}")
            found[way].append(float(rate[1]))
    report = Report(f"streams of {CHUNKS} chunks, {CONNECTIONS} connections: requests per second as a ratio to direct")
    report.add(f"{DIRECT}, requests per second", "req/s", found[DIRECT])
    for way in (way for way in ports if way != DIRECT):
        ratios = pairwise(lambda way, direct: way / direct, found[way], found[DIRECT])
        report.add(way, "×", ratios, at_least(LEAST_RATIO) if way == OURS else None)
    yield report


def main() -> None:
    """Measure, print, and write the JSON if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=[], metavar="SECTION")
    parser.add_argument("--binary", type=Path, default=BINARY, help="the program with the proxy")
    parser.add_argument("--quick", action="store_true", help="short: shows that it runs, measures nothing")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write what was found to this file")
    options = parser.parse_args()
    print("  ".join(f"{name}: {value}" for name, value in machine().items()), flush=True)
    print("median (lowest … highest round)", flush=True)
    reports = []
    with ways(options.binary) as ports:
        for section, measure in zip(SECTIONS, (latency, streams), strict=True):
            if section in (options.sections or SECTIONS):
                for report in measure(ports, options.quick):
                    report.print()
                    reports.append(report)
    if options.json is not None:
        options.json.write_text(json.dumps([report.as_json() for report in reports], indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
