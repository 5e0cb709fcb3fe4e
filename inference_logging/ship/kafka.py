"""Kafka as a destination, through librdkafka: acknowledged by all in-sync replicas, and idempotent.

A record is the value of a message, unchanged from the segment; its trace id is the key, so that the records of one
request stay in order. The header ``resource`` of a message holds the segment's resource, as JSON.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from inference_logging.errors import ConfigError, MissingExtraError
from inference_logging.ship.line import Line, Sent

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

OURS: Final = {"acks": "all", "enable.idempotence": "true"}
STEP_S: Final = 0.1
RESOURCE: Final = "resource"


class KafkaDestination:
    """A topic. ``properties`` are librdkafka's; raises ``ConfigError`` for one that it does not take."""

    def __init__(self, brokers: str, topic: str, *, timeout_s: float, properties: Mapping[str, str]) -> None:
        """Prepare a producer; it connects when it has something to send."""
        try:
            import confluent_kafka
        except ImportError:
            raise MissingExtraError("shipping to Kafka", "confluent-kafka", "ship") from None
        self._kafka, self._topic, self._timeout_s = confluent_kafka, topic, timeout_s
        for name in OURS.keys() & properties.keys():
            raise ConfigError([f"ship_kafka_file: {name}={properties[name]!r}: is always {OURS[name]}"])
        self._properties: dict[str, Any] = {
            "linger.ms": "5",
            "compression.type": "zstd",
            "delivery.timeout.ms": str(round(timeout_s * 1000)),
            # Its own lines would repeat the reports about failed sendings.
            "log_level": "2",
            **properties,
            **OURS,
            "bootstrap.servers": brokers,
        }
        self._cause: KafkaError | None = None
        self._producer = self._begin()

    def _begin(self) -> Any:
        try:
            self._cause = None
            return self._kafka.Producer({**self._properties, "error_cb": self._learn})
        except self._kafka.KafkaException as error:
            raise ConfigError([f"ship_kafka_file: {error.args[0].str()}"]) from None

    def _learn(self, error: KafkaError) -> None:
        """Keep why it cannot connect: messages only time out then. "All brokers are down" says less than the reason."""
        if self._cause is None or error.code() != self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._cause = error

    def send(self, lines: Sequence[Line]) -> Sent:
        """Produce all of them, and wait for the answer to each."""
        answers: dict[int, KafkaError | None] = {}
        # The lines of a segment share one object.
        resources = {id(line.resource): line.resource for line in lines}
        headers = {of: {RESOURCE: orjson.dumps(resource)} for of, resource in resources.items()}
        for at, line in enumerate(lines):
            answers[at] = self._produce(line, headers[id(line.resource)], at, answers)
        # Each has its answer by then: delivery.timeout.ms ends those without one. In steps, so that signals are seen.
        end_s = time.monotonic() + self._timeout_s + 1.0
        while self._producer.flush(STEP_S) > 0 and time.monotonic() < end_s:
            pass
        sent = Sent()
        failed = []
        for line, answer in zip(lines, answers.values(), strict=True):
            if answer is None:
                continue
            code = answer.name()
            if answer.code() in (self._kafka.KafkaError.MSG_SIZE_TOO_LARGE, self._kafka.KafkaError.INVALID_RECORD):
                sent.refuse(line, code, answer.str())
                continue
            failed.append(line)
            timed_out = answer.code() == self._kafka.KafkaError._MSG_TIMED_OUT
            cause = self._cause if timed_out and self._cause is not None else answer
            sent.error, sent.error_type = cause.str(), cause.name()
            if answer.fatal():
                sent.error_type = f"{code}_FATAL"
        sent.failed = failed
        if failed:
            # Messages that still wait in it would be sent twice, and a producer with a fatal error sends nothing any
            # more.
            self._producer.purge()
            self._producer.flush(STEP_S)
            self._producer = self._begin()
        return sent

    def _produce(
        self, line: Line, headers: dict[str, bytes], at: int, answers: dict[int, KafkaError | None]
    ) -> KafkaError | None:
        """Hand one line over; return a placeholder for its answer."""

        def answered(error: KafkaError | None, _: Message) -> None:
            answers[at] = error

        key = line.record.get("trace_id")
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    line.raw,
                    key if isinstance(key, str) else None,
                    on_delivery=answered,
                    headers=headers,
                )
            except BufferError:
                self._producer.poll(STEP_S)
                continue
            except self._kafka.KafkaException as error:
                refused: KafkaError = error.args[0]
                return refused
            self._producer.poll(0)
            return answers.get(at, self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT))

    @staticmethod
    def convert(line: Line) -> bytes:
        """Return the value of a message."""
        return line.raw

    def close(self) -> None:
        """Abandon what is not acknowledged: it is sent again."""
        self._producer.purge()
        self._producer.flush(STEP_S)
