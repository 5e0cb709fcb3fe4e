"""What a container or volume may take at most, on a real node: the kernel and the kubelet end what goes above it."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from tests.node.node import Node
from tests.node.serving import Chat, Destination, Requests, volume, watch

pytestmark = [pytest.mark.node, pytest.mark.kills]

Install = Callable[..., Chat]
LISTENER_PORT = 9464


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
