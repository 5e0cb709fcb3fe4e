"""Real servers on a node: the presets for vLLM and Triton, and what a container or volume may take at most."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.cluster.control_plane import Object
from tests.integrations.vllm_server import SMALL
from tests.node.node import Node
from tests.node.serving import Chat, Destination, Requests, volume, watch
from tests.node.vendors import archive

Install = Callable[..., Chat]
PATIENT = "--timeout=6m"


def completion(_name: str) -> tuple[str, Object]:
    return "/v1/completions", {"model": "/models/tiny", "prompt": "tell me a story", "max_tokens": 4}


def stream(_name: str) -> tuple[str, Object]:
    """Ask for a stream of forty events."""
    messages = [{"role": "user", "content": "tell me a story"}]
    long = {"stream": True, "max_tokens": 40, "ignore_eos": True}
    return "/v1/chat/completions", {"model": "/models/tiny", "messages": messages, **long}


def infer(name: str) -> tuple[str, Object]:
    """Ask by KServe's protocol, in which the request's id is in the body."""
    inputs = [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]
    return "/v2/models/echo/infer", {"id": name, "inputs": inputs}


def words(name: str) -> tuple[str, Object]:
    """Ask a decoupled model for a stream."""
    return "/v2/models/stream/generate_stream", {"id": name, "N": 20, "parameters": {"pause_ms": 10}}


def started(install: Install, node: Node, preset: str, **server: object) -> Chat:
    """Install the quick start as its file has it, on a node without GPUs."""
    node.take(archive(preset))
    given = {"gpu": {"count": 0}, **server}
    chat = install(f"quick-start-{preset}", installed=False, preset=preset, server=given)
    chat.install(PATIENT)
    return chat


@pytest.mark.node
@pytest.mark.kills
@pytest.mark.timeout(900)
def test_a_real_vllm_ends_its_streams_when_its_pod_is_deleted(
    install: Install, node: Node, destination: Destination
) -> None:
    resources = {"requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"memory": "6Gi"}}
    chat = started(install, node, "vllm", model="/models/tiny", extraArgs=[*SMALL], resources=resources)
    with Requests(chat.url, asking=completion) as whole, Requests(chat.url, asking=stream) as streams:
        whole.wait_for(100)
        streams.wait_for(50)
    chat.is_on_record(whole, streams)
    assert not whole.failed | streams.failed
    assert chat.verified()
    with Requests(chat.url, asking=stream) as ended:
        ended.wait_for(10)
        chat.delete_pod()
    chat.is_on_record(ended)
    assert {destination.outcomes[name] for name in ended.answered} == {"ok"}
    watch(lambda: ended.heard <= destination.look(), "the records of those that were refused with an answer")
    assert not {name for name in ended.heard - ended.answered if not ended.failed[name].isdigit()}


@pytest.mark.node
@pytest.mark.kills
@pytest.mark.timeout(900)
def test_a_real_triton_is_started_again_when_a_model_has_died(install: Install, node: Node) -> None:
    chat = started(install, node, "triton", processes=3)
    with Requests(chat.url, asking=infer) as whole, Requests(chat.url, asking=words) as streams:
        whole.wait_for(200)
        streams.wait_for(200)
    chat.is_on_record(whole, streams)
    assert not whole.failed | streams.failed
    assert chat.verified()
    with Requests(chat.url, asking=words) as before:
        before.wait_for(50)
        (stub,) = (number for number in chat.processes("server") if _is_of(number, "stream_0_0"))
        os.kill(stub, signal.SIGKILL)
        watch(partial(chat.has_restarted, 1), "the server's next start")
        before.wait_for(50)
    chat.is_on_record(before)


def _is_of(process: int, instance: str) -> bool:
    """Whether a process is the stub of a model's instance."""
    return f"\0{instance}\0".encode() in Path(f"/proc/{process}/cmdline").read_bytes()


LISTENER_PORT = 9464


@pytest.mark.node
@pytest.mark.kills
def test_a_worker_that_the_kernel_ends_for_its_memory_leaves_what_it_answered(
    install: Install, destination: Destination
) -> None:
    server = {"application": "greedy:app", "resources": {"limits": {"memory": "512Mi"}}}
    chat = install("memory", replicaCount=1, server=server)
    with Requests(chat.url) as sent:
        sent.wait_for(200)
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{chat.url}/allocate", headers={"x-request-id": "greedy"}, timeout=None)
        sent.wait_for(200)
    chat.is_on_record(sent)
    watch(lambda: "greedy" in destination.look(), "the record of the request that took the memory")
    assert destination.outcomes["greedy"] == "process_died"
    assert set(chat.restarts().values()) == {0}


@pytest.mark.node
@pytest.mark.kills
def test_a_volume_that_is_full_while_the_destination_is_away_evicts_no_pod(
    install: Install, destination: Destination
) -> None:
    """What the quota removes is counted; what comes later arrives."""
    destination.answers = [(503, b"", {})] * 1000
    config = {"rotate_bytes": "512KiB", "record_headers": ["x-filler"]}
    chat = install("full", replicaCount=1, config=config, storage={"segments": {"size": "4Mi"}})
    before = chat.pod()["metadata"]["uid"]
    with Requests(chat.url, headers={"x-filler": "x" * 4000}) as lost:
        watch(lambda: chat.counted(LISTENER_PORT, "segments_removed_total") >= 2, "the quota to remove segments")
    destination.answers.clear()
    with Requests(chat.url) as sent:
        sent.wait_for(200)
    chat.is_on_record(sent)
    assert not lost.failed
    assert not sent.failed
    assert chat.pod()["metadata"]["uid"] == before
    assert set(chat.restarts().values()) == {0}
    assert chat.verified()


@pytest.mark.node
@pytest.mark.kills
def test_a_disk_that_takes_nothing_for_a_while_fails_no_request(install: Install, node: Node) -> None:
    """Health says so; the records wait in the queue."""
    claim = {"segments": {"persistence": {"enabled": True}}}
    chat = install("frozen", installed=False, replicaCount=1, storage=claim)
    disk = volume(node, chat.namespace)
    node.mount_disk(disk)
    chat.install()
    since = chat.ready_since()
    with Requests(chat.url) as sent:
        sent.wait_for(200)
        with node.frozen(disk):
            watch(lambda: chat.health() == 503, "health to say that the disk hangs")
            sent.wait_for(500)
        watch(lambda: chat.health() == 200, "health to be well again")
    chat.is_on_record(sent)
    assert not sent.failed
    assert chat.ready_since() == since
    assert set(chat.restarts().values()) == {0}
