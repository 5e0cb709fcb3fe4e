"""Serve requests in as many processes as there are pods: ``python pods.py DIRECTORY PODS REQUESTS``.

A pod is a process with an environment of its own, as the chart gives it one: `OTEL_RESOURCE_ATTRIBUTES` names the pod.
It writes its records below ``DIRECTORY/pod-N``. The tenant comes as a header of each request. What was sent is printed,
a line for each request: pod, request id, tenant.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from inference_logging import Config, InferenceLoggingMiddleware, Logger

Message = MutableMapping[str, Any]


async def answer(_scope: Message, receive: Any, send: Any) -> None:
    """Answer after a moment."""
    await receive()
    await asyncio.sleep(random.uniform(0.0, 0.003))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def serve(app: InferenceLoggingMiddleware, pod: str, requests: int) -> list[str]:
    """Let the application serve requests one after another; return what was sent."""

    async def receive() -> Message:
        return {"type": "http.request", "body": b""}

    async def send(message: Message) -> None:
        pass

    sent = []
    for number in range(requests):
        name, tenant = f"{pod}-request-{number}", f"tenant-{random.randrange(7)}"
        headers = [(b"x-request-id", name.encode()), (b"x-tenant", tenant.encode())]
        scope = {"type": "http", "method": "GET", "path": "/v1/models", "http_version": "1.1", "headers": headers}
        await app(scope, receive, send)
        sent.append(f"{pod} {name} {tenant}")
    return sent


def live(directory: Path, pod: str, requests: int) -> None:
    """Be a pod, from its start to its end."""
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = f"service.name=svc,k8s.pod.name={pod}"
    random.seed(pod)
    config = Config(
        directory=directory / pod, queue_directory=directory / f"{pod}-queue", record_headers=["x-tenant=tenant.id"]
    )
    with Logger(config):
        sent = asyncio.run(serve(InferenceLoggingMiddleware(answer, config), pod, requests))
    for line in sent:  # a write for each: longer ones of several processes mix in a pipe
        os.write(sys.stdout.fileno(), f"{line}\n".encode())


def main() -> None:
    """Fork a process for each pod, some of them at a time."""
    directory, pods, requests = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    living: list[int] = []
    codes = []
    for number in range(pods):
        if len(living) == 4:
            codes.append(os.waitpid(living.pop(0), 0)[1])
        child = os.fork()
        if not child:
            live(directory, f"pod-{number}", requests)
            os._exit(0)
        living.append(child)
    codes += [os.waitpid(child, 0)[1] for child in living]
    sys.exit(any(codes))


if __name__ == "__main__":
    main()
