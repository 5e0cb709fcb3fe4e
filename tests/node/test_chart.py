"""The chart on a real node, under load: every request that was answered is on record where the chart ships records to.

Nothing is simulated: containers run, probes ask them, kube-proxy leads requests to those that are ready.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.control_plane import Object
from tests.node.node import Node
from tests.node.serving import Chat, Destination, Requests, volume, watch
from tests.tools.tools import tool

pytestmark = [pytest.mark.node, pytest.mark.kills]

Install = Callable[..., Chat]
LISTENER_PORT, SHIPPER_PORT = 9466, 9467
"""Where the parents of listener and shipper serve their metrics."""


@pytest.mark.parametrize("shipper", ["otel-collector", "inference-logging"])
def test_the_quick_start_is_ready_and_every_request_is_on_record_once(install: Install, shipper: str) -> None:
    if shipper == "otel-collector":
        tool("otelcol")
    chat = install(f"quick-start-{shipper}", shipper={"type": shipper})
    with Requests(chat.url) as sent:
        sent.wait_for(2000)
    answered = chat.is_on_record(sent)
    assert not sent.failed
    assert {chat.destination.arrived[name] for name in answered} == {1}


def test_a_pod_that_is_deleted_fails_no_request(install: Install) -> None:
    chat = install("deleted")
    with Requests(chat.url) as sent:
        sent.wait_for(200)
        chat.delete_pod()
        sent.wait_for(200)
    chat.is_on_record(sent)
    assert not sent.failed


def test_an_upgrade_and_a_rollback_fail_no_request(install: Install) -> None:
    chat = install("upgraded")
    with Requests(chat.url) as sent:
        sent.wait_for(200)
        chat.upgrade("--set=config.service_name=renamed")
        chat.rollback()
        sent.wait_for(200)
    chat.is_on_record(sent)
    assert not sent.failed


def test_a_listener_that_is_killed_four_times_takes_no_server_out_of_its_service(install: Install) -> None:
    chat = install("listener-killed", replicaCount=1)
    since = chat.ready_since()
    with Requests(chat.url) as sent:
        for killed in range(1, 5):
            os.kill(watch(chat.child, "the listener"), signal.SIGKILL)
            watch(partial(chat.has_started_again, LISTENER_PORT, killed), "its next start")
            sent.wait_for(50)
    chat.is_on_record(sent)
    assert not sent.failed
    assert chat.ready_since() == since
    assert set(chat.restarts().values()) == {0}


def test_a_server_that_is_killed_leaves_what_it_answered(install: Install) -> None:
    chat = install("server-killed", replicaCount=1)
    with Requests(chat.url) as sent:
        sent.wait_for(200)
        chat.kill_server()
        watch(partial(chat.has_restarted, 1), "the server's next start")
        sent.wait_for(200)
    chat.is_on_record(sent)


def test_a_server_that_is_killed_twice_while_its_listener_hangs_serves(install: Install) -> None:
    """The queues that nobody reads leave the next one no room."""
    chat = install("no-room", replicaCount=1)
    hung = chat.child()
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    before = []
    for times in (1, 2):
        with Requests(chat.url) as sent:
            sent.wait_for(50)
        before.append(sent)
        chat.kill_server()
        watch(partial(chat.has_restarted, times), "the server's next start")
    with Requests(chat.url) as after:
        after.wait_for(50)
    chat.is_on_record(*before)


def test_a_listener_that_hangs_is_replaced(install: Install) -> None:
    chat = install("listener-hangs", replicaCount=1)
    with Requests(chat.url) as sent:
        sent.wait_for(100)
        hung = chat.child()
        assert hung is not None
        os.kill(hung, signal.SIGSTOP)
        watch(lambda: chat.has_started_again(LISTENER_PORT, 1), "another listener")
        watch(chat.ready_since, "the pod to be ready")
        sent.wait_for(100)
    chat.is_on_record(sent)
    assert set(chat.restarts().values()) == {0}


def test_a_pod_that_ends_with_a_hung_listener_leaves_its_shipper_time(
    install: Install, destination: Destination
) -> None:
    destination.answers = [(503, b"", {})] * 1000
    chat = install("ends-hung", replicaCount=1)
    with Requests(chat.url) as sent:
        sent.wait_for(200)
    watch(lambda: sent.answered <= chat.written(), "the segments")
    hung = chat.child()
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    with Requests(chat.url) as queued:
        queued.wait_for(50)
    chat.delete_pod(wait=False)
    watch(lambda: not Path(f"/proc/{hung}").exists(), "the end of the listener, which its parent kills")
    destination.answers.clear()
    chat.is_on_record(sent, queued)


def test_a_destination_that_is_away_as_a_pod_ends_gets_what_time_is_left(
    install: Install, destination: Destination
) -> None:
    destination.answers = [(503, b"", {})] * 1000
    chat = install("away", replicaCount=1)
    with Requests(chat.url) as sent:
        sent.wait_for(200)
    chat.delete_pod(wait=False)
    asked = len(destination.requests)
    watch(lambda: len(destination.requests) >= asked + 3, "three requests more of the shipper")
    destination.answers.clear()
    chat.is_on_record(sent)


def test_a_shipper_without_its_secret_takes_no_server_out_of_its_service(install: Install, node: Node) -> None:
    """Once the Secret is right all arrives that was answered before."""
    keys = {"existingSecret": "keys", "keys": {"headers": "headers"}}
    chat = install("bad-secret", installed=False, replicaCount=1, destination=keys)
    node.apply(_secret(chat.namespace, "no header"))
    chat.install()
    since = chat.ready_since()
    with Requests(chat.url) as sent:
        watch(lambda: chat.has_started_again(SHIPPER_PORT, 3), "three starts of the shipper")
        sent.wait_for(100)
    assert not sent.failed
    assert chat.ready_since() == since
    node.apply(_secret(chat.namespace, "X-Tenant: chat"))
    chat.is_on_record(sent)
    assert chat.ready_since() == since


def test_the_next_pod_of_a_claim_waits_for_the_shipper_of_the_one_before(install: Install, node: Node) -> None:
    claim = {"segments": {"persistence": {"enabled": True}}}
    chat = install("claim", installed=False, replicaCount=1, storage=claim)
    volume(node, chat.namespace)
    chat.install()
    with Requests(chat.url) as sent:
        sent.wait_for(200)
        chat.delete_pod()
        watch(chat.ready_since, "the next pod")
        sent.wait_for(200)
    chat.is_on_record(sent)
    assert chat.starts_again(SHIPPER_PORT) == 0
    assert set(chat.restarts().values()) == {0}


def test_one_listener_for_the_node_ships_what_servers_of_a_namespace_answered(install: Install) -> None:
    """While its release is away servers start, and their queues wait for it."""
    chat = install("of-node", installed=False, listener={"mode": "node"}, shipper={"type": "none"})
    of_node = install("logging", installed=False, mode="node", node={"namespaces": [chat.namespace]})
    of_node.admit("privileged")
    of_node.install()
    chat.install()
    with Requests(chat.url) as sent:
        sent.wait_for(500)
        chat.delete_pod()
        sent.wait_for(500)
    chat.is_on_record(sent)
    assert not sent.failed
    of_node.uninstall()
    chat.delete_pod()
    chat.wait_for_pods()
    with Requests(chat.url) as unheard:
        unheard.wait_for(100)
    of_node.install()
    chat.is_on_record(unheard)


def _secret(place: str, headers: str) -> Object:
    metadata = {"name": "keys", "namespace": place}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"headers": headers}}
