"""A real Kafka of three brokers, one for each zone, and what its topics hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as Offsets  # type: ignore[attr-defined]  # public, and not in __all__
from confluent_kafka.cimpl import NewTopic

from tests.kit.servers import free_port
from tests.kit.support import wait_until
from tests.ship.kafka import node
from tests.ship.programs import Program

BROKERS: Final = 3
PARTITIONS: Final = 12
REPLICAS: Final = 3
IN_SYNC: Final = 2
"""Replicas that have a record before it is acknowledged."""
_PATIENCE_S: Final = 60.0


class Broker(Program):
    """One of them; ``addresses`` and ``controllers`` are those of all."""

    def __init__(self, folder: Path, number: int, addresses: Sequence[str], controllers: Sequence[str]) -> None:
        """Format its storage."""
        folder.mkdir(parents=True)
        self.address = addresses[number - 1]
        # Brokers answer once most of them are there, so that nothing waits for the first one alone.
        super().__init__(node(folder, self.address, controllers, number), folder / "log", lambda: True)


class Cluster:
    """All brokers; a topic for each run."""

    def __init__(self, folder: Path) -> None:
        """Prepare them."""
        brokers, controllers = ([f"127.0.0.1:{free_port()}" for _ in range(BROKERS)] for _ in range(2))
        self.brokers = [Broker(folder / f"broker-{at}", at, brokers, controllers) for at in range(1, BROKERS + 1)]
        self.addresses = ",".join(brokers)
        self._ends: dict[str, list[int]] = {}
        self._settings: dict[str, Any] = {"bootstrap.servers": self.addresses, "log_level": 0}

    def start(self) -> None:
        """Start those that do not run, and wait for all."""
        for broker in self.brokers:
            if not broker.is_running():
                broker.start()
        for broker in self.brokers:
            wait_until(partial(_knows_all, broker.address), "the brokers to know each other")

    def make(self, topic: str) -> None:
        """Make a topic whose records are acknowledged by the brokers of two zones."""
        made = NewTopic(topic, PARTITIONS, REPLICAS, config={"min.insync.replicas": str(IN_SYNC)})
        admin = AdminClient(self._settings)
        admin.create_topics([made])[topic].result(_PATIENCE_S)

    def records(self, topic: str) -> int:
        """Return how many records its partitions hold; where a partition has no leader, those that were seen last."""
        # A new client each time: an older one may ask a broker that is dead for as long as it has nothing to send.
        latest = Offsets.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(topic, at): latest for at in range(PARTITIONS)}
        ends = self._ends.setdefault(topic, [0] * PARTITIONS)
        with contextlib.suppress(KafkaException, TimeoutError):
            admin = AdminClient(self._settings)  # which must live until the answers are there
            found = admin.list_offsets(wanted, request_timeout=2.0)
            for partition, future in found.items():
                with contextlib.suppress(KafkaException, TimeoutError):
                    ends[partition.partition] = max(ends[partition.partition], future.result(2.0).offset)
        return sum(ends)

    def read(self, topic: str) -> Iterator[Message]:
        """Return the messages of a topic up to its present end."""
        consumer = Consumer({**self._settings, "group.id": "reader", "enable.auto.commit": False})
        partitions = [TopicPartition(topic, at, 0) for at in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(one, timeout=_PATIENCE_S)[1] for one in partitions)
        consumer.assign(partitions)
        while left:
            messages = consumer.consume(min(left, 1000), _PATIENCE_S)
            if not messages:
                raise TimeoutError(f"{topic}: nothing comes, {left} messages are left")
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
            yield from messages
            left -= len(messages)
        consumer.close()

    def end(self) -> None:
        """End all of them."""
        for broker in self.brokers:
            broker.end()


def record_of(message: Message) -> dict[str, Any]:
    """Return the record that a message is."""
    record: dict[str, Any] = orjson.loads(message.value() or b"")
    return record


def _knows_all(address: str) -> bool:
    try:
        found = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2.0)
        return len(found.brokers) == BROKERS
    except KafkaException:
        return False
